// Lines: up, stalled, down and up again; a frame that a line does not deliver goes over the others.
#include <algorithm>
#include <string>

#include "hub.hpp"
#include "worker.hpp"

namespace syncline::wire {
namespace {

constexpr double kProbeS = 0.25;     // between two looks at a peer that nothing reaches
constexpr double kMostBetweenDialsS = 0.5;

}  // namespace

int Hub::line_at(int peer, int rail, int index) const {
    if (peer < 0 || peer >= options.size || peer == options.rank) return -1;
    for (const int id : peers[static_cast<std::size_t>(peer)].lines) {
        const Line& line = *lines[static_cast<std::size_t>(id)];
        if (line.rail == rail && line.index == index) return id;
    }
    return -1;
}

void Hub::came_up(Line& line) {
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    line.is_up = true;
    line.is_stalled = line.must_close = line.is_dialing = false;
    line.num_dials = 0;
    line.last_heard_s = now_s();
    line.in_flight = 0;
    if (line.was_up) tell(line.peer, line.rail, "is used again");
    line.was_up = true;
    line.is_dirty = true;
    if (!peer.ready.empty()) wake_lines(peer);
    changed.notify_all();
}

void Hub::requeue(Line& line) {
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    std::uint64_t count = 0;
    for (auto& [sequence, frame] : peer.flight) {
        if (frame.line != line.id) continue;
        leave_line(peer, frame);
        await_line(peer, sequence, frame);
        ++count;
    }
    line.resent += count;
    line.in_flight = 0;
    if (!peer.ready.empty()) wake_lines(peer);
}

void Hub::went_down(Line& line, const std::string& why) {
    if (!line.is_up) return;
    line.is_up = line.is_stalled = false;
    line.acks.clear();
    line.agains.clear();
    line.next_dial_s = now_s();
    requeue(line);
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    if (!peer.said_bye && !is_closing && !is_stopping) {
        ++line.num_resets;
        tell(line.peer, line.rail, "is down: " + why);
    }
    if (peer.said_bye && peer.lost.empty()) lose(line.peer, "it has closed its end");
    changed.notify_all();
}

void Hub::lose(int peer, const std::string& why) {
    std::string& lost = peers[static_cast<std::size_t>(peer)].lost;
    if (!lost.empty()) return;
    lost = why;
    wake_waiting();
}

void Hub::heard(Line& line) {
    const std::lock_guard hold(mutex);
    note_heard(line);
}

void Hub::said_bye(Line& line) {
    const std::lock_guard hold(mutex);
    peers[static_cast<std::size_t>(line.peer)].said_bye = true;
    lose(line.peer, "it has closed its end");
}

// Whether a line holds something for so long that a faster one would have brought it.
bool Hub::is_late(const Peer& peer, const Line& line, double now) const {
    const bool is_slower = std::any_of(peer.lines.begin(), peer.lines.end(), [&](int id) {
        const Line& other = *lines[static_cast<std::size_t>(id)];
        return other.is_up && !other.is_stalled && other.rail != line.rail &&
               other.pace.rate_Bps() > 2 * line.pace.rate_Bps();
    });
    return is_slower && std::any_of(peer.flight.begin(), peer.flight.end(), [&](const auto& one) {
        return one.second.line == line.id && now - one.second.sent_s > options.stall_s;
    });
}

// Called every few milliseconds: find lines that do not deliver, dial those that are down.
void Hub::tick(double now) {
    for (const auto& pointer : lines) {
        Line& line = *pointer;
        Peer& peer = peers[static_cast<std::size_t>(line.peer)];
        if (!line.is_up || !peer.lost.empty()) continue;
        if (!line.acks.empty() && !line.is_dirty.exchange(true)) workers[static_cast<std::size_t>(line.worker)]->wake();
        const bool others = std::any_of(peer.lines.begin(), peer.lines.end(), [&](int id) {
            const Line& other = *lines[static_cast<std::size_t>(id)];
            return other.is_up && !other.is_stalled && other.rail != line.rail;
        });
        const bool is_silent = now - line.last_heard_s > options.stall_s;
        if (!line.is_stalled && line.in_flight > 0 && others && (is_silent || is_late(peer, line, now))) {
            line.is_stalled = true;
            line.stalled_s = now;
            tell(line.peer, line.rail,
                 is_silent ? "acknowledges nothing; what it held goes over the other rails"
                           : "has become slow; what it held goes over the other rails");
            line.pace.at_most(static_cast<double>(line.in_flight) / options.stall_s, now);
            requeue(line);
            line.must_let_go = true;
            workers[static_cast<std::size_t>(line.worker)]->wake();
        }
        if (!line.is_stalled) continue;
        if (now - line.last_ping_s > options.stall_s / 2) {
            line.last_ping_s = now;
            line.ping = true;
            if (!line.is_dirty.exchange(true)) workers[static_cast<std::size_t>(line.worker)]->wake();
        }
        if (now - line.stalled_s > options.give_up_s && !line.must_close) {
            line.must_close = true;
            workers[static_cast<std::size_t>(line.worker)]->wake();
        }
    }
    let_go();
    for (const auto& pointer : lines) {
        Line& line = *pointer;
        Peer& peer = peers[static_cast<std::size_t>(line.peer)];
        if (line.is_up || line.is_dialing || now < line.next_dial_s || !peer.lost.empty()) continue;
        if (static_cast<std::size_t>(line.rail) >= peer.endpoints.size() || is_closing || is_stopping) continue;
        // The higher rank dials. The lower one only looks whether the other still listens, when nothing reaches it.
        const bool reached = std::any_of(peer.lines.begin(), peer.lines.end(),
                                         [&](int id) { return lines[static_cast<std::size_t>(id)]->is_up; });
        const bool dials = options.rank > line.peer;
        if (!dials && (reached || !line.was_up)) continue;
        line.is_dialing = true;
        line.next_dial_s = now + (dials ? std::min(kMostBetweenDialsS, 0.01 * (1 << std::min(line.num_dials, 6))) : kProbeS);
        ++line.num_dials;
        workers[0]->dial(line.id, !dials);
    }
}

}  // namespace syncline::wire

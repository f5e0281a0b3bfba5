// Frames: which go next on a line, which have come, which must go again.
#include <algorithm>
#include <utility>

#include "hub.hpp"
#include "worker.hpp"

namespace syncline::wire {
namespace {

constexpr std::size_t kMostAcks = 64;
constexpr std::size_t kAcksAtOnce = 8;
constexpr std::size_t kMostLevelled = 64;  // peers that are kept level; with more, each has little at a time

// The stretch [offset, offset + size) of a message's parts laid end to end.
void cut(const Part (&parts)[2], std::size_t offset, std::size_t size, Part (&out)[2]) {
    std::size_t at = offset;
    for (std::size_t k = 0; k < 2; ++k) {
        out[k] = {};
        if (at < parts[k].size && size > 0) {
            out[k] = {parts[k].data + at, std::min(size, parts[k].size - at)};
            size -= out[k].size;
            at = parts[k].size;
        }
        at -= std::min(at, parts[k].size);
    }
}

}  // namespace

void Hub::wake_lines(const Peer& peer) {
    for (const int id : peer.lines) {
        Line& line = *lines[static_cast<std::size_t>(id)];
        if (line.is_up && !line.is_dirty.exchange(true)) workers[static_cast<std::size_t>(line.worker)]->wake();
    }
}

bool Hub::can_send(const Peer& peer, const Line& line) const {
    if (!line.is_up || line.is_stalled || peer.ready.empty()) return false;
    return line.in_flight < window(line) && !is_ahead(peer) && !is_too_slow(peer, line);
}

bool Hub::is_too_slow(const Peer& peer, const Line& line) const {
    if (peer.lines.size() < 2) return false;
    const double now = now_s();
    const auto waiting = static_cast<double>(peer.waiting_bytes);
    const double own = static_cast<double>(line.in_flight) + std::min<double>(options.frame_bytes, waiting);
    return std::any_of(peer.lines.begin(), peer.lines.end(), [&](int id) {
        const Line& other = *lines[static_cast<std::size_t>(id)];
        if (id == line.id || !other.is_up || other.is_stalled) return false;
        const double all = static_cast<double>(other.in_flight) + waiting;
        // By half of what makes a line late: a connection's rate comes and goes.
        return is_passed_over(line.pace, own, other.pace, all, options.stall_s / 2, now);
    });
}

void Hub::await_line(Peer& peer, std::uint64_t sequence, OutFrame& frame) {
    frame.line = -1;
    peer.waiting_bytes += frame.length;
    peer.ready.emplace(-frame.message->priority, sequence);
}

void Hub::leave_line(Peer& peer, const OutFrame& frame) {
    if (frame.line < 0) {
        peer.waiting_bytes -= frame.length;
        return;
    }
    Line& line = *lines[static_cast<std::size_t>(frame.line)];
    line.in_flight -= std::min<std::size_t>(line.in_flight, frame.length);
}

bool Hub::competes(const Peer& peer) const {
    if (peer.ready.empty() || !peer.lost.empty()) return false;
    return std::any_of(peer.lines.begin(), peer.lines.end(), [&](int id) {
        const Line& line = *lines[static_cast<std::size_t>(id)];
        return line.is_up && !line.is_stalled;
    });
}

std::uint64_t Hub::least_gone() const {
    std::uint64_t least = ~std::uint64_t{0};
    for (const Peer& peer : peers) {
        if (competes(peer)) least = std::min(least, peer.gone);
    }
    return least;
}

// An exchange is over when the slowest of its pairs is. Connections that share a cable get unequal parts of it, for
// seconds at a time; one that is far ahead of another waits, and leaves that one its part.
bool Hub::is_ahead(const Peer& peer) const {
    if (options.lead_bytes == 0 || peers.size() > kMostLevelled) return false;
    return peer.gone > options.lead_bytes && least_gone() < peer.gone - options.lead_bytes;
}

// Have lines go on that waited for others which have come nearer.
void Hub::let_go() {
    for (Peer& peer : peers) {
        if (!peer.is_held || is_ahead(peer)) continue;
        peer.is_held = false;
        wake_lines(peer);
    }
}

// With several lines each takes no more than it soon delivers, so that a slow one holds nothing up.
std::size_t Hub::window(const Line& line) const {
    const Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    int num_up = 0;
    for (const int id : peer.lines) num_up += lines[static_cast<std::size_t>(id)]->is_up ? 1 : 0;
    if (num_up < 2) return std::size_t{64} << 20;
    const double room = line.pace.rate_Bps() * (2 * line.least_delay_s + 0.005);
    return std::max<std::size_t>(2 * options.frame_bytes, static_cast<std::size_t>(std::min(room, 64e6)));
}

bool Hub::next_going(Line& line, std::uint64_t epoch, std::vector<Going>& out, std::size_t limit_bytes) {
    const std::lock_guard hold(mutex);
    if (!line.is_up || line.epoch != epoch) return false;
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    const auto control = [&](FrameKind kind, std::uint64_t sequence = 0) -> Going& {
        Going& going = out.emplace_back();
        going.header.kind = static_cast<std::uint8_t>(kind);
        going.header.sequence = sequence;
        return going;
    };
    for (std::size_t from = 0; from < line.acks.size(); from += kMostAcks) {
        const std::size_t count = std::min(kMostAcks, line.acks.size() - from);
        Going& going = control(FrameKind::ack);
        const auto begin = line.acks.begin() + static_cast<std::ptrdiff_t>(from);
        going.words.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    line.acks.clear();
    for (const std::uint64_t sequence : line.agains) control(FrameKind::again, sequence);
    line.agains.clear();
    if (std::exchange(line.ping, false)) control(FrameKind::ping);
    if (std::exchange(line.pong, false)) control(FrameKind::pong);
    for (std::size_t bytes = 0; bytes < limit_bytes && can_send(peer, line);) {
        const std::uint64_t sequence = std::get<1>(peer.ready.top());
        peer.ready.pop();
        const auto found = peer.flight.find(sequence);
        if (found == peer.flight.end() || found->second.line >= 0) continue;  // received by now, or sent already
        OutFrame& frame = found->second;
        leave_line(peer, frame);
        frame.sent_s = now_s();
        if (line.in_flight == 0) {
            line.last_heard_s = frame.sent_s;
            line.pace.begin(frame.sent_s);
        }
        frame.line = line.id;
        line.in_flight += frame.length;
        ++frame.message->num_being_written;
        Going& going = control(FrameKind::data, sequence);
        going.message = frame.message;
        going.header.tag = frame.message->tag;
        going.header.number = frame.message->number;
        going.header.offset = frame.offset;
        going.header.length = frame.length;
        going.header.total = frame.message->total;
        // What is asked for again is summed again: memory that changed since would be refused for ever.
        going.is_summed = frame.message->sums != nullptr && !std::exchange(frame.was_sent, true);
        if (going.is_summed) going.header.payload_crc = (*frame.message->sums)[frame.offset / options.frame_bytes];
        cut(frame.message->part, frame.offset, frame.length, going.part);
        bytes += frame.length;
        peer.gone += frame.length;
    }
    peer.is_held = !peer.ready.empty() && is_ahead(peer);
    let_go();
    if (line.bye && out.empty()) {
        line.bye = false;
        control(FrameKind::bye);
    }
    return can_send(peer, line);
}

void Hub::written(Line& line, Going& going) {
    if (!going.message) return;
    const std::lock_guard hold(mutex);
    line.sent_bytes += going.header.length + sizeof(FrameHeader);
    --going.message->num_being_written;
    maybe_over(going.message);
    going.message.reset();
}

void Hub::unwritten(std::vector<Going>& goings, std::size_t from) {
    const std::lock_guard hold(mutex);
    for (std::size_t k = from; k < goings.size(); ++k) {
        if (!goings[k].message) continue;
        --goings[k].message->num_being_written;
        maybe_over(goings[k].message);
    }
    goings.clear();
}

bool Hub::is_on(const Line& line, std::uint64_t sequence) {
    const std::lock_guard hold(mutex);
    const Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    const auto found = peer.flight.find(sequence);
    return found != peer.flight.end() && found->second.line == line.id;
}

bool Hub::is_known(const Peer& peer, std::uint64_t sequence) const {
    return sequence < peer.floor || peer.beyond.contains(sequence);
}

void Hub::note_heard(Line& line) {
    line.last_heard_s = now_s();
    if (!line.is_stalled) return;
    line.is_stalled = false;
    tell(line.peer, line.rail, "answers again");
    wake_lines(peers[static_cast<std::size_t>(line.peer)]);
}

// The message a frame belongs to, with room for it; null when it does not fit what is known.
InMessage* Hub::message_of(Peer& peer, const FrameHeader& header) {
    InMessage& message = peer.inbox[{header.tag, header.number}];
    if (message.total != 0 && message.total != header.total) return nullptr;
    message.total = header.total;
    if (message.listener != nullptr && message.num_committing == 0) place(peer, message);
    if ((!message.is_placed || message.is_refused) && message.parked.empty()) message.parked.resize(header.total);
    return &message;
}

bool Hub::begin_frame(Line& line, const FrameHeader& header, Claim& claim) {
    const std::lock_guard hold(mutex);
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    line.received_bytes += header.length + sizeof header;
    note_heard(line);
    if (header.total == 0 || header.offset > header.total || header.length > header.total - header.offset) return false;
    if (is_known(peer, header.sequence) || peer.receiving.contains(header.sequence)) return true;
    InMessage* message = message_of(peer, header);
    if (message == nullptr) return false;
    claim.is_revoked = false;  // nobody else knows of it yet
    claim.is_held = true;
    claim.message = message;
    claim.peer = line.peer;
    claim.sequence = header.sequence;
    if (!message->is_placed || message->is_refused) {
        const Part parked[2] = {{message->parked.data(), message->parked.size()}, {}};
        cut(parked, header.offset, header.length, claim.to);
    } else {
        cut(message->part, header.offset, header.length, claim.to);
    }
    ++message->num_committing;
    peer.receiving[header.sequence] = &claim;
    return true;
}

void Hub::revoke(Claim& claim) {
    {
        const std::lock_guard wait(claim.mutex);
        claim.is_revoked = true;
    }
    claim.is_held = false;
    --claim.message->num_committing;
    peers[static_cast<std::size_t>(claim.peer)].receiving.erase(claim.sequence);
}

void Hub::drop(Claim& claim) {
    const std::lock_guard hold(mutex);
    if (claim.is_held) revoke(claim);
}

bool Hub::end_frame(Line& line, const FrameHeader& header, Claim& claim, Arrival arrival, const std::uint8_t* scratch) {
    const std::lock_guard hold(mutex);
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    line.last_heard_s = now_s();
    const bool was_held = std::exchange(claim.is_held, false);
    InMessage* message = was_held ? claim.message : nullptr;
    if (was_held) {
        --message->num_committing;
        peer.receiving.erase(header.sequence);
    }
    if (arrival == Arrival::wrong) {
        ++line.wrong;
        if (line.wrong == 1) tell(line.peer, line.rail, "bytes changed on the way; such pieces are asked for again");
    }
    if (is_known(peer, header.sequence)) {
        line.acks.push_back(header.sequence);
        return true;
    }
    // Its place was taken away after it was judged: the bytes went with it, and none were put aside.
    const bool is_gone = !was_held && scratch == nullptr;
    if (arrival != Arrival::right || is_gone) {
        line.agains.push_back(header.sequence);
        return true;
    }
    if (!was_held) {
        // It was begun on another line, which has not brought it yet.
        if (const auto other = peer.receiving.find(header.sequence); other != peer.receiving.end()) revoke(*other->second);
        message = message_of(peer, header);
        if (message == nullptr) return false;
        const Part parked[2] = {{message->parked.data(), message->parked.size()}, {}};
        put(!message->is_placed || message->is_refused ? parked : message->part, header.offset, scratch, header.length);
    }
    peer.beyond.insert(header.sequence);
    while (peer.beyond.erase(peer.floor) > 0) ++peer.floor;
    message->received += header.length;
    line.acks.push_back(header.sequence);
    const bool is_due = peer.lines.size() > 1 || message->received == message->total || line.acks.size() >= kAcksAtOnce;
    deliver(peer, {header.tag, header.number});
    return is_due;
}

void Hub::touch(Line& line, int from_worker) {
    if (!line.is_dirty.exchange(true) && line.worker != from_worker) workers[static_cast<std::size_t>(line.worker)]->wake();
}

void Hub::measure(Line& line, const OutFrame& frame, double now) {
    const double delay = std::max(1e-6, now - frame.sent_s);
    line.least_delay_s = line.least_delay_s == 0.0 ? delay : std::min(line.least_delay_s * 1.01, delay);
    line.pace.brought(frame.length, options.frame_bytes / 2, now);
}

void Hub::acknowledged(Line& line, const std::vector<std::uint64_t>& sequences) {
    const std::lock_guard hold(mutex);
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    const double now = now_s();
    for (const std::uint64_t sequence : sequences) {
        const auto found = peer.flight.find(sequence);
        if (found == peer.flight.end()) continue;
        const OutFrame frame = found->second;
        peer.flight.erase(found);
        leave_line(peer, frame);
        if (frame.line >= 0) measure(*lines[static_cast<std::size_t>(frame.line)], frame, now);
        if (--frame.message->num_unacknowledged == 0) maybe_over(frame.message);
    }
    if (!peer.ready.empty()) wake_lines(peer);
}

void Hub::resend(Line& line, std::uint64_t sequence) {
    const std::lock_guard hold(mutex);
    Peer& peer = peers[static_cast<std::size_t>(line.peer)];
    const auto found = peer.flight.find(sequence);
    if (found == peer.flight.end() || found->second.line != line.id) return;
    leave_line(peer, found->second);
    await_line(peer, sequence, found->second);
    ++line.resent;
    wake_lines(peer);
}

}  // namespace syncline::wire

// Failures and repairs, and the watch for ports that wait for each other.
#include <algorithm>
#include <cmath>

#include "core.hpp"

namespace syncline::packet {

namespace {

constexpr i64 kPatience = 20'000;  // so many watches without a byte: nothing will come

}  // namespace

void Core::change(u32 row) {
    const u32 port = static_cast<u32>(change_port_[row]);
    Port& out = ports[port];
    const double factor = change_factor_[row];
    out.up = factor > 0;
    if (out.up) {
        out.cost = static_cast<u32>(std::lround(full_cost_[port] / factor));
        schedule(port);
    } else {
        // What waits in a dead port is lost; what an endpoint has not sent yet stays with it.
        for (u32 c = 0; c < num_classes_; ++c) {
            while (queue(port, c).head != kNone) {
                const u32 packet = unqueue(port, static_cast<int>(c));
                leave_switch(packet, out.owner);
                lose(packet, count.dead);
            }
        }
    }
    if (change_reroute_[row] >= 0) calendar_.push(now + change_reroute_[row], event(Happens::misc, 2 * row + 3));
}

void Core::find_routes() {
    std::vector<bool> up;
    for (const Port& port : ports) up.push_back(port.up);
    routes.build(wires_, up, static_cast<u32>(buffer_bytes_.size()), static_cast<u32>(endpoints_.size()),
                 routing_ >= Routing::valiant);
    groups_in_.assign(1, {});
    for (u32 g = 0; g < routes.num_groups(); ++g) {
        const u32 home = routes.home(g);
        const std::size_t place = home == kNone ? 0 : static_cast<std::size_t>(region_[home] + 1);
        if (groups_in_.size() <= place) groups_in_.resize(place + 1);
        groups_in_[place].push_back(g);
    }
}

void Core::reroute() {
    find_routes();
    turn_.assign(routes.num_sets(), 0);
    for (Flow& flow : flows_) flow.paths = flow.paths_used = 0;
    for (u32 e = 0; e < endpoints_.size(); ++e) places_[e].group = routes.group(e);
    // Groups have new numbers and ways may be dead: who is on one goes straight on.
    for (Packet& packet : packets_) packet.via = kNone;
    leave_dead_ways();
}

void Core::leave_dead_ways() {
    if (ways_.empty()) return;
    for (Flow& flow : flows_) {
        for (u32 i = flow.way; i != kNone && ways_[i] != kNone; ++i) {
            if (ports[ways_[i]].up) continue;
            flow.way = kNone;
            break;
        }
    }
}

// Look every millisecond whether anything still moves.
void Core::watch() {
    const i64 progress = count.delivered_bytes + count.tasks_done;
    if (progress != seen_progress_) {
        seen_progress_ = progress;
        idle_watches_ = 0;
    } else {
        ++idle_watches_;
        if (find_cycle()) state_ = State::deadlock;
        const i64 own = sample_ps_ > 0 ? 1 : 0;
        if ((calendar_.pending() <= own && hosts_.empty()) || idle_watches_ > kPatience) {
            if (state_ == State::running) state_ = State::stalled;
        }
    }
    calendar_.push(now + kWatch, event(Happens::misc, 1));
}

// A port that may not send waits for ports of the switch behind it that hold what it sent; a ring of such waits never
// ends.
bool Core::find_cycle() {
    std::vector<std::vector<u32>> waits(ports.size());
    for (u32 p = 0; p < ports.size(); ++p) {
        if (ports[p].waiting == 0 || sendable(p) != 0 || !ports[p].up) continue;
        for (u32 c = 0; c < num_classes_; ++c) {
            for (u32 packet = queue(p, c).head; packet != kNone; packet = packets_[packet].next) {
                const u32 from = packets_[packet].from;
                if (from == kNone) continue;
                if (waits[from].empty() || waits[from].back() != p) waits[from].push_back(p);
            }
        }
    }
    std::vector<u8> colour(ports.size(), 0);
    std::vector<std::pair<u32, std::size_t>> stack;
    for (u32 root = 0; root < ports.size(); ++root) {
        if (colour[root] != 0 || waits[root].empty() || ports[root].waiting == 0 || sendable(root) != 0) continue;
        stack.assign(1, {root, 0});
        colour[root] = 1;
        while (!stack.empty()) {
            auto& [port, at] = stack.back();
            if (at == waits[port].size()) {
                colour[port] = 2;
                stack.pop_back();
                continue;
            }
            const u32 ahead = waits[port][at++];
            if (colour[ahead] == 0) {
                colour[ahead] = 1;
                stack.emplace_back(ahead, 0);
            } else if (colour[ahead] == 1) {
                cycle.clear();
                bool inside = false;
                for (const auto& [member, unused] : stack) {
                    inside = inside || member == ahead;
                    if (inside) cycle.push_back(static_cast<std::int32_t>(member));
                }
                return true;
            }
        }
    }
    return false;
}

void Core::capture(u32 port, const Packet& packet, Time start) {
    if (static_cast<i64>(captured.time_ps.size()) >= capture_most_) return;
    captured.time_ps.push_back(start);
    captured.port.push_back(static_cast<std::int32_t>(port));
    captured.flow.push_back(static_cast<std::int32_t>(packet.flow));
    captured.seq.push_back(packet.seq);
    captured.ack.push_back(packet.type == Type::data ? 0 : packet.ack);
    captured.wire_bytes.push_back(packet.wire_bytes);
    captured.payload_bytes.push_back(packet.type == Type::data ? packet.payload_bytes : 0);
    captured.kind.push_back(static_cast<u8>(packet.type));
    captured.flags.push_back(packet.flags);
    captured.traffic_class.push_back(packet.traffic_class);
}

void Core::sample() {
    samples.time_ps.push_back(now);
    for (const auto port : sample_port_) {
        const Port& out = ports[static_cast<std::size_t>(port)];
        samples.queue_bytes.push_back(out.queued_bytes);
        samples.wire_bytes.push_back(static_cast<i64>(out.wire_bytes));
        samples.marks.push_back(tally[static_cast<std::size_t>(port)].marks);
        samples.paused.push_back(out.paused);
    }
    for (const auto index : sample_flow_) {
        const Flow& flow = flows_[static_cast<std::size_t>(index)];
        samples.flow_Bps.push_back(flow.rate * 1e12);
        samples.flow_window_bytes.push_back(flow.window);
        samples.flow_bytes.push_back(flow.delivered);
    }
    calendar_.push(now + sample_ps_, event(Happens::misc, 0));
}

}  // namespace syncline::packet

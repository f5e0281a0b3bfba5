#include <algorithm>
#include <stdexcept>

#include "core.hpp"

namespace syncline::packet {

u32 Core::take_packet() {
    if (++num_packets_ > count.peak_packets) count.peak_packets = num_packets_;
    if (free_packet_ == kNone) {
        packets_.emplace_back();
        if (!telemetry_.empty()) telemetry_.emplace_back();
        return static_cast<u32>(packets_.size() - 1);
    }
    const u32 packet = free_packet_;
    free_packet_ = packets_[packet].next;
    return packet;
}

void Core::give_packet(u32 packet) {
    --num_packets_;
    packets_[packet].next = free_packet_;
    free_packet_ = packet;
}

// A packet that goes no further; its payload is written off.
void Core::lose(u32 packet, i64& why) {
    ++why;
    const Packet& lost = packets_[packet];
    if (lost.type == Type::data) {
        count.lost_bytes += lost.payload_bytes;
        count.flying_bytes -= lost.payload_bytes;
    }
    give_packet(packet);
}

void Core::happen(u32 what) {
    const u32 index = what & kIndexMask;
    switch (static_cast<Happens>(what >> kKindShift)) {
        case Happens::arrival: arrive(index); break;
        case Happens::service:
            ports[index].scheduled = false;
            service(index);
            break;
        case Happens::pace:
            flows_[index].standing = Standing::idle;
            activate(index);
            break;
        case Happens::timeout: time_out(index); break;
        case Happens::pull: pull(index); break;
        case Happens::task: run_task(index); break;
        case Happens::bus: segment(index); break;
        case Happens::misc:
            if (index == 0) {
                sample();
            } else if (index == 1) {
                watch();
            } else if (index % 2 == 0) {
                change(index / 2 - 1);
            } else {
                reroute();
            }
            break;
    }
    if (!ready_.empty()) start_ready();
}

// Fetch what the coming events touch, in steps: packets and ports, then what these point to.
void Core::fetch_ahead() const {
    constexpr u32 kArrival = static_cast<u32>(Happens::arrival), kService = static_cast<u32>(Happens::service);
    const u32 far = calendar_.peek(12, kNone), later = calendar_.peek(8, kNone), soon = calendar_.peek(4, kNone);
    if (far >> kKindShift == kArrival) {
        __builtin_prefetch(&packets_[far]);
    } else if (far >> kKindShift == kService) {
        __builtin_prefetch(&ports[far & kIndexMask]);
        __builtin_prefetch(&queues_[std::size_t{far & kIndexMask} * num_classes_ + num_classes_ - 1]);
    }
    if (later >> kKindShift == kArrival) {
        const Packet& pkt = packets_[later];
        __builtin_prefetch(&ports[pkt.port]);
        __builtin_prefetch(&flows_[pkt.flow]);
    }
    if (soon >> kKindShift == kService) {
        const u32 head = queues_[std::size_t{soon & kIndexMask} * num_classes_ + num_classes_ - 1].head;
        if (head != kNone) __builtin_prefetch(&packets_[head]);
    }
}

State Core::advance(Time until, i64 max_events) {
    const i64 stop = count.events + max_events;
    const i64 num_tasks = static_cast<i64>(task_over_.size());
    while (state_ == State::running && count.events < stop && calendar_.next(until)) {
        fetch_ahead();
        now = calendar_.time();
        const u32 what = calendar_.what();
        calendar_.pop();
        ++count.events;
        happen(what);
        if (count.tasks_done == num_tasks) state_ = State::finished;
    }
    if (state_ == State::running && calendar_.pending() == 0) {
        state_ = find_cycle() ? State::deadlock : State::stalled;
    }
    audit();
    return state_;
}

void Core::audit() const {
    if (count.sent_bytes != count.delivered_bytes + count.lost_bytes + count.discarded_bytes + count.flying_bytes) {
        throw std::logic_error("packet engine: " + std::to_string(count.sent_bytes) + " bytes were sent, but " +
                               std::to_string(count.delivered_bytes) + " delivered, " +
                               std::to_string(count.lost_bytes) + " lost, " + std::to_string(count.discarded_bytes) +
                               " discarded and " + std::to_string(count.flying_bytes) + " under way");
    }
    if (count.flying_bytes < 0) throw std::logic_error("packet engine: fewer than no bytes are under way");
    for (const i64 used : buffer_used_) {
        if (used < 0) throw std::logic_error("packet engine: a buffer holds fewer than no bytes");
    }
}

Engine::Engine(const Setup& setup) : core_(std::make_unique<Core>(setup)) {}
Engine::~Engine() = default;

State Engine::advance(i64 until_ps, i64 max_events) { return core_->advance(until_ps, max_events); }
i64 Engine::now_ps() const { return core_->now; }
const Counters& Engine::counters() const { return core_->count; }
std::span<const i64> Engine::begin_ps() const { return core_->begin; }
std::span<const i64> Engine::end_ps() const { return core_->end; }
const Samples& Engine::samples() const { return core_->samples; }
std::vector<std::int32_t> Engine::cycle() const { return core_->cycle; }

PortColumns Engine::ports() const {
    PortColumns columns;
    for (std::size_t p = 0; p < core_->ports.size(); ++p) {
        const PortTally& tally = core_->tally[p];
        columns.wire_bytes.push_back(static_cast<i64>(core_->ports[p].wire_bytes));
        columns.packets.push_back(tally.packets);
        columns.drops.push_back(tally.drops);
        columns.marks.push_back(tally.marks);
        columns.trims.push_back(tally.trims);
        columns.pauses.push_back(tally.pauses);
        const bool still = core_->ports[p].paused != 0;
        columns.paused_ps.push_back(tally.paused + (still ? core_->now - tally.paused_since : 0));
        columns.peak_bytes.push_back(tally.peak_bytes);
    }
    return columns;
}

std::vector<std::int32_t> Engine::next_ports(std::int32_t from_switch, std::int32_t endpoint) const {
    const Routes& routes = core_->routes;
    const u32 at = static_cast<u32>(from_switch), goal = static_cast<u32>(endpoint);
    const u32 number = routes.set_of(at, routes.group(goal));
    if (number == Routes::kAttached) return {static_cast<std::int32_t>(routes.down(at, goal, 0))};
    const Routes::Set set = routes.set(number);
    return {routes.choices() + set.first, routes.choices() + set.first + set.count};
}

}  // namespace syncline::packet

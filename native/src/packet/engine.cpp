#include <algorithm>
#include <stdexcept>

#include "core.hpp"

namespace syncline::packet {

namespace {

// How many events ahead each step of fetching is.
constexpr u32 kFetchObject = 16, kFetchNext = 8, kFetchLast = 4;

// Up to here, processors have what they need at hand, and fetching ahead only costs.
constexpr std::size_t kNearCache = std::size_t{1} << 20;

bool is(u32 what, Happens kind) { return what >> kKindShift == static_cast<u32>(kind); }

}  // namespace

u32 Core::take_packet() {
    if (++num_packets_ > count.peak_packets) count.peak_packets = num_packets_;
    if (free_packet_ == kNone) {
        packets_.emplace_back();
        spread_out_ = packets_.size() * sizeof(Packet) + table_bytes_ > kNearCache;
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
        ++flow_tally[lost.flow].lost;
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
        case Happens::timeout:
            if ((index & kProbe) != 0) {
                probe(index & ~kProbe);
            } else {
                time_out(index);
            }
            break;
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

// What an event is about. Which kind comes next nobody can guess, the processor neither: no branch.
void Core::fetch_object(u32 what) const {
    static_assert(sizeof(Packet) == sizeof(Port));
    const auto packet = reinterpret_cast<std::uintptr_t>(packets_.data());
    const auto port = reinterpret_cast<std::uintptr_t>(ports.data());
    const std::uintptr_t table = is(what, Happens::service) ? port : packet;
    __builtin_prefetch(reinterpret_cast<const void*>(table + std::uintptr_t{what & kIndexMask} * sizeof(Packet)));
}

// What that points to: of a packet its way on or its connection, of a port what it will send.
void Core::fetch_next(u32 what) const {
    const u32 index = what & kIndexMask;
    if (is(what, Happens::arrival)) {
        const Packet& pkt = packets_[index];
        if (pkt.next == kToEndpoint) {
            const char* flow = reinterpret_cast<const char*>(&flows_[pkt.flow]);
            __builtin_prefetch(flow);
            __builtin_prefetch(flow + 128);
        } else if (on_way(pkt)) {
            const u32 port = ways_[pkt.via];
            __builtin_prefetch(&ports[port]);
            __builtin_prefetch(&queue(port, pkt.traffic_class));
            __builtin_prefetch(&ingress(pkt.port, pkt.traffic_class));
        } else if (pkt.type < Type::pause) {
            routes.fetch(pkt.next, places_[pkt.dst].group);
        }
    } else if (is(what, Happens::service)) {
        const Queue& line = queue(index, num_classes_ - 1);
        if (line.head != kNone) {
            __builtin_prefetch(&packets_[line.head]);
        } else if (line.ring_tail != kNone) {
            const char* flow = reinterpret_cast<const char*>(&flows_[line.ring_tail]);
            __builtin_prefetch(flow);
            __builtin_prefetch(flow + 64);
        }
    }
}

// Where that takes another step: the port of a packet whose way is looked up, what selective recovery remembers.
void Core::fetch_last(u32 what) const {
    if (!is(what, Happens::arrival)) return;
    const Packet& pkt = packets_[what & kIndexMask];
    if (pkt.type >= Type::pause) return;
    if (pkt.next == kToEndpoint) {
        const u32 scores = flows_[pkt.flow].scores;
        if (pkt.type == Type::data && scores != kNone) __builtin_prefetch(&scores_[scores]);
        return;
    }
    if (on_way(pkt)) return;
    const u32 port = likely_port(pkt);
    if (port == kNone) return;
    __builtin_prefetch(&ports[port]);
    __builtin_prefetch(&queue(port, pkt.traffic_class));
}

u32 Core::likely_port(const Packet& pkt) const {
    const Place& place = places_[pkt.dst];
    const u32 number = routes.set_of(pkt.next, place.group);
    if (number == Routes::kAttached) return place.down_port;
    const Routes::Set set = routes.set(number);
    if (set.count <= 1) return set.count == 0 ? kNone : routes.choices()[set.first];
    if ((pkt.flags & kSprayed) != 0) return routes.choices()[set.first + pkt.label % set.count];
    return by_hash(pkt.label, pkt.next, set);
}

// Fetch what the coming events touch, each step what the one before pointed to.
void Core::fetch_ahead() const {
    if (calendar_.at_start_of_batch()) {
        for (u32 ahead = 0; ahead < kFetchObject; ++ahead) fetch_object(calendar_.peek(ahead, kNone));
        for (u32 ahead = 0; ahead < kFetchNext; ++ahead) fetch_next(calendar_.peek(ahead, kNone));
    }
    fetch_object(calendar_.peek(kFetchObject, kNone));
    fetch_next(calendar_.peek(kFetchNext, kNone));
    if (looks_up_) fetch_last(calendar_.peek(kFetchLast, kNone));
}

void Core::happen_inside() {
    const u32 what = hosts_.top().what;
    hosts_.pop();
    ++count.events;
    happen(what);
}

State Core::advance(Time until, i64 max_events) {
    const i64 stop = count.events + max_events;
    const i64 num_tasks = static_cast<i64>(task_over_.size());
    while (state_ == State::running && count.events < stop) {
        if (now >= steady_.look_at) look(until);
        const Time hosts = hosts_.empty() ? until : std::min(until, hosts_.top().at);
        const bool packets = calendar_.next(hosts - skipped_);
        // What happens inside hosts, by their clock; at the same moment after packets, as its kind says.
        if (!hosts_.empty() && hosts_.top().at == hosts &&
            (!packets || (calendar_.time() == hosts - skipped_ && calendar_.what() > hosts_.top().what))) {
            now = hosts - skipped_;
            happen_inside();
            if (count.tasks_done == num_tasks) state_ = State::finished;
            continue;
        }
        if (!packets) break;
        if (spread_out_) {
            calendar_.foresee(kFetchObject);
            fetch_ahead();
        }
        now = calendar_.time();
        const u32 what = calendar_.what();
        calendar_.pop();
        ++count.events;
        happen(what);
        if (count.tasks_done == num_tasks) state_ = State::finished;
    }
    if (state_ == State::running && calendar_.pending() == 0 && hosts_.empty()) {
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
i64 Engine::now_ps() const { return core_->outside(); }
const Counters& Engine::counters() const { return core_->count; }
std::span<const i64> Engine::begin_ps() const { return core_->begin; }
std::span<const i64> Engine::end_ps() const { return core_->end; }
std::span<const i64> Engine::last_sent_ps() const { return core_->last_sent; }
std::span<const i64> Engine::limited_ps() const { return core_->limited; }
const Samples& Engine::samples() const { return core_->samples; }
const Captured& Engine::captured() const { return core_->captured; }
std::vector<std::int32_t> Engine::cycle() const { return core_->cycle; }

PortColumns Engine::ports() const {
    PortColumns columns;
    for (std::size_t p = 0; p < core_->ports.size(); ++p) {
        const PortTally& tally = core_->tally[p];
        columns.wire_bytes.push_back(static_cast<i64>(core_->ports[p].wire_bytes) + tally.skipped_bytes);
        columns.packets.push_back(static_cast<i64>(core_->ports[p].packets) + tally.skipped_packets);
        columns.drops.push_back(tally.drops);
        columns.marks.push_back(tally.marks);
        columns.trims.push_back(tally.trims);
        columns.pauses.push_back(tally.pauses);
        const bool still = core_->ports[p].paused != 0;
        columns.paused_ps.push_back(tally.paused + (still ? core_->now - tally.paused_since : 0));
        columns.peak_bytes.push_back(core_->ports[p].peak_bytes);
        columns.booked_ps.push_back(std::max<i64>(core_->ports[p].busy_until - core_->now, 0));
    }
    return columns;
}

FlowColumns Engine::flows() const {
    FlowColumns columns;
    for (const FlowTally& tally : core_->flow_tally) {
        columns.marks.push_back(tally.marks);
        columns.drops.push_back(tally.drops);
        columns.trims.push_back(tally.trims);
        columns.lost.push_back(tally.lost);
        columns.resent.push_back(tally.resent);
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

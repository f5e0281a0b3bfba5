// Which way a packet goes on.
#include <algorithm>

#include "core.hpp"

namespace syncline::packet {

void Core::arrive(u32 packet) {
    const Packet& pkt = packets_[packet];
    if (pkt.type >= Type::pause) {
        obey(packet);
        return;
    }
    if (pkt.next == kToEndpoint) {
        receive(packet);
    } else {
        forward(packet, pkt.next);
    }
}

void Core::forward(u32 packet, u32 at_switch) {
    const u32 from = packets_[packet].port;
    const u32 port = choose(packet, at_switch);
    if (port == kNone) {
        if (credits_) release(from, packets_[packet].traffic_class, packets_[packet].wire_bytes, at_switch);
        lose(packet, count.dead);
        return;
    }
    enqueue(port, packet, from);
}

u32 Core::choose(u32 packet, u32 at_switch) {
    Packet& pkt = packets_[packet];
    if (on_way(pkt)) return ways_[pkt.via++];
    u32 group = places_[pkt.dst].group;
    if (routing_ >= Routing::valiant) {
        if (pkt.hops == 1 && pkt.via == kNone && pkt.type == Type::data) pkt.via = detour(pkt, at_switch, group);
        if (pkt.via != kNone) {
            if (routes.set_of(at_switch, pkt.via) == Routes::kAttached) {
                pkt.via = kNone;
            } else {
                group = pkt.via;
            }
        }
    }
    const u32 number = routes.set_of(at_switch, group);
    if (number == Routes::kAttached) {
        const u32 only = places_[pkt.dst].down_port;
        return only != kNone ? only : routes.down(at_switch, pkt.dst, mix(pkt.label, at_switch));
    }
    const Routes::Set set = routes.set(number);
    if (set.count <= 1) return set.count == 0 ? kNone : routes.choices()[set.first];
    if (routing_ == Routing::first) return routes.choices()[set.first];
    if (routing_ == Routing::adaptive) return least_loaded(set, mix(pkt.label, start_[at_switch] + ++turn_[number]));
    if ((pkt.flags & kSprayed) != 0) {
        const u32 choice = pkt.label % set.count;
        pkt.label /= set.count;
        return routes.choices()[set.first + choice];
    }
    return by_hash(pkt.label, at_switch, set);
}

// How much time of sending a port has before it.
i64 Core::load(u32 port) const {
    const Port& out = ports[port];
    if (!out.up) return i64{1} << 60;
    return std::max<i64>(out.busy_until - now, 0) + crossing(out, out.queued_bytes) + (out.paused != 0 ? 1'000'000 : 0);
}

u32 Core::least_loaded(Routes::Set set, u32 start) const {
    const u32* choices = routes.choices() + set.first;
    u32 at = static_cast<u32>((u64{start} * set.count) >> 32);
    u32 best = choices[at];
    i64 least = load(best);
    for (u32 i = 1; i < set.count && least > 0; ++i) {
        if (++at == set.count) at = 0;
        const i64 here = load(choices[at]);
        if (here < least) {
            least = here;
            best = choices[at];
        }
    }
    return best;
}

// The group to visit first, or none for the shortest way. UGAL compares the queues of both ways, times their length.
u32 Core::detour(const Packet& pkt, u32 at_switch, u32 group) {
    const u32 home = routes.home(group);
    if (home == kNone || home == at_switch || routes.num_groups() < 3) return kNone;
    // Every packet draws anew: inside a group a third switch of it, between groups one of a third group.
    const bool inside = region_[home] == region_[at_switch];
    const std::vector<u32>& near = groups_in_[static_cast<std::size_t>(region_[home] + 1)];
    const u32 count = inside ? static_cast<u32>(near.size()) : routes.num_groups();
    u32 via = kNone;
    for (u32 attempt = 0; attempt < 8 && via == kNone; ++attempt) {
        const u32 turn = mix(pkt.label + attempt * 0x9E3779B9u, static_cast<u32>(seed_) + ++drawn_) % count;
        const u32 drawn = inside ? near[turn] : turn;
        const u32 middle = routes.home(drawn);
        if (middle == kNone || middle == at_switch || middle == home) continue;
        if (!inside && (region_[middle] == region_[at_switch] || region_[middle] == region_[home])) continue;
        if (routes.distance(at_switch, drawn) != 0xFFFF && routes.distance(middle, group) != 0xFFFF) via = drawn;
    }
    if (via == kNone || routing_ == Routing::valiant) return via;
    const Routes::Set straight = routes.set(routes.set_of(at_switch, group));
    const Routes::Set around = routes.set(routes.set_of(at_switch, via));
    if (straight.count == 0 || around.count == 0) return via;
    const u32 short_port = least_loaded(straight, pkt.label), long_port = least_loaded(around, pkt.label);
    const double short_hops = routes.distance(at_switch, group);
    const double long_hops = short_hops < 1 ? 1 : routes.distance(at_switch, via) + routes.distance(routes.home(via), group);
    const double bias = ugal_bias_ * static_cast<double>(crossing(ports[short_port], 4096));
    const bool keep = static_cast<double>(load(short_port)) * short_hops <=
                      static_cast<double>(load(long_port)) * long_hops + bias;
    return keep ? kNone : via;
}

}  // namespace syncline::packet

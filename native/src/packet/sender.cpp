// The sending end of a connection: which packet next, and when.
#include <algorithm>
#include <bit>

#include "core.hpp"

namespace syncline::packet {

namespace {

// The place of `index` in a random order of so many, which the key names: multiplying and shifting rearrange the next
// power of two; what falls outside is rearranged again.
u32 shuffled(u32 index, u32 count, u32 key) {
    const u32 bits = static_cast<u32>(std::bit_width(count - 1)), mask = (1u << bits) - 1;
    if (bits == 0) return 0;
    do {
        for (u32 turn = 0; turn < 4; ++turn) {
            const u32 drawn = mix(key, turn);
            index = (index * (drawn | 1u) + (drawn >> 16)) & mask;
            index ^= index >> ((bits + 1) / 2);
        }
    } while (index >= count);
    return index;
}

}  // namespace

// A message joins its connection's line.
void Core::post(u32 task) {
    settle();
    const u32 index = static_cast<u32>(task_over_[task]);
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    const bool idle = flow.rcv_next == flow.end;
    if (flow.end == 0) start_control(flow, profile);
    task_first_[task] = flow.end;
    flow.end = end_of(task, profile);
    if (flow.last_task != kNone) task_next_[flow.last_task] = task;
    flow.last_task = task;
    if (flow.send_task == kNone) send_next(flow, task);
    if (flow.una_task == kNone) flow.una_task = task;
    if (flow.rcv_task == kNone) receive_next(flow, task);
    if (static_cast<Transport>(profile.transport) == Transport::pull && idle) {
        const auto first = static_cast<std::int32_t>(std::max(1.0, profile.window_bytes / profile.payload_bytes));
        flow.credit += first;
        flow.pulls_given += static_cast<u32>(first);
        flow.count_b += static_cast<u32>(first);  // of the pulls that have come, the highest number
    }
    activate(index);
}

// The number after a posted message's last packet.
u32 Core::end_of(u32 task, const Profile& profile) const {
    return task_first_[task] + num_packets(task_bytes_[task], profile.payload_bytes);
}

void Core::send_next(Flow& flow, u32 task) {
    flow.send_task = task;
    flow.send_end = task == kNone ? 0 : end_of(task, profiles_[flow.profile]);
}

void Core::receive_next(Flow& flow, u32 task) {
    flow.rcv_task = task;
    flow.rcv_end = task == kNone ? 0 : end_of(task, profiles_[flow.profile]);
}

bool Core::may_send(const Flow& flow) const {
    const Profile& profile = profiles_[flow.profile];
    if (static_cast<Transport>(profile.transport) == Transport::pull) return flow.credit > 0;
    if (flow.window >= kNoWindow || flow.flying == 0) return true;
    if (profile.window_follows_rate) return flow.flying * static_cast<double>(profile.payload_bytes) < flow.window;
    return (flow.flying + 1.0) * profile.payload_bytes <= flow.window;
}

// Put the connection where it belongs: in its port's ring, on the calendar, or nowhere until something arrives.
void Core::activate(u32 index) {
    Flow& flow = flows_[index];
    if (flow.standing == Standing::ready || flow.standing == Standing::paced) return;
    if (!has_work(flow)) {
        flow.standing = Standing::idle;
        return;
    }
    if (!may_send(flow)) {
        if (flow.standing != Standing::blocked) flow.limited_since = now;
        flow.standing = Standing::blocked;
        return;
    }
    if (flow.standing == Standing::blocked) flow.limited += std::max<Time>(now - flow.limited_since, 0);
    const Profile& profile = profiles_[flow.profile];
    Time at = flow.next_send;
    if (profile.slot_ps > 0) at = slot_start(flow, profile, std::max(at, now));
    if (at > now) {
        flow.limited += at - now;
        flow.standing = Standing::paced;
        calendar_.push(at, event(Happens::pace, index));
        return;
    }
    join_ring(index, static_cast<u32>(profile.data_class));
    schedule(flow.port);
}

// The connection's turn comes after everyone else's in its port's ring.
void Core::join_ring(u32 index, u32 traffic_class) {
    Flow& flow = flows_[index];
    Queue& line = queue(flow.port, traffic_class);
    flow.standing = Standing::ready;
    if (line.ring_tail == kNone) {
        flow.ring_next = index;
    } else {
        flow.ring_next = flows_[line.ring_tail].ring_next;
        flows_[line.ring_tail].ring_next = index;
    }
    line.ring_tail = index;
    ports[flow.port].waiting |= static_cast<u8>(1u << traffic_class);
}

// The first moment from `from` on at which a whole packet fits into one of the connection's slots.
Time Core::slot_start(const Flow& flow, const Profile& profile, Time from) const {
    const Time round = profile.slot_ps * profile.num_slots;
    const Time lasts = crossing(ports[flow.port], static_cast<u32>(profile.payload_bytes + profile.header_bytes));
    const Time into = (from - profile.slot_ps * flow.slot) % round;
    const Time since = into < 0 ? into + round : into;
    return since + lasts + profile.guard_ps <= profile.slot_ps ? from : from + round - since;
}

u32 Core::payload_of(const Flow& flow, u32 seq) const {
    const u32 payload = static_cast<u32>(profiles_[flow.profile].payload_bytes);
    const bool later = flow.send_task != kNone && seq >= task_first_[flow.send_task];
    u32 task = later ? flow.send_task : flow.una_task;
    for (;;) {
        const u32 packets = num_packets(task_bytes_[task], static_cast<int>(payload));
        const u32 place = seq - task_first_[task];
        if (place < packets) {
            return place + 1 < packets ? payload : static_cast<u32>(task_bytes_[task] - i64{payload} * (packets - 1));
        }
        task = task_next_[task];
    }
}

// Which way: the connection's own, or what switches hash: its number, a new one by flowlet, packet, or what went well.
void Core::label(Flow& flow, Packet& pkt, const Profile& profile) {
    pkt.label = flow.label;
    switch (static_cast<Spread>(profile.spread)) {
        case Spread::flow: pkt.via = flow.way; break;
        case Spread::flowlet:
            if (now - flow.last_send > profile.flowlet_gap_ps && flow.last_send >= 0) {
                flow.label = random_.next();
                flow.way = kNone;
            }
            pkt.label = flow.label;
            pkt.via = flow.way;
            break;
        case Spread::packet:
            pkt.flags |= kSprayed;
            pkt.label = next_path(flow);
            break;
        case Spread::recycle:
            // A label that came back unmarked is used once more; otherwise a new one is tried.
            pkt.label = flow.recycle != 0 ? flow.recycle : random_.next() | 1u;
            flow.recycle = 0;
            break;
    }
}

// A sender takes all paths in a random order, then all again in another (NDP, SIGCOMM 2017, 3.1.1). Above the digits of
// the number is chance, for a way on which switches have more to choose from than on the one that was counted.
u32 Core::next_path(Flow& flow) {
    if (flow.paths == 0) flow.paths = num_paths(flow);
    const u32 round = flow.paths_used / flow.paths;
    const u32 path = shuffled(flow.paths_used % flow.paths, flow.paths, mix(flow.label, round));
    ++flow.paths_used;
    return path + flow.paths * (random_.next() / flow.paths);
}

// The product of what switches can choose from on one of the shortest ways.
u32 Core::num_paths(const Flow& flow) const {
    constexpr u32 kMost = 1u << 16, kLongest = 64;
    const u32 group = places_[flow.dst].group;
    u32 at = ports[flow.port].to, paths = 1;
    if (ports[flow.port].to_endpoint) return paths;
    for (u32 hop = 0; hop < kLongest; ++hop) {
        const u32 number = routes.set_of(at, group);
        if (number == Routes::kAttached) break;
        const Routes::Set set = routes.set(number);
        if (set.count == 0 || u64{paths} * set.count > kMost) break;
        paths *= set.count;
        at = ports[routes.choices()[set.first]].to;
    }
    return paths;
}

u32 Core::make_data(u32 port, u32 traffic_class) {
    Queue& line = queue(port, traffic_class);
    // What was to be sent again may have been acknowledged in the meantime: such a connection leaves the ring.
    u32 index;
    do {
        if (line.ring_tail == kNone) return kNone;
        index = flows_[line.ring_tail].ring_next;
        if (index == line.ring_tail) {
            line.ring_tail = kNone;
            if (line.head == kNone) ports[port].waiting &= static_cast<u8>(~(1u << traffic_class));
        } else {
            flows_[line.ring_tail].ring_next = flows_[index].ring_next;
        }
        flows_[index].standing = Standing::idle;
    } while (!has_work(flows_[index]));
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    const bool pulled = static_cast<Transport>(profile.transport) == Transport::pull;
    const u32 packet = take_packet();
    Packet& pkt = packets_[packet];
    pkt.flags = 0;
    u32 seq;
    if (flow.num_lost != 0) {
        seq = next_lost(flow);
    } else {
        seq = flow.next++;
        if (seq + 1 < flow.send_end) {
            pkt.payload_bytes = static_cast<u32>(profile.payload_bytes);
        } else {
            pkt.payload_bytes = payload_of(flow, seq);
            send_next(flow, task_next_[flow.send_task]);
        }
    }
    const bool oldest = flow.una == flow.sent_end;
    if (seq < flow.sent_end) {
        if (flow.scores != kNone && profile.finds_lost_repeats && !pulled) note_repeat(flow, seq);
        pkt.payload_bytes = payload_of(flow, seq);
        ++count.resent_packets;
        ++flow_tally[index].resent;
        pkt.flags |= kAgain;
    } else {
        ++count.data_packets;
        flow.sent_end = seq + 1;
        if (flow.scores != kNone) scores_[flow.scores].last_fresh = now;
    }
    pkt.type = Type::data;
    pkt.flow = index;
    pkt.seq = seq;
    pkt.wire_bytes = pkt.payload_bytes + static_cast<u32>(profile.header_bytes);
    pkt.dst = flow.dst;
    pkt.sent = now;
    pkt.via = kNone;
    pkt.from = kNone;
    pkt.hops = 0;
    pkt.traffic_class = static_cast<u8>(profile.data_class);
    label(flow, pkt, profile);
    if (static_cast<Transport>(profile.transport) == Transport::hpcc) {
        pkt.flags |= kMeasured;
        telemetry_[packet].count = 0;
    }
    count.sent_bytes += pkt.payload_bytes;
    count.flying_bytes += pkt.payload_bytes;
    ++flow.flying;
    --flow.credit;
    flow.last_send = now;
    before_send(flow, profile, pkt.wire_bytes);
    if (oldest) {
        arm(index);
    } else if (profile.tail_probe && flow.rtt > 0 && !flow.probed) {
        arm_probe(index);
    }

    // Where the connection stands once this packet has left.
    const Time free = now + crossing(ports[port], pkt.wire_bytes);
    flow.standing = Standing::idle;
    if (!has_work(flow)) return packet;
    if (!may_send(flow)) {
        // With fewer packets out than are acknowledged together, the last must ask for it, or both ends would wait.
        if (flow.flying < static_cast<u32>(profile.ack_every)) packets_[packet].flags |= kAsks;
        flow.standing = Standing::blocked;
        flow.limited_since = free;
        return packet;
    }
    Time at = flow.next_send;
    if (profile.slot_ps > 0) at = slot_start(flow, profile, std::max(at, free));
    if (at > free) {
        flow.limited += at - free;
        flow.standing = Standing::paced;
        calendar_.push(at, event(Happens::pace, index));
        return packet;
    }
    join_ring(index, traffic_class);
    return packet;
}

}  // namespace syncline::packet

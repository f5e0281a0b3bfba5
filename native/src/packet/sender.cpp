// The sending end of a connection: which packet next, when, and what to do when something is missing.
#include <algorithm>
#include <bit>

#include "core.hpp"

namespace syncline::packet {

namespace {

u32 num_packets(i64 bytes, int payload) { return static_cast<u32>((bytes + payload - 1) / payload); }

}  // namespace

// A message joins its connection's line.
void Core::post(u32 task) {
    const u32 index = static_cast<u32>(task_over_[task]);
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    const bool idle = flow.rcv_next == flow.end;
    if (flow.end == 0) start_control(flow, profile);
    task_first_[task] = flow.end;
    flow.end += num_packets(task_bytes_[task], profile.payload_bytes);
    if (flow.last_task != kNone) task_next_[flow.last_task] = task;
    flow.last_task = task;
    if (flow.send_task == kNone) flow.send_task = task;
    if (flow.una_task == kNone) flow.una_task = task;
    if (flow.rcv_task == kNone) flow.rcv_task = task;
    if (static_cast<Transport>(profile.transport) == Transport::pull && idle) {
        const auto first = static_cast<std::int32_t>(std::max(1.0, profile.window_bytes / profile.payload_bytes));
        flow.credit += first;
        flow.pulls_given += static_cast<u32>(first);
    }
    activate(index);
}

bool Core::may_send(const Flow& flow) const {
    const Profile& profile = profiles_[flow.profile];
    if (static_cast<Transport>(profile.transport) == Transport::pull) return flow.credit > 0;
    if (flow.window >= kNoWindow || flow.flying == 0) return true;
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
        flow.standing = Standing::blocked;
        return;
    }
    const Profile& profile = profiles_[flow.profile];
    Time at = flow.next_send;
    if (profile.slot_ps > 0) at = slot_start(flow, profile, std::max(at, now));
    if (at > now) {
        flow.standing = Standing::paced;
        calendar_.push(at, event(Happens::pace, index));
        return;
    }
    flow.standing = Standing::ready;
    Queue& line = queue(flow.port, static_cast<u32>(profile.data_class));
    if (line.ring_tail == kNone) {
        flow.ring_next = index;
    } else {
        flow.ring_next = flows_[line.ring_tail].ring_next;
        flows_[line.ring_tail].ring_next = index;
    }
    line.ring_tail = index;
    ports[flow.port].waiting |= static_cast<u8>(1u << profile.data_class);
    schedule(flow.port);
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

u32 Core::next_lost(Flow& flow) {
    Scores& scores = scores_[flow.scores];
    u32 seq = std::max(flow.lost_hint, flow.una);
    while (!scores.lost.test(seq)) ++seq;
    scores.lost.clear(seq);
    --flow.num_lost;
    flow.lost_hint = seq + 1;
    return seq;
}

// What switches hash: the connection's own number, or a new one by flowlet, packet, or what went well before.
void Core::label(Flow& flow, Packet& pkt, const Profile& profile) {
    pkt.label = flow.label;
    switch (static_cast<Spread>(profile.spread)) {
        case Spread::flow: break;
        case Spread::flowlet:
            if (now - flow.last_send > profile.flowlet_gap_ps && flow.last_send > 0) flow.label = random_.next();
            pkt.label = flow.label;
            break;
        case Spread::packet:
            pkt.flags |= kSprayed;
            pkt.label = random_.next();
            break;
        case Spread::recycle:
            // A label that came back unmarked is used once more; otherwise a new one is tried.
            pkt.label = flow.recycle != 0 ? flow.recycle : random_.next() | 1u;
            flow.recycle = 0;
            break;
    }
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
    const u32 packet = take_packet();
    Packet& pkt = packets_[packet];
    pkt.flags = 0;
    u32 seq;
    if (flow.num_lost != 0) {
        seq = next_lost(flow);
    } else {
        seq = flow.next++;
        const u32 packets = num_packets(task_bytes_[flow.send_task], profile.payload_bytes);
        pkt.payload_bytes = payload_of(flow, seq);
        if (seq - task_first_[flow.send_task] + 1 >= packets) flow.send_task = task_next_[flow.send_task];
    }
    if (seq < flow.sent_end) {
        pkt.payload_bytes = payload_of(flow, seq);
        ++count.resent_packets;
        pkt.flags |= kAgain;
    } else {
        ++count.data_packets;
        flow.sent_end = seq + 1;
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
    arm(index);

    // Where the connection stands once this packet has left.
    const Time free = now + crossing(ports[port], pkt.wire_bytes);
    flow.standing = Standing::idle;
    if (!has_work(flow)) return packet;
    if (!may_send(flow)) {
        flow.standing = Standing::blocked;
        return packet;
    }
    Time at = flow.next_send;
    if (profile.slot_ps > 0) at = slot_start(flow, profile, std::max(at, free));
    if (at > free) {
        flow.standing = Standing::paced;
        calendar_.push(at, event(Happens::pace, index));
        return packet;
    }
    flow.standing = Standing::ready;
    if (line.ring_tail == kNone) {
        flow.ring_next = index;
    } else {
        flow.ring_next = flows_[line.ring_tail].ring_next;
        flows_[line.ring_tail].ring_next = index;
    }
    line.ring_tail = index;
    ports[port].waiting |= static_cast<u8>(1u << traffic_class);
    return packet;
}

void Core::arm(u32 index) {
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    flow.deadline = now + (profile.timeout_ps << flow.backoff);
    if (flow.timer_armed) return;
    flow.timer_armed = true;
    calendar_.push(flow.deadline, event(Happens::timeout, index));
}

void Core::time_out(u32 index) {
    Flow& flow = flows_[index];
    flow.timer_armed = false;
    const Profile& profile = profiles_[flow.profile];
    const bool pulled = static_cast<Transport>(profile.transport) == Transport::pull;
    if (flow.una == (pulled ? flow.end : flow.sent_end)) return;  // everything has arrived
    if (now < flow.deadline) {
        flow.timer_armed = true;
        calendar_.push(flow.deadline, event(Happens::timeout, index));
        return;
    }
    // Nothing of it can be lost while the port itself is held back.
    const Port& out = ports[flow.port];
    const bool held = !out.up || (out.paused >> profile.data_class & 1) != 0 || flow.standing == Standing::ready;
    if (!held) {
        ++count.timeouts;
        flow.backoff = static_cast<u8>(std::min(flow.backoff + 1, 6));
        if (static_cast<Recovery>(profile.recovery) == Recovery::go_back_n) {
            go_back(flow);
        } else {
            for (u32 seq = flow.una; seq != flow.next; ++seq) take_lost(flow, seq);
        }
        if (pulled) start_pulls_anew(flow, profile);
        on_loss(flow, profile, true);
    }
    arm(index);
    activate(index);
}

// Packets or pulls were lost on the way: what is missing goes without being asked for, up to a first window of new
// packets with it, and the receiver has the rest to ask for.
void Core::start_pulls_anew(Flow& flow, const Profile& profile) {
    const u32 first = static_cast<u32>(std::max(1.0, profile.window_bytes / profile.payload_bytes));
    const u32 unsent = flow.end - flow.sent_end;
    const u32 fresh = flow.num_lost < first ? std::min(unsent, first - flow.num_lost) : 0;
    flow.credit = static_cast<std::int32_t>(flow.num_lost + fresh);
    const u32 open = unsent - fresh + flow.pulls_owed, total = flow.end + flow.count_a;
    flow.pulls_given = total > open ? total - open : 0;
}

void Core::take_lost(Flow& flow, u32 seq) {
    Scores& scores = scores_[flow.scores];
    if (seq < flow.una || scores.acked.test(seq) || scores.lost.test(seq)) return;
    scores.lost.set(seq);
    ++flow.num_lost;
    if (flow.flying > 0) --flow.flying;
    flow.lost_hint = std::min(flow.lost_hint, seq);
}

// Go-back-N: everything from the first missing packet on is sent again.
void Core::go_back(Flow& flow) {
    flow.next = flow.una;
    flow.flying = 0;
    flow.send_task = flow.una_task;
}

// Take an acknowledgement into account; returns how many packets are acknowledged for the first time.
u32 Core::score(Flow& flow, const Packet& pkt) {
    u32 newly = 0;
    const Profile& profile = profiles_[flow.profile];
    if (static_cast<Recovery>(profile.recovery) == Recovery::go_back_n) {
        if (pkt.ack > flow.una) {
            newly = pkt.ack - flow.una;
            flow.una = pkt.ack;
            if (flow.next < flow.una) flow.next = flow.una;
            flow.flying = flow.next - flow.una;
        }
        flow.highest = std::max(flow.highest, flow.una);
    } else {
        Scores& scores = scores_[flow.scores];
        const auto take = [&](u32 seq) {
            if (scores.acked.test(seq)) return;
            scores.acked.set(seq);
            ++newly;
            flow.highest = std::max(flow.highest, seq + 1);
            if (scores.lost.test(seq)) {
                scores.lost.clear(seq);
                --flow.num_lost;
            } else if (flow.flying > 0) {
                --flow.flying;
            }
        };
        for (u32 seq = flow.una; seq < pkt.ack; ++seq) take(seq);
        const u32 block = pkt.seq & ~63u;
        u64 fresh = pkt.bits & ~scores.acked.block(block);
        for (; fresh != 0; fresh &= fresh - 1) {
            const u32 seq = block + static_cast<u32>(std::countr_zero(fresh));
            if (seq >= pkt.ack && seq >= flow.una) take(seq);
        }
        if (pkt.ack > flow.una) {
            flow.una = pkt.ack;
            scores.acked.forget(flow.una);
            scores.lost.forget(flow.una);
        }
    }
    while (flow.una_task != kNone) {
        const u32 packets = num_packets(task_bytes_[flow.una_task], profile.payload_bytes);
        if (flow.una < task_first_[flow.una_task] + packets) break;
        if (flow.send_task == flow.una_task) flow.send_task = task_next_[flow.una_task];
        flow.una_task = task_next_[flow.una_task];
        if (flow.una_task == kNone) flow.last_task = kNone;
    }
    return newly;
}

// Selective: a hole with enough acknowledged behind it is taken for lost, once; a second loss waits for the timer.
void Core::find_lost(Flow& flow, const Profile& profile) {
    const u32 threshold = static_cast<u32>(profile.duplicate_threshold);
    if (flow.highest < flow.una + threshold) return;
    const u32 stop = flow.highest - threshold;
    bool any = false;
    for (u32 seq = std::max(flow.lost_scan, flow.una); seq < stop; ++seq) {
        const u32 before = flow.num_lost;
        take_lost(flow, seq);
        any = any || flow.num_lost != before;
    }
    flow.lost_scan = std::max(flow.lost_scan, stop);
    if (any) on_loss(flow, profile, false);
}

void Core::acknowledged(u32 packet) {
    const Packet pkt = packets_[packet];
    Flow& flow = flows_[pkt.flow];
    const Profile& profile = profiles_[flow.profile];
    if (pkt.type == Type::notice) {
        on_notice(flow, profile);
        give_packet(packet);
        return;
    }
    const u32 newly = score(flow, pkt);
    if (newly != 0) {
        flow.backoff = 0;
        flow.deadline = now + profile.timeout_ps;
    }
    if (pkt.type == Type::pull) ++flow.credit;
    if (pkt.type == Type::nack) {
        if (static_cast<Recovery>(profile.recovery) == Recovery::go_back_n) {
            if (pkt.ack == flow.una && flow.next > flow.una) {
                go_back(flow);
                on_loss(flow, profile, false);
            }
        } else {
            take_lost(flow, pkt.seq);
            flow.count_c |= 1;  // told of a loss: spraying slows down at the next acknowledgement
        }
    } else {
        on_ack(pkt.flow, pkt, newly, packet);
        if (static_cast<Recovery>(profile.recovery) == Recovery::selective &&
            static_cast<Transport>(profile.transport) != Transport::pull) {
            find_lost(flow, profile);
        }
    }
    give_packet(packet);
    activate(pkt.flow);
}

}  // namespace syncline::packet

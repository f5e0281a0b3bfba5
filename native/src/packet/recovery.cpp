// What has arrived, what is lost, and what is sent again.
#include <algorithm>
#include <bit>

#include "core.hpp"

namespace syncline::packet {

u32 Core::next_lost(Flow& flow) {
    Scores& scores = scores_[flow.scores];
    u32 seq = std::max(flow.lost_hint, flow.una);
    while (!scores.lost.test(seq)) ++seq;
    scores.lost.clear(seq);
    --flow.num_lost;
    flow.lost_hint = seq + 1;
    return seq;
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
    send_next(flow, flow.una_task);
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
        if (flow.una < end_of(flow.una_task, profile)) break;
        if (flow.send_task == flow.una_task) send_next(flow, task_next_[flow.una_task]);
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

// What has arrived, what is lost, and what is sent again.
//
// Selective repeat finds losses as RFC 8985 does: a packet with enough later ones acknowledged, a repeat when something sent
// after it has arrived, a tail when its probe has. The timer (RFC 6298) runs from the oldest packet that is not acknowledged
// and starts anew only when that one is.
#include <algorithm>
#include <bit>
#include <cmath>

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

// A packet goes out again: from now on something sent later must not arrive before it.
void Core::note_repeat(Flow& flow, u32 seq) {
    Scores& scores = scores_[flow.scores];
    if (!scores.repeats) scores.repeats = std::make_unique<Repeats>();
    scores.repeats->rows.push_back({seq, now});
}

// The round trip, smoothed, and how far it strays (RFC 6298).
void Core::measure_rtt(Flow& flow, Time sent) {
    const float found = static_cast<float>(now - sent);
    if (flow.rtt == 0) {
        flow.rtt = found;
        flow.rtt_spread = found / 2;
        return;
    }
    const float off = found - flow.rtt;
    flow.rtt_spread += (std::fabs(off) - flow.rtt_spread) / 4;
    flow.rtt += off / 8;
}

// RFC 6298. Before anything is measured three round trips without queues, of the connection's way where it has one;
// afterwards at least two: a line without jitter has no spread, and a queue is no loss.
Time Core::timeout_of(const Flow& flow, const Profile& profile) const {
    const bool few = profile.timeout_low_ps > 0 && flow.flying <= static_cast<u32>(profile.few_packets);
    const Time least = few ? profile.timeout_low_ps : profile.timeout_ps;
    if (flow.rtt == 0) return std::max(least, 3 * way_and_back(flow, profile)) << flow.backoff;
    const float own = std::min(flow.rtt, static_cast<float>(profile.base_rtt_ps));
    return std::max(least, static_cast<Time>(flow.rtt + std::max(4 * flow.rtt_spread, own))) << flow.backoff;
}

Time Core::way_and_back(const Flow& flow, const Profile& profile) const {
    if (flow.way == kNone) return profile.base_rtt_ps;
    Time there = ports[flow.port].latency;
    for (u32 i = flow.way; ways_[i] != kNone; ++i) there += ports[ways_[i]].latency;
    return 2 * there;
}

// The timer starts anew: the oldest packet that is not acknowledged is another one, or the first.
void Core::arm(u32 index) {
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    flow.deadline = now + timeout_of(flow, profile);
    if (!flow.timer_armed) {
        flow.timer_armed = true;
        calendar_.push(flow.deadline, event(Happens::timeout, index));
    }
    if (profile.tail_probe && flow.rtt > 0) arm_probe(index);
}

void Core::arm_probe(u32 index) {
    Flow& flow = flows_[index];
    Scores& scores = scores_[flow.scores];
    flow.probed = false;
    scores.probe_at = now + static_cast<Time>(2 * flow.rtt);
    if (flow.probe_armed) return;
    flow.probe_armed = true;
    calendar_.push(scores.probe_at, event(Happens::timeout, index | kProbe));
}

// Two round trips without news: the last packet goes again, so that what comes back shows what is missing.
void Core::probe(u32 index) {
    Flow& flow = flows_[index];
    Scores& scores = scores_[flow.scores];
    flow.probe_armed = false;
    if (flow.una == flow.sent_end || flow.probed) return;
    if (now < scores.probe_at) {
        flow.probe_armed = true;
        calendar_.push(scores.probe_at, event(Happens::timeout, index | kProbe));
        return;
    }
    // Something is about to be sent anyway and will show it: a connection in the queue of its own port has lost nothing.
    const bool sends = flow.standing == Standing::ready || flow.standing == Standing::paced;
    if (held(flow) || sends || flow.num_lost != 0) return;
    flow.probed = true;
    ++count.probes;
    // Where the last has arrived there is nothing to show: what is missing before it is lost.
    if (scores.acked.test(flow.sent_end - 1)) {
        declare_lost(flow, profiles_[flow.profile], flow.highest);
    } else {
        take_lost(flow, flow.sent_end - 1);
    }
    flow.deadline = std::max(flow.deadline, now + timeout_of(flow, profiles_[flow.profile]));
    activate(index);
}

// Nobody can tell a loss from waiting while the port itself may not send.
bool Core::held(const Flow& flow) const {
    const Port& out = ports[flow.port];
    const bool paused = (out.paused >> profiles_[flow.profile].data_class & 1) != 0;
    return !out.up || paused;
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
    if (!held(flow)) {
        ++count.timeouts;
        flow.backoff = static_cast<u8>(std::min(flow.backoff + 1, 6));
        if (static_cast<Recovery>(profile.recovery) == Recovery::go_back_n) {
            go_back(flow);
        } else {
            for (u32 seq = flow.una; seq != flow.next; ++seq) take_lost(flow, seq);
            Scores& scores = scores_[flow.scores];
            scores.repeats.reset();
            scores.recover = flow.sent_end;
        }
        if (pulled) start_pulls_anew(flow, profile);
        cut(flow, profile, true);
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
    flow.count_b = flow.pulls_given;
}

// Says whether that is news.
bool Core::take_lost(Flow& flow, u32 seq) {
    Scores& scores = scores_[flow.scores];
    if (seq < flow.una || scores.acked.test(seq) || scores.lost.test(seq)) return false;
    scores.lost.set(seq);
    ++flow.num_lost;
    if (flow.flying > 0) --flow.flying;
    flow.lost_hint = std::min(flow.lost_hint, seq);
    return true;
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

// Selective: what must be lost by what has arrived. The window is cut once for all that was sent before the last cut.
void Core::find_lost(Flow& flow, const Profile& profile) {
    Scores& scores = scores_[flow.scores];
    const u32 threshold = static_cast<u32>(profile.duplicate_threshold);
    const Time reorder = profile.reorder_ps > 0 ? profile.reorder_ps : profile.base_rtt_ps / 4;
    u32 stop = flow.highest > threshold ? flow.highest - threshold : 0;
    if (scores.rack > scores.last_fresh + reorder) stop = flow.sent_end;  // a repeat overtook all first sendings
    if (stop > flow.lost_scan || scores.repeats) declare_lost(flow, profile, stop);
}

// First sendings before `stop` that have not arrived are lost, and repeats that something sent later has overtaken.
void Core::declare_lost(Flow& flow, const Profile& profile, u32 stop) {
    Scores& scores = scores_[flow.scores];
    const Time reorder = profile.reorder_ps > 0 ? profile.reorder_ps : profile.base_rtt_ps / 4;
    bool any = false, fresh = false;
    for (u32 seq = std::max(flow.lost_scan, flow.una); seq < stop; ++seq) {
        if (!take_lost(flow, seq)) continue;
        any = true;
        fresh = fresh || seq >= flow.cut_seq;
    }
    flow.lost_scan = std::max(flow.lost_scan, stop);
    if (scores.repeats) {
        Repeats& repeats = *scores.repeats;
        while (repeats.head < repeats.rows.size() && repeats.rows[repeats.head].at + reorder < scores.rack) {
            const Repeats::Row row = repeats.rows[repeats.head++];
            if (row.seq == kNone || !take_lost(flow, row.seq)) continue;
            any = true;
            fresh = fresh || row.at > scores.cut_at;
        }
        if (repeats.head == repeats.rows.size()) {
            repeats.rows.clear();
            repeats.head = 0;
        }
    }
    if (any) scores.recover = flow.sent_end;
    if (fresh) cut(flow, profile, false);
}

// A loss that was told of by name: what was noted of that sending is void.
void Core::forget_repeat(Flow& flow, u32 seq) {
    Scores& scores = scores_[flow.scores];
    if (!scores.repeats) return;
    Repeats& repeats = *scores.repeats;
    for (std::size_t i = repeats.head; i < repeats.rows.size(); ++i) {
        if (repeats.rows[i].seq != seq) continue;
        repeats.rows[i].seq = kNone;
        return;
    }
}

void Core::cut(Flow& flow, const Profile& profile, bool timeout) {
    flow.cut_seq = flow.sent_end;
    if (flow.scores != kNone) scores_[flow.scores].cut_at = now;
    on_loss(flow, profile, timeout);
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
    const bool selective = static_cast<Recovery>(profile.recovery) == Recovery::selective;
    const bool pulled = static_cast<Transport>(profile.transport) == Transport::pull;
    const u32 before = flow.una;
    const u32 newly = score(flow, pkt);
    if (newly != 0) flow.backoff = 0;
    if (pulled) {
        // A receiver that asks for packets is heard as long as it lives, in whatever order they come.
        flow.deadline = now + timeout_of(flow, profile);
    } else if (pkt.type != Type::nack) {
        measure_rtt(flow, pkt.sent);
        if (selective) scores_[flow.scores].rack = std::max(scores_[flow.scores].rack, pkt.sent);
    }
    if (flow.una != before && !pulled) arm(pkt.flow);
    if (pkt.type == Type::pull && pkt.payload_bytes > flow.count_b) {
        // Pulls are numbered: one that comes stands for those before it, which may be lost or late.
        flow.credit += static_cast<std::int32_t>(pkt.payload_bytes - flow.count_b);
        flow.count_b = pkt.payload_bytes;
    }
    if (pkt.type == Type::nack) {
        if (!selective) {
            if (pkt.ack == flow.una && flow.next > flow.una) {
                go_back(flow);
                arm(pkt.flow);
                cut(flow, profile, false);
            }
        } else {
            take_lost(flow, pkt.seq);
            if ((pkt.flags & kAgain) != 0) forget_repeat(flow, pkt.seq);
            flow.count_c |= 1;  // told of a loss: spraying slows down at the next acknowledgement
        }
    } else {
        on_ack(pkt.flow, pkt, newly, packet);
        if (selective && !pulled) find_lost(flow, profile);  // a pulled packet is sent again when its header says so
    }
    give_packet(packet);
    activate(pkt.flow);
}

}  // namespace syncline::packet

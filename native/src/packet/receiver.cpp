// The receiving end: what has arrived, what is told to the sender, and, receiver-driven, when it may send more.
#include <algorithm>

#include "core.hpp"

namespace syncline::packet {

namespace {

constexpr int kManyWays = 1 << 16;

}  // namespace

void Core::receive(u32 packet) {
    const Type type = packets_[packet].type;
    if (credits_) {
        const Packet& pkt = packets_[packet];
        release(pkt.port, pkt.traffic_class, pkt.wire_bytes, kNone);  // may move the pool: `pkt` is void from here on
    }
    if (type == Type::data) {
        receive_data(packet);
    } else {
        acknowledged(packet);
    }
}

void Core::receive_data(u32 packet) {
    const Packet pkt = packets_[packet];
    Flow& flow = flows_[pkt.flow];
    const Profile& profile = profiles_[flow.profile];
    const bool selective = static_cast<Recovery>(profile.recovery) == Recovery::selective;
    const bool pulls = static_cast<Transport>(profile.transport) == Transport::pull;
    flow.rcv_last = pkt.seq;
    flow.rcv_sent = pkt.sent;
    flow.rcv_port = pkt.port;
    if ((pkt.flags & kTrimmed) != 0) {
        reply(pkt.flow, pkt, Type::nack, packet);
        give_packet(packet);
        if (pulls) {
            ++flow.count_a;  // one more packet to pull
            owe_pull(pkt.flow);
        }
        return;
    }
    count.flying_bytes -= pkt.payload_bytes;
    const u32 before = flow.rcv_next;
    bool fresh;
    if (selective) {
        Bits& arrived = scores_[flow.scores].arrived;
        fresh = pkt.seq >= flow.rcv_next && !arrived.test(pkt.seq);
        if (fresh) {
            arrived.set(pkt.seq);
            if (pkt.seq == flow.rcv_next) {
                do ++flow.rcv_next;
                while (arrived.test(flow.rcv_next));
            }
        }
    } else {
        fresh = pkt.seq == flow.rcv_next;
        if (fresh) ++flow.rcv_next;
    }
    if (fresh) {
        count.delivered_bytes += pkt.payload_bytes;
        flow.delivered += pkt.payload_bytes;
    } else {
        count.discarded_bytes += pkt.payload_bytes;
    }
    if ((pkt.flags & kMarked) != 0) {
        ++flow.marked;
        const bool told = static_cast<Transport>(profile.transport) == Transport::dcqcn && profile.cnp_interval_ps > 0;
        if (told && (flow.last_notice < 0 || now - flow.last_notice >= profile.cnp_interval_ps)) {
            flow.last_notice = now;
            ++count.notices;
            reply(pkt.flow, pkt, Type::notice, packet);
        }
    }
    const bool done = flow.rcv_next != before && flow.rcv_task != kNone && flow.rcv_next >= flow.rcv_end;
    if (!selective && !fresh && pkt.seq > flow.rcv_next) {
        // Out of order: say once where the gap is.
        if (!flow.refused) {
            flow.refused = true;
            reply(pkt.flow, pkt, Type::nack, packet);
        }
    } else if (pulls) {
        if (flow.pulls_given + flow.pulls_owed < flow.end + flow.count_a) {
            owe_pull(pkt.flow);
        } else if (done || flow.rcv_next >= flow.end || ++flow.unacked >= static_cast<u32>(profile.ack_every)) {
            reply(pkt.flow, pkt, Type::ack, packet);
        }
    } else {
        if (fresh) flow.refused = false;
        // A gap is told of at once, unless packets take many ways and gaps mean nothing.
        const bool gap = selective && flow.rcv_next == before && profile.duplicate_threshold < kManyWays;
        const bool enough = ++flow.unacked >= static_cast<u32>(profile.ack_every) || (pkt.flags & kAsks) != 0;
        if (enough || done || !fresh || gap) reply(pkt.flow, pkt, Type::ack, packet);
    }
    if (selective && flow.rcv_next != before) scores_[flow.scores].arrived.forget(flow.rcv_next & ~63u);
    give_packet(packet);
    if (done) deliver(pkt.flow);
}

// Messages whose last byte is here are done.
void Core::deliver(u32 index) {
    Flow& flow = flows_[index];
    while (flow.rcv_task != kNone && flow.rcv_next >= flow.rcv_end) {
        const u32 task = flow.rcv_task;
        receive_next(flow, task_next_[task]);
        last_sent[task] = flow.rcv_sent + skipped_;
        steady_.upset = true;
        limited[task] = flow.limited - flow.limited_told;
        flow.limited_told = flow.limited;
        finish_task(task);
    }
}

// Send something small back over the cable that the data came in on.
void Core::reply(u32 index, const Packet& data, Type type, u32 data_packet) {
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    const u32 packet = take_packet();
    Packet& pkt = packets_[packet];
    pkt.type = type;
    pkt.flow = index;
    pkt.seq = data.seq;
    pkt.ack = flow.rcv_next;
    pkt.bits = static_cast<Recovery>(profile.recovery) == Recovery::selective
                   ? scores_[flow.scores].arrived.block(data.seq)
                   : 0;
    pkt.sent = data.sent;
    pkt.wire_bytes = static_cast<u32>(profile.ack_bytes);
    pkt.payload_bytes = 0;
    pkt.label = (data.flags & kSprayed) != 0 ? random_.next() : data.label;
    pkt.dst = flow.src;
    pkt.via = kNone;
    pkt.from = kNone;
    pkt.hops = 0;
    pkt.flags = data.flags & (kMarked | kSprayed | kMeasured | kAgain);
    pkt.traffic_class = static_cast<u8>(profile.ack_class);
    if (type == Type::ack || type == Type::pull) {
        pkt.payload_bytes = flow.marked;  // how many of the acknowledged packets were marked
        flow.marked = 0;
        flow.unacked = 0;
        if (type == Type::pull) pkt.payload_bytes = flow.pulls_given;
        if (!telemetry_.empty() && data_packet != kNone) telemetry_[packet] = telemetry_[data_packet];
    }
    ++count.control_packets;
    enqueue(back_[data.port], packet, kNone);
}

void Core::owe_pull(u32 index) {
    Flow& flow = flows_[index];
    ++flow.pulls_owed;
    Endpoint& endpoint = endpoints_[flow.dst];
    if (!flow.in_pull_ring) {
        flow.in_pull_ring = true;
        if (endpoint.pull_tail == kNone) {
            flow.pull_next = index;
        } else {
            flow.pull_next = flows_[endpoint.pull_tail].pull_next;
            flows_[endpoint.pull_tail].pull_next = index;
        }
        endpoint.pull_tail = index;
    }
    if (endpoint.pulling) return;
    if (now >= endpoint.pull_next) {
        pull(flow.dst);
        return;
    }
    endpoint.pulling = true;
    calendar_.push(endpoint.pull_next, event(Happens::pull, flow.dst));
}

// Ask the next sender in turn for one packet; asks are spaced so that what they bring fills the link and no more.
void Core::pull(u32 index) {
    Endpoint& endpoint = endpoints_[index];
    endpoint.pulling = false;
    if (endpoint.pull_tail == kNone) return;
    const u32 chosen = flows_[endpoint.pull_tail].pull_next;
    Flow& flow = flows_[chosen];
    --flow.pulls_owed;
    ++flow.pulls_given;
    if (flow.pulls_owed == 0) {
        flow.in_pull_ring = false;
        if (chosen == endpoint.pull_tail) {
            endpoint.pull_tail = kNone;
        } else {
            flows_[endpoint.pull_tail].pull_next = flow.pull_next;
        }
    } else {
        endpoint.pull_tail = chosen;
    }
    Packet about{};
    about.seq = flow.rcv_last;
    about.sent = flow.rcv_sent;
    about.flags = kSprayed;
    about.port = flow.rcv_port;
    reply(chosen, about, Type::pull, kNone);
    endpoint.pull_next = now + endpoint.pull_gap;
    if (endpoint.pull_tail == kNone) return;
    endpoint.pulling = true;
    calendar_.push(endpoint.pull_next, event(Happens::pull, index));
}

}  // namespace syncline::packet

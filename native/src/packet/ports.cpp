// Ports: admission to the buffer, marks, pauses and credits, and which queue sends next.
#include <algorithm>
#include <bit>
#include <stdexcept>

#include "core.hpp"

namespace syncline::packet {

namespace {

constexpr u32 kSignalBytes = 64;
constexpr i64 kQuantum = 4096;

}  // namespace

void Core::enqueue(u32 port, u32 packet, u32 from) {
    Port& out = ports[port];
    Packet& pkt = packets_[packet];
    const u32 c = pkt.traffic_class;
    if (!out.up) {
        if (credits_ && from != kNone) release(from, c, pkt.wire_bytes, out.owner);
        lose(packet, count.dead);
        return;
    }
    if (c == 0 && !credits_ && (out.paused & 1) == 0 && goes_ahead(port)) {
        // Nothing can come before it but class 0: its place behind what is being sent is certain.
        pkt.from = kNone;
        transmit(port, packet, std::max(now, out.busy_until));
        return;
    }
    const bool free = now >= out.busy_until && out.waiting == 0 && (out.paused >> c & 1) == 0;
    if (free && (!credits_ || has_credit(port, c, pkt.wire_bytes))) {
        pkt.from = kNone;
        if (credits_ && from != kNone) release(from, c, pkt.wire_bytes, out.owner);  // may move the pool
        transmit(port, packet, now);
        return;
    }
    if (out.owner == kNone || admit(port, packet, from)) append(port, packet, from);
}

// Whether a packet of class 0 may go before all that waits. A weight is how many of them may do so in a row.
bool Core::goes_ahead(u32 port) {
    Port& out = ports[port];
    const int most = classes_[0].weight;
    if (most == 0 || out.owner == kNone) return true;
    if (now >= out.busy_until) out.ahead = 0;
    if (out.ahead >= most || queue(port, 0).head != kNone) return false;
    ++out.ahead;
    return true;
}

// Whether the buffer takes the packet; what it does not take is trimmed or dropped here.
bool Core::admit(u32 port, u32 packet, u32 from) {
    const Port& out = ports[port];
    Packet& pkt = packets_[packet];
    const u32 c = pkt.traffic_class;
    const ClassRule& rule = classes_[c];
    const i64 used = buffer_used_[out.owner], size = pkt.wire_bytes;
    const i64 total = buffer_bytes_[out.owner], shared = total - headroom_;
    const u32 depth = queue(port, c).bytes;
    if (rule.lossless || credits_) {
        if (credits_ || used + size <= total) {
            mark(port, packet, depth + pkt.wire_bytes);
            return true;
        }
        drop(port, packet, count.lossless_drops);
        return false;
    }
    const i64 limit = rule.limit_bytes > 0
                          ? rule.limit_bytes
                          : static_cast<i64>(rule.alpha * static_cast<double>(std::max<i64>(shared - used, 0)));
    if (depth + size <= limit && used + size <= shared) {
        mark(port, packet, depth + pkt.wire_bytes);
        return true;
    }
    if (!rule.trims || pkt.type != Type::data || c == 0) {
        drop(port, packet, count.drops);
        return false;
    }
    if (rule.trim_tail > 0 && random_.unit() < rule.trim_tail) {
        const u32 last = queue(port, c).tail;
        if (last != kNone && packets_[last].type == Type::data && packets_[last].wire_bytes >= pkt.wire_bytes) {
            mark(port, packet, depth);
            remove_tail(port, c);
            trim(port, last, kNone);
            return true;
        }
    }
    trim(port, packet, from);
    return false;
}

// Take the packet at the end of a queue out of it.
void Core::remove_tail(u32 port, u32 traffic_class) {
    Port& out = ports[port];
    Queue& line = queue(port, traffic_class);
    const u32 last = line.tail;
    u32 before = kNone;
    for (u32 at = line.head; at != last; at = packets_[at].next) before = at;
    line.tail = before;
    if (before == kNone) {
        line.head = kNone;
        if (line.ring_tail == kNone) out.waiting &= static_cast<u8>(~(1u << traffic_class));
    } else {
        packets_[before].next = kNone;
    }
    line.bytes -= packets_[last].wire_bytes;
    out.queued_bytes -= packets_[last].wire_bytes;
    buffer_used_[out.owner] -= packets_[last].wire_bytes;
}

void Core::drop(u32 port, u32 packet, i64& why) {
    ++tally[port].drops;
    if (packets_[packet].type == Type::data) ++flow_tally[packets_[packet].flow].drops;
    lose(packet, why);
}

// Cut the payload off and send the header ahead, so that the receiver learns at once what is missing.
void Core::trim(u32 port, u32 packet, u32 from) {
    Packet& pkt = packets_[packet];
    ++count.trims;
    ++tally[port].trims;
    ++flow_tally[pkt.flow].trims;
    count.lost_bytes += pkt.payload_bytes;
    count.flying_bytes -= pkt.payload_bytes;
    pkt.payload_bytes = 0;
    pkt.wire_bytes = kSignalBytes;
    pkt.traffic_class = 0;
    pkt.flags |= kTrimmed;
    enqueue(port, packet, from);
}

void Core::mark(u32 port, u32 packet, u32 queue_bytes) {
    Packet& pkt = packets_[packet];
    const ClassRule& rule = classes_[pkt.traffic_class];
    if (rule.mark_high_bytes == 0 || queue_bytes <= rule.mark_low_bytes || pkt.type != Type::data) return;
    if (queue_bytes <= rule.mark_high_bytes) {
        const double part = static_cast<double>(queue_bytes - rule.mark_low_bytes) /
                            static_cast<double>(std::max<i64>(rule.mark_high_bytes - rule.mark_low_bytes, 1));
        if (random_.unit() >= part * rule.mark_probability) return;
    }
    if ((pkt.flags & kMarked) == 0) {
        ++count.marks;
        ++flow_tally[pkt.flow].marks;
    }
    pkt.flags |= kMarked;
    ++tally[port].marks;
}

void Core::append(u32 port, u32 packet, u32 from) {
    Port& out = ports[port];
    Packet& pkt = packets_[packet];
    const u32 c = pkt.traffic_class;
    Queue& line = queue(port, c);
    pkt.next = kNone;
    pkt.from = from;
    if (line.tail == kNone) {
        line.head = packet;
    } else {
        packets_[line.tail].next = packet;
    }
    line.tail = packet;
    line.bytes += pkt.wire_bytes;
    out.queued_bytes += pkt.wire_bytes;
    out.waiting |= static_cast<u8>(1u << c);
    out.peak_bytes = std::max(out.peak_bytes, out.queued_bytes);
    if (out.owner != kNone) {
        buffer_used_[out.owner] += pkt.wire_bytes;
        if (!credits_ && from != kNone && classes_[c].lossless) {
            Ingress& in = ingress(from, c);
            in.bytes += pkt.wire_bytes;
            if (!in.pausing) {
                const ClassRule& rule = classes_[c];
                if (in.bytes > pause_limit(rule, out.owner)) {
                    in.pausing = true;
                    ++count.pauses;
                    signal(from, c, Type::pause, 0);
                }
            }
        }
    }
    schedule(port);
}

// Ask for service as soon as the port is free; at once when it is.
void Core::schedule(u32 port) {
    Port& out = ports[port];
    if (out.scheduled || !out.up) return;
    if (now >= out.busy_until) {
        service(port);
        return;
    }
    if ((out.waiting & ~out.paused) == 0) return;
    out.scheduled = true;
    calendar_.push(out.busy_until, event(Happens::service, port));
}

void Core::service(u32 port) {
    Port& out = ports[port];
    if (!out.up) return;  // what an endpoint has to send waits for the repair
    if (now < out.busy_until) {
        schedule(port);
        return;
    }
    u32 packet = kNone;
    while (packet == kNone) {
        const u32 ready = sendable(port);
        if (ready == 0) return;
        const int c = pick(port, ready);
        if (queue(port, static_cast<u32>(c)).head != kNone) {
            packet = unqueue(port, c);
            leave_switch(packet, out.owner);
        } else {
            packet = make_data(port, static_cast<u32>(c));
        }
    }
    transmit(port, packet, now);
    if ((out.waiting & ~out.paused) != 0 && !out.scheduled) {
        out.scheduled = true;
        calendar_.push(out.busy_until, event(Happens::service, port));
    }
}

// Classes that wait, are not paused and have the credit for their next packet.
u32 Core::sendable(u32 port) const {
    const Port& out = ports[port];
    u32 ready = out.waiting & ~static_cast<u32>(out.paused);
    if (!credits_ || ready == 0) return ready;
    for (u32 c = 0; c < num_classes_; ++c) {
        if ((ready >> c & 1) == 0) continue;
        const Queue& line = queue(port, c);
        u32 bytes;
        if (line.head != kNone) {
            bytes = packets_[line.head].wire_bytes;
        } else {
            const Profile& profile = profiles_[flows_[flows_[line.ring_tail].ring_next].profile];
            bytes = static_cast<u32>(profile.payload_bytes + profile.header_bytes);
        }
        if (!has_credit(port, c, bytes)) ready &= ~(1u << c);
    }
    return ready;
}

// Strict classes first, in order, class 0 so often in a row as its weight says; then the weighted ones by deficit round robin.
int Core::pick(u32 port, u32 ready) {
    u8& ahead = ports[port].ahead;
    if ((ready & 1) != 0 && ahead >= classes_[0].weight && classes_[0].weight > 0 && ready != 1) ready &= ~1u;
    ahead = (ready & 1) != 0 ? static_cast<u8>(std::min(ahead + 1, 255)) : 0;
    const u32 strict = ready & ~weighted_;
    if (strict != 0) return std::countr_zero(strict);
    if (std::has_single_bit(ready)) return std::countr_zero(ready);
    Port& out = ports[port];
    const auto deficit = [&](u32 c) -> std::int32_t& { return deficit_[std::size_t{c} * ports.size() + port]; };
    for (;;) {
        const u32 c = out.turn;
        if ((ready >> c & 1) != 0) {
            const u32 head = queue(port, c).head;
            const i64 size = head != kNone ? packets_[head].wire_bytes : kQuantum;
            if (deficit(c) >= size) {
                deficit(c) -= static_cast<std::int32_t>(size);
                return static_cast<int>(c);
            }
        } else {
            deficit(c) = 0;
        }
        do {
            out.turn = static_cast<u8>((out.turn + 1u) % num_classes_);
        } while ((weighted_ >> out.turn & 1) == 0);
        deficit(out.turn) += static_cast<std::int32_t>(kQuantum * classes_[out.turn].weight);
    }
}

u32 Core::unqueue(u32 port, int traffic_class) {
    Port& out = ports[port];
    Queue& line = queue(port, static_cast<u32>(traffic_class));
    const u32 packet = line.head;
    const Packet& pkt = packets_[packet];
    if (pkt.wire_bytes > line.bytes || pkt.wire_bytes > out.queued_bytes) {
        throw std::logic_error("packet engine: a queue of port " + std::to_string(port) + " holds fewer than no bytes");
    }
    line.head = pkt.next;
    if (line.head == kNone) {
        line.tail = kNone;
    } else {
        __builtin_prefetch(&packets_[line.head]);
    }
    line.bytes -= pkt.wire_bytes;
    out.queued_bytes -= pkt.wire_bytes;
    if (line.head == kNone && line.ring_tail == kNone) out.waiting &= static_cast<u8>(~(1u << traffic_class));
    if (out.owner != kNone) buffer_used_[out.owner] -= pkt.wire_bytes;
    return packet;
}

// What a packet held of its way in is free again.
void Core::leave_switch(u32 packet, u32 at_switch) {
    Packet& pkt = packets_[packet];
    if (pkt.from == kNone) return;
    const u32 from = pkt.from;
    pkt.from = kNone;
    if (credits_ || classes_[pkt.traffic_class].lossless) release(from, pkt.traffic_class, pkt.wire_bytes, at_switch);
}

// How much of one port's a switch takes before it pauses it.
double Core::pause_limit(const ClassRule& rule, u32 at_switch) const {
    if (rule.pause_bytes > 0) return static_cast<double>(rule.pause_bytes);
    const i64 spare = buffer_bytes_[at_switch] - headroom_ - buffer_used_[at_switch];
    return rule.pause_alpha * static_cast<double>(std::max<i64>(spare, 0));
}

void Core::release(u32 from, u32 traffic_class, u32 bytes, u32 at_switch) {
    Ingress& in = ingress(from, traffic_class);
    if (credits_) {
        in.bytes += bytes;
        if (i64{in.bytes} * 8 >= credit_bytes_) {
            signal(from, traffic_class, Type::credit, in.bytes);
            in.bytes = 0;
        }
        return;
    }
    if (in.bytes < bytes) throw std::logic_error("packet engine: more left a switch than came in");
    in.bytes -= bytes;
    if (!in.pausing) return;
    const ClassRule& rule = classes_[traffic_class];
    const double limit = pause_limit(rule, at_switch);
    if (in.bytes <= std::max(0.0, limit - static_cast<double>(rule.resume_gap_bytes))) {
        in.pausing = false;
        signal(from, traffic_class, Type::resume, 0);
    }
}

// Tell the sending end of a port something: a frame that crosses the cable the other way, ahead of everything.
void Core::signal(u32 port, u32 traffic_class, Type type, u32 amount) {
    const u32 packet = take_packet();
    Packet& pkt = packets_[packet];
    pkt.type = type;
    pkt.port = port;
    pkt.flow = 0;
    pkt.traffic_class = static_cast<u8>(traffic_class);
    pkt.ack = amount;
    const Port& back = ports[back_[port]];
    const Time start = std::max(now, back.busy_until);
    // Signals of one port arrive in the order of sending, never in the same moment: a resume must not overtake its pause.
    Time& last = signalled_[port];
    last = std::max(start + crossing(back, kSignalBytes) + back.latency, last + 1);
    calendar_.push(last, event(Happens::arrival, packet));
}

void Core::obey(u32 packet) {
    const Packet pkt = packets_[packet];
    give_packet(packet);
    Port& out = ports[pkt.port];
    PortTally& sums = tally[pkt.port];
    const u8 bit = static_cast<u8>(1u << pkt.traffic_class);
    if (pkt.type == Type::pause) {
        if (out.paused == 0) sums.paused_since = now;
        ++sums.pauses;
        out.paused |= bit;
        return;
    }
    if (pkt.type == Type::resume) {
        out.paused &= static_cast<u8>(~bit);
        if (out.paused == 0) sums.paused += now - sums.paused_since;
    } else {
        ingress(pkt.port, pkt.traffic_class).credit += pkt.ack;
    }
    if (out.waiting != 0) schedule(pkt.port);
}

bool Core::has_credit(u32 port, u32 traffic_class, u32 bytes) const {
    return ingress(port, traffic_class).credit >= static_cast<i64>(bytes);
}

void Core::transmit(u32 port, u32 packet, Time start) {
    Port& out = ports[port];
    Packet& pkt = packets_[packet];
    const Time lasts = crossing(out, pkt.wire_bytes);
    out.busy_until = start + lasts;
    out.wire_bytes += pkt.wire_bytes;
    ++out.packets;
    ++count.hops;
    pkt.port = port;
    ++pkt.hops;
    if ((pkt.flags & kMeasured) != 0 && pkt.type == Type::data && telemetry_[packet].count < 8) {
        Telemetry& seen = telemetry_[packet];
        seen.hop[seen.count++] = {start, out.wire_bytes, out.queued_bytes, port};
    }
    if (credits_) ingress(port, pkt.traffic_class).credit -= pkt.wire_bytes;
    if (out.special != 0 && (out.special & kCaptured) != 0) capture(port, pkt, start);
    if ((out.special & kLossy) != 0 && random_.unit() < loss_[port]) {
        if (credits_) ingress(port, pkt.traffic_class).credit += pkt.wire_bytes;
        lose(packet, count.errors);
        return;
    }
    // Cut through: the next switch may begin with the header, but not overtake the tail of a slower link.
    const bool whole = !cut_through_ || out.to_endpoint;
    const Time seen_after = whole ? lasts : crossing(out, std::min<u32>(pkt.wire_bytes, kSignalBytes));
    pkt.next = out.to_endpoint ? kToEndpoint : out.to;
    calendar_.push(start + seen_after + out.latency, event(Happens::arrival, packet));
}

}  // namespace syncline::packet

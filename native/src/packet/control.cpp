// Congestion control: how fast a connection sends. Each law in its published form; docs/method/packet.md says what is
// left out.
#include <algorithm>
#include <cmath>

#include "core.hpp"
#include "packet_law.h"

namespace syncline::packet {

namespace {

constexpr double kPerSecond = 1e-12;  // bytes per second to bytes per ps

}  // namespace

void Core::start_control(Flow& flow, const Profile& profile) {
    flow.window = profile.window_bytes;
    flow.rate = profile.start_Bps > 0 ? profile.start_Bps * kPerSecond : line_rate(flow);
    flow.alpha = 1.0;
    flow.target = flow.rate;
    flow.x = flow.y = 0;
    flow.t0 = flow.t1 = flow.t2 = now;
    flow.count_a = flow.count_b = flow.count_c = 0;
    switch (static_cast<Transport>(profile.transport)) {
        case Transport::dctcp:
        case Transport::cubic: flow.target = 1e18; break;  // slow start has no end yet
        case Transport::hpcc: flow.target = flow.window; break;
        case Transport::dcqcn: flow.t2 = now - profile.decrease_interval_ps; break;  // the first notification counts
        case Transport::custom: consult(static_cast<u32>(&flow - flows_.data()), profile, SYNCLINE_START, nullptr, 0); break;
        default: break;
    }
}

void Core::limit(Flow& flow, const Profile& profile) const {
    flow.window = std::clamp(flow.window, profile.min_window_bytes, profile.max_window_bytes);
    flow.rate = std::clamp(flow.rate, profile.min_Bps * kPerSecond, line_rate(flow));
}

void Core::before_send(Flow& flow, const Profile& profile, u32 wire) {
    const double line = line_rate(flow);
    if (static_cast<Transport>(profile.transport) == Transport::dcqcn && (flow.rate < line || flow.count_c != 0)) {
        catch_up(flow, profile);
        flow.x += wire;
        if (flow.x >= profile.byte_counter) {
            flow.x = 0;
            ++flow.count_b;
            increase_rate(flow, profile);
        }
    }
    double rate = flow.rate;
    if (flow.cap > 0) rate = std::min(rate, flow.cap);
    if (flow.window < profile.payload_bytes) {
        // Less than a packet a round trip: wait for the rest of it.
        rate = std::min(rate, flow.window / static_cast<double>(profile.base_rtt_ps));
    }
    if (rate >= line * 0.9999) return;
    const Time lasts = static_cast<Time>(wire / rate);
    flow.next_send = std::max(flow.next_send, now - lasts) + lasts;
}

// DCQCN. Its timers only matter when something is sent or a notification comes, so they are caught up with then.
//   t0 alpha's last tick, t1 the rate's, t2 the last cut or tick of the decrease timer
//   count_a, count_b: ticks of the rate timer and of the byte counter since the last cut
//   count_c: 1 told since alpha's last tick, 2 told since the decrease timer's, 4 told ever
void Core::catch_up(Flow& flow, const Profile& profile) {
    if (profile.cuts_on_timer && (flow.count_c & 2) != 0) {
        const Time due = flow.t2 + profile.decrease_interval_ps;
        if (due <= now) {
            tick_until(flow, profile, due);
            cut_rate(flow, profile);
            flow.t1 = flow.t2 = due;
            flow.count_c &= ~2u;
        }
    }
    tick_until(flow, profile, now);
    if (profile.cuts_on_timer) flow.t2 += (now - flow.t2) / profile.decrease_interval_ps * profile.decrease_interval_ps;
    if (profile.window_follows_rate) flow.window = profile.window_bytes * flow.rate / line_rate(flow);
}

void Core::tick_until(Flow& flow, const Profile& profile, Time until) {
    i64 ticks = (until - flow.t0) / profile.alpha_timer_ps;
    flow.t0 += ticks * profile.alpha_timer_ps;
    if (ticks > 0 && (flow.count_c & 1) != 0) {
        flow.alpha = (1 - profile.gain) * flow.alpha + profile.gain;
        flow.count_c &= ~1u;
        --ticks;
    }
    if (ticks > 0) flow.alpha *= std::pow(1 - profile.gain, static_cast<double>(ticks));
    const double line = line_rate(flow);
    while (until - flow.t1 >= profile.rate_timer_ps && flow.rate < line) {
        flow.t1 += profile.rate_timer_ps;
        ++flow.count_a;
        increase_rate(flow, profile);
    }
    if (flow.rate >= line) {
        const i64 rest = (until - flow.t1) / profile.rate_timer_ps;
        flow.t1 += rest * profile.rate_timer_ps;
        flow.count_a += static_cast<u32>(std::min<i64>(rest, 1000));
    }
}

// With the rate timer alone (the ns-3 model) the stages are its ticks: recover, then one additive step, then hyper.
void Core::increase_rate(Flow& flow, const Profile& profile) {
    const u32 stages = static_cast<u32>(profile.fast_stages);
    const u32 most = std::max(flow.count_a, flow.count_b);
    const u32 least = profile.cuts_on_timer ? most - 1 : std::min(flow.count_a, flow.count_b);
    if (least > stages) {
        flow.target += profile.hyper_Bps * kPerSecond;
    } else if (profile.cuts_on_timer ? most > stages : most >= stages) {
        flow.target += profile.additive_Bps * kPerSecond;
    }
    const double line = line_rate(flow);
    flow.target = std::min(flow.target, line);
    flow.rate = (flow.rate + flow.target) / 2;
    if (flow.rate > 0.9995 * line) flow.rate = line;
}

void Core::cut_rate(Flow& flow, const Profile& profile) {
    if (profile.clamps_target || flow.count_a > 0) flow.target = flow.rate;
    flow.rate *= 1 - flow.alpha / 2;
    flow.count_a = flow.count_b = 0;
    flow.x = 0;
    flow.rate = std::clamp(flow.rate, profile.min_Bps * kPerSecond, line_rate(flow));
}

// A congestion notification.
void Core::on_notice(Flow& flow, const Profile& profile) {
    if (profile.cuts_on_timer) {
        if ((flow.count_c & 4) == 0) {
            flow.count_c = 2 | 4;
            flow.t0 = flow.t1 = flow.t2 = now;
            flow.alpha = 1;
            return;
        }
        catch_up(flow, profile);
        flow.count_c |= 1 | 2;
        return;
    }
    if (now - flow.t2 < profile.decrease_interval_ps) return;
    catch_up(flow, profile);
    cut_rate(flow, profile);
    flow.alpha = (1 - profile.gain) * flow.alpha + profile.gain;
    flow.t0 = flow.t1 = flow.t2 = now;
    if (profile.window_follows_rate) flow.window = profile.window_bytes * flow.rate / line_rate(flow);
}

// A law of the user's.
void Core::consult(u32 index, const Profile& profile, int what, const Packet* ack, u32 newly) {
    Flow& flow = flows_[index];
    const double payload = profile.payload_bytes;
    const syncline_news news{
        SYNCLINE_LAW_VERSION, what, static_cast<double>(now) * 1e-12,
        ack != nullptr ? static_cast<double>(now - ack->sent) * 1e-12 : 0.0, flow.rtt * 1e-12,
        static_cast<double>(profile.base_rtt_ps) * 1e-12, line_rate(flow) * 1e12, payload, newly * payload,
        ack != nullptr ? static_cast<double>(ack->payload_bytes) : 0.0, flow.flying * payload,
        ack != nullptr ? static_cast<double>(ack->hops) : 0.0};
    syncline_state state{flow.window, flow.rate * 1e12, {}};
    Memory& memory = memories_[index];
    std::copy_n(memory.number, 16, state.memory);
    reinterpret_cast<syncline_law>(profile.law)(&news, &state);
    std::copy_n(state.memory, 16, memory.number);
    // What is no number is no answer: the connection goes on as before.
    if (state.window_bytes > 0) flow.window = state.window_bytes;
    if (state.rate_Bps > 0) flow.rate = state.rate_Bps * kPerSecond;
}

void Core::on_ack(u32 index, const Packet& pkt, u32 newly, u32 packet) {
    Flow& flow = flows_[index];
    const Profile& profile = profiles_[flow.profile];
    switch (static_cast<Transport>(profile.transport)) {
        case Transport::line:
        case Transport::pull:
        case Transport::slotted: return;
        case Transport::dcqcn:
            if (profile.cnp_interval_ps == 0 && pkt.payload_bytes > 0) {
                ++count.notices;
                on_notice(flow, profile);
            } else if (profile.window_follows_rate) {
                catch_up(flow, profile);
            }
            return;
        case Transport::custom: consult(index, profile, SYNCLINE_ACK, &pkt, newly); break;
        case Transport::dctcp: dctcp(flow, profile, pkt, newly); break;
        case Transport::swift: swift(flow, profile, pkt, newly); break;
        case Transport::spray: sprayed(flow, profile, pkt, newly); break;
        case Transport::hpcc: hpcc(index, profile, pkt, packet); break;
        case Transport::timely: timely(flow, profile, pkt); break;
        case Transport::cubic: cubic(flow, profile, pkt, newly); break;
    }
    limit(flow, profile);
}

void Core::dctcp(Flow& flow, const Profile& profile, const Packet& ack, u32 newly) {
    flow.x += newly;
    flow.y += ack.payload_bytes;
    if (flow.una >= flow.mark_seq) {
        // One window is over: what part of it was marked.
        if (flow.x > 0) flow.alpha += profile.gain * (std::min(flow.y / flow.x, 1.0) - flow.alpha);
        flow.x = flow.y = 0;
        flow.mark_seq = flow.next;
    }
    if (ack.payload_bytes > 0 && flow.una >= flow.cut_seq) {
        flow.window *= 1 - flow.alpha / 2;
        flow.target = flow.window;
        flow.cut_seq = flow.sent_end;
        if (flow.scores != kNone) scores_[flow.scores].cut_at = now;
    }
    const double payload = profile.payload_bytes;
    if (!window_is_used(flow, profile, newly)) return;
    if (flow.window < flow.target) {
        flow.window += newly * payload;
    } else if (flow.una >= flow.cut_seq) {
        flow.window += profile.additive_packets * payload * payload * newly / flow.window;
    }
}

void Core::swift(Flow& flow, const Profile& profile, const Packet& ack, u32 newly) {
    const double delay = static_cast<double>(now - ack.sent), payload = profile.payload_bytes;
    double target = static_cast<double>(profile.target_ps + profile.hop_ps * ack.hops);
    if (profile.flow_scale_ps > 0) {
        // Few packets in the window mean many flows: aim at a longer queue, so that they get their turn.
        const double steep = profile.flow_scale_ps /
                             (1 / std::sqrt(profile.flow_scale_min) - 1 / std::sqrt(profile.flow_scale_max));
        const double scaled = steep / std::sqrt(flow.window / payload) - steep / std::sqrt(profile.flow_scale_max);
        target += std::clamp(scaled, 0.0, profile.flow_scale_ps);
    }
    if (delay < target) {
        const double grown = profile.additive_packets * payload * newly;
        flow.window += flow.window >= payload ? grown * payload / flow.window : grown;
    } else if (now - flow.t0 >= static_cast<Time>(delay)) {
        flow.t0 = now;
        flow.window *= std::max(1 - profile.decrease * (delay - target) / delay, 1 - profile.max_decrease);
    }
}

// Spraying: marks say whether this path is bad, the delay whether the network is. A bad path is left, a full network
// is sent less.
void Core::sprayed(Flow& flow, const Profile& profile, const Packet& ack, u32 newly) {
    const double delay = static_cast<double>(now - ack.sent), payload = profile.payload_bytes;
    const double target = static_cast<double>(profile.target_ps);
    const bool marked = (ack.flags & kMarked) != 0;
    if (!marked) flow.recycle = ack.label;
    const bool told = (flow.count_c & 1) != 0;
    flow.count_c = 0;
    if (told) flow.window -= payload;
    if (!marked && delay < target) {
        const double room = (target - delay) / target;
        flow.window += profile.additive_packets * (1 + 3 * room) * payload * payload * newly / flow.window;
    } else if (!marked) {
        flow.window += 0.25 * profile.additive_packets * payload * payload * newly / flow.window;
    } else if (delay >= target && now - flow.t0 >= static_cast<Time>(delay)) {
        flow.t0 = now;
        flow.window *= std::max(1 - profile.decrease * (delay - target) / delay, 1 - profile.max_decrease);
    }
}

void Core::hpcc(u32 index, const Profile& profile, const Packet& ack, u32 packet) {
    Flow& flow = flows_[index];
    Telemetry& last = seen_[index];
    const Telemetry& fresh = telemetry_[packet];
    const double rtt = static_cast<double>(profile.base_rtt_ps);
    bool same = fresh.count == last.count && fresh.count > 0;
    for (u32 i = 0; same && i < fresh.count; ++i) same = fresh.hop[i].port == last.hop[i].port;
    if (!same) {
        last = fresh;
        return;
    }
    double busiest = 0, spell = rtt;
    for (u32 i = 0; i < fresh.count; ++i) {
        const double line = 65536.0 / ports[fresh.hop[i].port].cost;
        const double lasted = static_cast<double>(fresh.hop[i].at - last.hop[i].at);
        if (lasted <= 0) continue;
        const double sent = static_cast<double>(fresh.hop[i].wire_bytes - last.hop[i].wire_bytes) / lasted;
        const double queued = std::min(fresh.hop[i].queue_bytes, last.hop[i].queue_bytes);
        const double use = queued / (line * rtt) + sent / line;
        if (use > busiest) {
            busiest = use;
            spell = lasted;
        }
    }
    last = fresh;
    const double part = std::min(spell, rtt) / rtt;
    flow.alpha = (1 - part) * flow.alpha + part * busiest;
    const bool update = ack.ack > flow.mark_seq;
    const double over = flow.alpha / profile.target_utilisation;
    if (over >= 1 || flow.count_a >= static_cast<u32>(profile.max_stage)) {
        flow.window = flow.target / over + profile.additive_bytes;
        if (update) flow.count_a = 0;
    } else {
        flow.window = flow.target + profile.additive_bytes;
        if (update) ++flow.count_a;
    }
    limit(flow, profile);
    if (update) {
        flow.target = flow.window;
        flow.mark_seq = flow.next;
    }
    flow.rate = flow.window / rtt;
}

void Core::timely(Flow& flow, const Profile& profile, const Packet& ack) {
    const double rtt = static_cast<double>(now - ack.sent);
    if (flow.x != 0 && flow.una < flow.mark_seq) return;  // once a round trip
    flow.mark_seq = flow.next;
    if (flow.x == 0) {
        flow.x = rtt;
        return;
    }
    flow.y = profile.smoothing * flow.y + (1 - profile.smoothing) * (rtt - flow.x);
    flow.x = rtt;
    const double gradient = flow.y / static_cast<double>(profile.base_rtt_ps);
    const double step = profile.timely_Bps * kPerSecond;
    if (rtt < static_cast<double>(profile.low_ps)) {
        flow.rate += step;
    } else if (rtt > static_cast<double>(profile.high_ps)) {
        flow.rate *= 1 - profile.decrease * (1 - static_cast<double>(profile.high_ps) / rtt);
        flow.count_a = 0;
    } else if (gradient <= 0) {
        ++flow.count_a;
        flow.rate += (flow.count_a >= 5 ? 5 : 1) * step;
    } else {
        flow.rate *= 1 - std::min(profile.decrease * gradient, 0.5);
        flow.count_a = 0;
    }
}

// Whether the window is what holds the connection back; otherwise it must not grow (RFC 9438, 5.8).
bool Core::window_is_used(const Flow& flow, const Profile& profile, u32 newly) const {
    const double out = (flow.flying + newly + 1.0) * profile.payload_bytes;
    return flow.standing == Standing::blocked || out * (flow.window < flow.target ? 2 : 1) >= flow.window;
}

// CUBIC (RFC 9438). x: the window before the last cut, y: what Reno would have, alpha: the window after it, all in packets;
// t0: when that was.
void Core::cubic(Flow& flow, const Profile& profile, const Packet&, u32 newly) {
    if (!window_is_used(flow, profile, newly)) return;
    const double payload = profile.payload_bytes;
    if (flow.window < flow.target) {
        flow.window += newly * payload;
        return;
    }
    if (flow.una < flow.cut_seq) return;  // repairing: the window stays
    const double most = flow.x, window = flow.window / payload;
    const double root = std::cbrt(std::max(most - flow.alpha, 0.0) / profile.cubic_c);
    const auto curve = [&](double since) { return profile.cubic_c * std::pow(since - root, 3) + most; };
    const double since = static_cast<double>(now - flow.t0) * kPerSecond;
    const double gain = flow.y >= most ? 1.0 : 3 * (1 - profile.decrease) / (1 + profile.decrease);
    flow.y += gain * newly / window;
    if (curve(since) < flow.y) {
        flow.window = std::max(flow.window, flow.y * payload);
        return;
    }
    const double aim = std::clamp(curve(since + flow.rtt * kPerSecond), window, 1.5 * window);
    flow.window += newly * payload * (aim - window) / window;
}

void Core::on_loss(Flow& flow, const Profile& profile, bool timeout) {
    const bool again = timeout && flow.backoff > 1;  // the same loss as at the last timeout
    switch (static_cast<Transport>(profile.transport)) {
        case Transport::cubic:
            if (!again) {
                const double window = flow.window / profile.payload_bytes;
                flow.x = window < flow.x ? window * (1 + profile.decrease) / 2 : window;  // fast convergence
                flow.target = flow.window = std::max(flow.window * profile.decrease, 2.0 * profile.payload_bytes);
                flow.alpha = flow.y = flow.window / profile.payload_bytes;
                flow.t0 = now;
            }
            if (timeout) flow.window = profile.min_window_bytes;
            break;
        case Transport::dctcp:
            if (!again) flow.target = flow.window = std::max(flow.window / 2, 2.0 * profile.payload_bytes);
            if (timeout) flow.window = profile.min_window_bytes;
            break;
        case Transport::swift:
        case Transport::spray:
            if (now - flow.t0 < profile.base_rtt_ps) return;
            flow.t0 = now;
            flow.window *= 1 - profile.max_decrease;
            break;
        case Transport::custom:
            consult(static_cast<u32>(&flow - flows_.data()), profile, timeout ? SYNCLINE_TIMEOUT : SYNCLINE_LOSS, nullptr, 0);
            break;
        default: return;
    }
    limit(flow, profile);
}

}  // namespace syncline::packet

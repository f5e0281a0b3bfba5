// A steady course is not run twice. Two windows in a row in which no message began or ended and every connection under way
// moved as much show its rate; until the first message nears its end, or hosts post another, nothing new can be learned.
//
// Packets, queues and timers stay as they are: messages lose what would have been sent, and the clock outside goes on.
#include <algorithm>
#include <cmath>

#include "core.hpp"

namespace syncline::packet {

namespace {

constexpr Time kNever = std::numeric_limits<Time>::max();
constexpr i64 kRoundTrips = 8;     // of the shortest window
constexpr i64 kFewest = 32;        // packets of a connection in a window that says anything
constexpr double kDrift = 0.01;    // what the trend from window to window, continued, may come to

}  // namespace

void Core::watch_course(const Setup& setup) {
    const auto slots = [](const Profile& profile) { return profile.slot_ps > 0; };
    const bool exact = !setup.change_ps.empty() || setup.sample_ps > 0 || !setup.capture_port.empty() ||
                       std::any_of(profiles_.begin(), profiles_.end(), slots);
    if (exact || flows_.empty()) return;
    for (const Profile& profile : profiles_) steady_.least = std::max(steady_.least, kRoundTrips * profile.base_rtt_ps);
    steady_.look_at = 0;
}

// A window begins; without one before it, everything is noted as it is now.
void Core::open_window(Time width) {
    Steady& s = steady_;
    s.upset = false;
    s.width = width;
    s.began = now;
    s.look_at = now + width;
    if (s.first_ps == 0) {
        s.since = now;
        s.count = count;
        s.tally = tally;
        s.flow_tally = flow_tally;
        s.wire_bytes.clear();
        s.packets.clear();
        for (const Port& port : ports) {
            s.wire_bytes.push_back(port.wire_bytes);
            s.packets.push_back(port.packets);
        }
        s.moving.clear();
        s.limited.clear();
        for (u32 f = 0; f < flow_tally.size(); ++f) {
            if (flows_[f].rcv_next == flows_[f].end) continue;
            s.moving.push_back(f);
            s.limited.push_back(flows_[f].limited);
        }
    }
    s.delivered.clear();
    s.paced.clear();
    for (const u32 f : s.moving) {
        s.delivered.push_back(flows_[f].delivered);
        s.paced.push_back(pace(flows_[f]));
    }
}

void Core::look(Time until) {
    Steady& s = steady_;
    if (s.upset || s.moving.empty()) {
        s.first_ps = 0;
        open_window(s.least);
        return;
    }
    if (s.first_ps == 0) {
        s.first.clear();
        for (std::size_t i = 0; i < s.moving.size(); ++i) s.first.push_back(flows_[s.moving[i]].delivered - s.delivered[i]);
        s.first_ps = now - s.began;
        open_window(s.width);
        return;
    }
    const Time lasts = steady_ps();
    const bool enough = lasts >= s.width;
    if (enough) skip(lasts, until);
    s.first_ps = 0;
    if (s.upset) {
        open_window(s.least);
    } else {
        open_window(enough ? s.width : 2 * s.width);
    }
}

// How long the course goes on as in the last two windows; 0: the difference between them, continued until the first message
// nears its end, would come to more than what is allowed, of some connection or of all together.
Time Core::steady_ps() {
    Steady& s = steady_;
    s.rate.clear();
    const double first = static_cast<double>(s.first_ps), span = static_cast<double>(now - s.began);
    double lasts = 1e18, trend = 0, all_was = 0, all_is = 0, largest = 0;
    for (std::size_t i = 0; i < s.moving.size(); ++i) {
        const Flow& flow = flows_[s.moving[i]];
        const double payload = profiles_[flow.profile].payload_bytes;
        const i64 before = s.first[i], after = flow.delivered - s.delivered[i];
        if (flow.send_task != flow.rcv_task || flow.send_task == kNone) return 0;
        if (std::min(before, after) < kFewest * static_cast<i64>(payload)) return 0;
        const double was = static_cast<double>(before) / first, is = static_cast<double>(after) / span;
        const double rate = static_cast<double>(before + after) / (first + span);
        const double allowed = pace(flow);
        const double left = (static_cast<double>(flow.send_end) - flow.sent_end) * payload / rate;
        lasts = std::min(lasts, left - static_cast<double>(s.width));
        trend = std::max({trend, (std::fabs(is - was) - payload / span) / rate, std::fabs(allowed - s.paced[i]) / allowed});
        all_was += was;
        all_is += is;
        largest = std::max(largest, payload);
        s.rate.push_back(rate);
    }
    trend = std::max(trend, (std::fabs(all_is - all_was) - largest / span) / all_is);
    return lasts > 0 && trend * lasts <= 2 * kDrift * span ? static_cast<Time>(lasts) : 0;
}

// What its congestion control allows a connection, bytes per ps.
double Core::pace(const Flow& flow) const {
    const double window = flow.window < kNoWindow ? flow.window / static_cast<double>(profiles_[flow.profile].base_rtt_ps) : 1e9;
    return std::min(flow.rate, window);
}

// The clock outside goes on until so long from now, or until hosts post a message.
void Core::skip(Time lasts, Time until) {
    Steady& s = steady_;
    const Time stop = std::min(outside() + lasts, until);
    s.from = skipped_;
    s.skipping = true;
    while (s.skipping && !hosts_.empty() && hosts_.top().at <= stop) {
        skipped_ = hosts_.top().at - now;
        happen_inside();
    }
    if (!s.skipping) return;
    skipped_ = stop - now;
    settle();
    s.upset = false;
}

// Take what was skipped into account: before a message is posted, at the latest.
void Core::settle() {
    Steady& s = steady_;
    s.upset = true;
    if (!s.skipping) return;
    s.skipping = false;
    const double lasted = static_cast<double>(skipped_ - s.from);
    const double times = lasted / static_cast<double>(now - s.since);
    extrapolate(times);
    for (std::size_t i = 0; i < s.moving.size(); ++i) {
        Flow& flow = flows_[s.moving[i]];
        shorten(flow, static_cast<u32>(s.rate[i] * lasted / profiles_[flow.profile].payload_bytes + 0.5));
        flow.limited += static_cast<Time>(static_cast<double>(flow.limited - s.limited[i]) * times);
    }
}

// The message under way is shorter by so many packets that have not been sent.
void Core::shorten(Flow& flow, u32 packets) {
    const u32 task = flow.send_task;
    const u32 gone = std::min(packets, flow.send_end - flow.sent_end - 1);
    const i64 bytes = i64{gone} * profiles_[flow.profile].payload_bytes;
    task_bytes_[task] -= bytes;
    flow.end -= gone;
    flow.send_end -= gone;
    flow.rcv_end -= gone;
    for (u32 later = task_next_[task]; later != kNone; later = task_next_[later]) task_first_[later] -= gone;
    count.data_packets += gone;
    count.skipped_packets += gone;
    count.sent_bytes += bytes;
    count.delivered_bytes += bytes;
}

// Everything else that is counted goes on as since the first window began.
void Core::extrapolate(double times) {
    const Steady& s = steady_;
    const auto more = [times](auto is, auto was) { return static_cast<i64>(static_cast<double>(is - was) * times); };
    for (i64 Counters::*each :
         {&Counters::resent_packets, &Counters::control_packets, &Counters::hops, &Counters::marks, &Counters::trims,
          &Counters::drops, &Counters::lossless_drops, &Counters::errors, &Counters::dead, &Counters::pauses,
          &Counters::timeouts, &Counters::probes, &Counters::notices, &Counters::lost_bytes, &Counters::discarded_bytes}) {
        const i64 gained = more(count.*each, s.count.*each);
        count.*each += gained;
        if (each == &Counters::lost_bytes || each == &Counters::discarded_bytes) count.sent_bytes += gained;
    }
    for (std::size_t p = 0; p < ports.size(); ++p) {
        PortTally& sums = tally[p];
        const PortTally& was = s.tally[p];
        sums.drops += more(sums.drops, was.drops);
        sums.marks += more(sums.marks, was.marks);
        sums.trims += more(sums.trims, was.trims);
        sums.pauses += more(sums.pauses, was.pauses);
        sums.paused += more(sums.paused, was.paused);
        sums.skipped_bytes += more(ports[p].wire_bytes, s.wire_bytes[p]);
        sums.skipped_packets += more(ports[p].packets, s.packets[p]);
    }
    for (const u32 f : s.moving) {
        for (u32 FlowTally::*each :
             {&FlowTally::marks, &FlowTally::drops, &FlowTally::trims, &FlowTally::lost, &FlowTally::resent}) {
            flow_tally[f].*each += static_cast<u32>(more(flow_tally[f].*each, s.flow_tally[f].*each));
        }
    }
}

}  // namespace syncline::packet

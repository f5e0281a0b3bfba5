// From arrays to the engine's own state, every index checked.
#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#include "core.hpp"

namespace syncline::packet {

namespace {

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument("packet engine: " + text); }

void expect(bool good, const char* what, std::size_t row) {
    if (!good) refuse(std::string(what) + " " + std::to_string(row) + " is out of range");
}

// A bucket holds one or two hundred events when every endpoint sends at full rate: enough to fetch ahead, and sorted
// quickly. The calendar reaches past a hop.
int calendar_bits(const Setup& setup) {
    double fastest = 1, longest = 0;
    for (const double rate : setup.port_Bps) fastest = std::max(fastest, rate);
    for (const i64 latency : setup.port_latency_ps) longest = std::max(longest, static_cast<double>(latency));
    double bytes = 4096;
    for (const Profile& profile : setup.profiles) bytes = std::max(bytes, static_cast<double>(profile.payload_bytes));
    const double packet_ps = bytes / fastest * 1e12;
    const double width = 320 * packet_ps / (8.0 * std::max(setup.num_endpoints, 1));
    const double least = 2 * (std::min(longest, 5e6) + packet_ps) / 16384;
    return std::clamp(static_cast<int>(std::lround(std::log2(std::max({width, least, 1.0})))), 4, 20);
}

}  // namespace

Core::Core(const Setup& setup) : calendar_(calendar_bits(setup)), random_(setup.seed) {
    classes_ = setup.classes;
    profiles_ = setup.profiles;
    num_classes_ = static_cast<u32>(classes_.size());
    if (num_classes_ < 1 || num_classes_ > kMaxClasses) refuse("there must be 1 to 8 traffic classes");
    for (u32 c = 1; c < num_classes_; ++c) {
        if (classes_[c].weight > 0) weighted_ |= 1u << c;
    }
    for (std::size_t i = 0; i < profiles_.size(); ++i) {
        const Profile& profile = profiles_[i];
        const auto known = [this](int c) { return c >= 0 && c < static_cast<int>(num_classes_); };
        expect(known(profile.data_class) && known(profile.ack_class), "traffic class of profile", i);
        expect(profile.transport >= 0 && profile.transport <= static_cast<int>(Transport::custom), "transport of profile", i);
        expect(profile.payload_bytes > 0 && profile.header_bytes >= 0 && profile.ack_bytes > 0 && profile.ack_every > 0,
               "packet size of profile", i);
        expect(profile.timeout_ps > 0 && profile.rate_timer_ps > 0 && profile.alpha_timer_ps > 0 &&
                   profile.base_rtt_ps > 0 && profile.min_Bps > 0 && profile.min_window_bytes > 0,
               "timer or limit of profile", i);
        expect(profile.law != 0 || static_cast<Transport>(profile.transport) != Transport::custom, "law of profile", i);
        expect(profile.timeout_low_ps >= 0 && profile.reorder_ps >= 0 && profile.cnp_interval_ps >= 0 &&
                   profile.decrease_interval_ps > 0,
               "timer of profile", i);
        expect(!profile.tail_probe || static_cast<Recovery>(profile.recovery) == Recovery::selective,
               "tail probe (selective repeat only) of profile", i);
        const bool ordered = static_cast<Recovery>(profile.recovery) == Recovery::go_back_n;
        expect(!ordered || static_cast<Transport>(profile.transport) != Transport::pull, "recovery of profile", i);
        expect(profile.slot_ps == 0 || (profile.num_slots > 0 && profile.slot_ps > 0), "slots of profile", i);
    }
    expect(setup.routing >= 0 && setup.routing <= static_cast<int>(Routing::ugal), "routing", 0);
    routing_ = static_cast<Routing>(setup.routing);
    cut_through_ = setup.cut_through;
    credits_ = setup.credits;
    credit_bytes_ = static_cast<i64>(setup.credit_bytes);
    headroom_ = setup.headroom_bytes;
    ugal_bias_ = setup.ugal_bias;
    seed_ = setup.seed;
    take_ports(setup);
    take_flows(setup);
    table_bytes_ = ports.size() * (sizeof(Port) + num_classes_ * (sizeof(Queue) + sizeof(Ingress))) + flows_.size() * sizeof(Flow);
    take_ways(setup);
    if (setup.change_ps.empty()) foresee_ways();
    const auto on_way = [](const Flow& flow) { return flow.way != kNone; };
    looks_up_ = !scores_.empty() || !std::all_of(flows_.begin(), flows_.end(), on_way);
    take_tasks(setup);
    if (setup.sample_ps > 0) {
        sample_ps_ = setup.sample_ps;
        sample_port_.assign(setup.sample_port.begin(), setup.sample_port.end());
        sample_flow_.assign(setup.sample_flow.begin(), setup.sample_flow.end());
        for (const auto p : sample_port_) expect(p >= 0 && p < static_cast<std::int32_t>(ports.size()), "sampled port", 0);
        for (const auto f : sample_flow_) expect(f >= 0 && f < static_cast<std::int32_t>(flows_.size()), "sampled flow", 0);
        calendar_.push(0, event(Happens::misc, 0));
    }
    capture_most_ = setup.capture_most;
    for (const auto p : setup.capture_port) {
        expect(p >= 0 && p < static_cast<std::int32_t>(ports.size()), "captured port", 0);
        ports[static_cast<std::size_t>(p)].special |= kCaptured;
    }
    calendar_.push(kWatch, event(Happens::misc, 1));
    if (setup.skips_steady) watch_course(setup);
    start_ready();
    if (count.tasks_done == static_cast<i64>(task_over_.size())) state_ = State::finished;
}

void Core::take_ports(const Setup& setup) {
    const std::size_t num = setup.port_src.size(), num_switches = setup.switch_buffer_bytes.size();
    for (const double bytes : setup.switch_buffer_bytes) buffer_bytes_.push_back(static_cast<i64>(bytes));
    buffer_used_.assign(num_switches, 0);
    region_.assign(setup.switch_region.begin(), setup.switch_region.end());
    region_.resize(num_switches, 0);
    endpoints_.assign(static_cast<std::size_t>(setup.num_endpoints), Endpoint{});
    places_.assign(endpoints_.size(), Place{});
    Random salts(setup.seed ^ 0x5eed);
    for (std::size_t s = 0; s < num_switches; ++s) {
        salt_.push_back(salts.next());
        start_.push_back(salts.next());
    }
    ports.assign(num, Port{});
    signalled_.assign(num, -1);
    tally.assign(num, PortTally{});
    queues_.assign(num * num_classes_, Queue{});
    ingress_.assign(num * num_classes_, Ingress{});
    if (weighted_ != 0) deficit_.assign(num * num_classes_, 0);
    for (Ingress& in : ingress_) in.credit = credit_bytes_;
    std::vector<u32> num_down(endpoints_.size(), 0);
    const auto known = [&](std::int32_t device) {
        return device >= 0 ? static_cast<std::size_t>(device) < num_switches
                           : static_cast<std::size_t>(-1 - device) < endpoints_.size();
    };
    for (std::size_t p = 0; p < num; ++p) {
        expect(known(setup.port_src[p]) && known(setup.port_dst[p]), "end of port", p);
        expect(setup.port_back[p] >= 0 && static_cast<std::size_t>(setup.port_back[p]) < num, "other direction of port", p);
        expect(setup.port_latency_ps[p] >= 0, "latency of port", p);
        const double cost = 1e12 / setup.port_Bps[p] * 65536;
        expect(std::isfinite(cost) && cost >= 1 && cost < 4e9, "rate of port", p);
        Port& port = ports[p];
        port.latency = setup.port_latency_ps[p];
        port.cost = static_cast<u32>(std::lround(cost));
        port.to_endpoint = setup.port_dst[p] < 0;
        port.to = static_cast<u32>(port.to_endpoint ? -1 - setup.port_dst[p] : setup.port_dst[p]);
        port.owner = setup.port_src[p] < 0 ? kNone : static_cast<u32>(setup.port_src[p]);
        port.up = true;
        port.special = setup.port_loss[p] > 0 ? kLossy : 0;
        port.turn = static_cast<u8>(weighted_ != 0 ? std::countr_zero(weighted_) : 0);
        full_cost_.push_back(port.cost);
        back_.push_back(static_cast<u32>(setup.port_back[p]));
        loss_.push_back(setup.port_loss[p]);
        wires_.push_back({setup.port_src[p], setup.port_dst[p], setup.port_hops[p]});
        if (port.to_endpoint) {
            places_[port.to].down_port = ++num_down[port.to] == 1 && port.owner != kNone ? static_cast<u32>(p) : kNone;
        }
        if (port.owner == kNone) {
            const auto source = static_cast<std::size_t>(-1 - setup.port_src[p]);
            Endpoint& endpoint = endpoints_[source];
            const double bytes = profiles_.empty() ? 4096 : profiles_[0].payload_bytes + profiles_[0].header_bytes;
            const double total = (endpoint.pull_gap > 0 ? 1.0 / static_cast<double>(endpoint.pull_gap) : 0) +
                                 1.0 / (bytes * static_cast<double>(port.cost) / 65536);
            endpoint.pull_gap = static_cast<Time>(1.0 / total);
        }
    }
    find_routes();
    turn_.assign(routes.num_sets(), 0);
    for (u32 e = 0; e < endpoints_.size(); ++e) places_[e].group = routes.group(e);
    for (std::size_t i = 0; i < setup.change_ps.size(); ++i) {
        expect(setup.change_port[i] >= 0 && static_cast<std::size_t>(setup.change_port[i]) < num, "changed port", i);
        expect(setup.change_ps[i] >= 0 && setup.change_factor[i] >= 0, "change", i);
        calendar_.push(setup.change_ps[i], event(Happens::misc, static_cast<u32>(2 * i + 2)));
    }
    change_port_.assign(setup.change_port.begin(), setup.change_port.end());
    change_factor_.assign(setup.change_factor.begin(), setup.change_factor.end());
    change_reroute_.assign(setup.change_reroute_ps.begin(), setup.change_reroute_ps.end());
}

void Core::take_flows(const Setup& setup) {
    const std::size_t num = setup.flow_port.size();
    expect(num < kProbe, "connection", num);
    flows_.assign(std::max<std::size_t>(num, 1), Flow{});
    flow_tally.assign(num, FlowTally{});
    bool measured = false, own = false;
    for (std::size_t f = 0; f < num; ++f) {
        const auto port = static_cast<std::size_t>(setup.flow_port[f]);
        expect(setup.flow_port[f] >= 0 && port < ports.size() && ports[port].owner == kNone, "port of connection", f);
        expect(setup.flow_dst[f] >= 0 && setup.flow_dst[f] < setup.num_endpoints, "destination of connection", f);
        expect(setup.flow_profile[f] < profiles_.size(), "profile of connection", f);
        Flow& flow = flows_[f];
        flow.port = static_cast<u32>(port);
        flow.src = static_cast<u32>(-1 - wires_[port].src);
        flow.dst = static_cast<u32>(setup.flow_dst[f]);
        flow.label = mix(setup.flow_label[f], static_cast<u32>(setup.seed) + 1);
        flow.profile = setup.flow_profile[f];
        const Profile& profile = profiles_[flow.profile];
        flow.slot = static_cast<u32>(setup.flow_slot[f]) % static_cast<u32>(std::max(profile.num_slots, 1));
        flow.cap = setup.flow_cap_Bps[f] * 1e-12;
        flow.send_task = flow.una_task = flow.last_task = flow.rcv_task = kNone;
        flow.last_notice = flow.last_send = -1;
        flow.way = kNone;
        flow.scores = kNone;
        if (static_cast<Recovery>(profile.recovery) == Recovery::selective) {
            flow.scores = static_cast<u32>(scores_.size());
            scores_.emplace_back();
        }
        measured = measured || static_cast<Transport>(profile.transport) == Transport::hpcc;
        own = own || static_cast<Transport>(profile.transport) == Transport::custom;
    }
    if (own) memories_.resize(num);
    if (measured) {
        telemetry_.assign(1, Telemetry{});
        packets_.emplace_back();
        give_packet(0);
        num_packets_ = 0;
        seen_.assign(num, Telemetry{});
    }
}

void Core::take_ways(const Setup& setup) {
    if (setup.flow_way_start.empty() || routing_ != Routing::hash) return;
    for (std::size_t f = 0; f < setup.flow_port.size(); ++f) {
        const i64 first = setup.flow_way_start[f], last = setup.flow_way_start[f + 1];
        if (first == last) continue;
        flows_[f].way = static_cast<u32>(ways_.size());
        std::int32_t at = setup.port_dst[flows_[f].port];
        for (i64 i = first; i < last; ++i) {
            const auto port = static_cast<std::size_t>(setup.flow_way_port[static_cast<std::size_t>(i)]);
            expect(port < ports.size() && at >= 0 && setup.port_src[port] == at, "way of connection", f);
            at = setup.port_dst[port];
            ways_.push_back(static_cast<u32>(port));
        }
        expect(at == -1 - setup.flow_dst[f], "end of the way of connection", f);
        ways_.push_back(kNone);
    }
}

// Packets of one connection hash alike at every switch, and while nothing breaks that leads the same way every time: it is
// looked up once. Where links change, and for connections that change their label, every switch looks it up.
void Core::foresee_ways() {
    if (routing_ != Routing::hash) return;
    constexpr u32 kLongest = 64;
    for (Flow& flow : flows_) {
        const auto spread = static_cast<Spread>(profiles_[flow.profile].spread);
        if (flow.way != kNone || spread != Spread::flow || ports[flow.port].to_endpoint) continue;
        const std::size_t first = ways_.size();
        const u32 group = places_[flow.dst].group;
        u32 at = ports[flow.port].to, port = kNone;
        bool there = false;
        for (u32 hop = 0; hop < kLongest && !there; ++hop) {
            const u32 number = routes.set_of(at, group);
            there = number == Routes::kAttached;
            if (there) {
                const u32 only = places_[flow.dst].down_port;
                port = only != kNone ? only : routes.down(at, flow.dst, mix(flow.label, at));
            } else {
                const Routes::Set set = routes.set(number);
                if (set.count == 0) break;
                port = set.count == 1 ? routes.choices()[set.first] : by_hash(flow.label, at, set);
            }
            ways_.push_back(port);
            at = ports[port].to;
        }
        if (there) {
            ways_.push_back(kNone);
            flow.way = static_cast<u32>(first);
        } else {
            ways_.resize(first);
        }
    }
}

void Core::take_tasks(const Setup& setup) {
    const std::size_t num = setup.task_over.size();
    expect(num < kIndexMask, "task", num);
    task_over_.assign(setup.task_over.begin(), setup.task_over.end());
    task_bytes_.assign(setup.task_bytes.begin(), setup.task_bytes.end());
    task_delay_.assign(setup.task_delay_ps.begin(), setup.task_delay_ps.end());
    task_start_.assign(setup.task_start_ps.begin(), setup.task_start_ps.end());
    for (const double rate : setup.bus_Bps) bus_cost_.push_back(1e12 / rate);
    bus_busy_.assign(bus_cost_.size(), 0);
    path_start_.assign(setup.path_start.begin(), setup.path_start.end());
    path_bus_.assign(setup.path_bus.begin(), setup.path_bus.end());
    for (std::size_t i = 0; i < path_bus_.size(); ++i) {
        expect(path_bus_[i] >= 0 && static_cast<std::size_t>(path_bus_[i]) < bus_cost_.size(), "link of path entry", i);
    }
    task_next_.assign(num, kNone);
    task_first_.assign(num, 0);
    begin.assign(num, -1);
    end.assign(num, -1);
    last_sent.assign(num, -1);
    limited.assign(num, 0);
    task_waits_.assign(num, 0);
    after_start_.assign(num + 1, 0);
    const auto num_flows = static_cast<std::int64_t>(setup.flow_port.size());
    const auto num_paths = static_cast<std::int64_t>(path_start_.empty() ? 0 : path_start_.size() - 1);
    for (std::size_t t = 0; t < num; ++t) {
        expect(task_over_[t] >= 0 ? task_over_[t] < num_flows : -2 - task_over_[t] < num_paths, "way of task", t);
        expect(task_bytes_[t] >= 0 && task_delay_[t] >= 0 && task_start_[t] >= 0, "size or time of task", t);
        if (task_over_[t] >= 0) count.total_bytes += task_bytes_[t];
        task_waits_[t] = static_cast<u32>(setup.wait_start[t + 1] - setup.wait_start[t]);
        for (i64 i = setup.wait_start[t]; i < setup.wait_start[t + 1]; ++i) {
            const auto before = setup.wait_for[static_cast<std::size_t>(i)];
            expect(before >= 0 && static_cast<std::size_t>(before) < num, "what is waited for by task", t);
            ++after_start_[static_cast<std::size_t>(before) + 1];
        }
    }
    for (std::size_t t = 0; t < num; ++t) after_start_[t + 1] += after_start_[t];
    after_.resize(after_start_[num]);
    std::vector<u64> at(after_start_.begin(), after_start_.end() - 1);
    for (std::size_t t = 0; t < num; ++t) {
        for (i64 i = setup.wait_start[t]; i < setup.wait_start[t + 1]; ++i) {
            after_[at[static_cast<std::size_t>(setup.wait_for[static_cast<std::size_t>(i)])]++] = static_cast<u32>(t);
        }
    }
    for (std::size_t t = num; t-- > 0;) {
        if (task_waits_[t] == 0) ready_.push_back(static_cast<u32>(t));
    }
}

}  // namespace syncline::packet

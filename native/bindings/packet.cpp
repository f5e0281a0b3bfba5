// The Python face of the packet engine.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/packet.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace syncline::packet;

namespace {

using Doubles = In<double>;
using Ints = In<std::int32_t>;
using Longs = In<std::int64_t>;
using Bytes = In<std::uint8_t>;
using Labels = In<std::uint32_t>;

template <typename T>
Out<T> copy(std::span<const T> values) {
    return give(std::vector<T>(values.begin(), values.end()));
}

// A Setup whose arrays are kept alive by Python while the engine copies them.
struct Draft {
    Setup setup;
    std::vector<nb::object> held;
};

template <typename T>
std::span<const T> hold(Draft& draft, const In<T>& array) {
    draft.held.push_back(nb::cast(array));
    return view(array);
}

void network(Draft& d, const Ints& src, const Ints& dst, const Doubles& rate_Bps, const Longs& latency_ps,
             const Bytes& hops, const Doubles& loss, const Ints& back, const Doubles& buffer_bytes, const Ints& region,
             std::int32_t num_endpoints) {
    const std::size_t num = src.size();
    if (dst.size() != num || rate_Bps.size() != num || latency_ps.size() != num || hops.size() != num ||
        loss.size() != num || back.size() != num) {
        throw std::invalid_argument("packet engine: columns of ports differ in length");
    }
    d.setup.port_src = hold(d, src);
    d.setup.port_dst = hold(d, dst);
    d.setup.port_Bps = hold(d, rate_Bps);
    d.setup.port_latency_ps = hold(d, latency_ps);
    d.setup.port_hops = hold(d, hops);
    d.setup.port_loss = hold(d, loss);
    d.setup.port_back = hold(d, back);
    d.setup.switch_buffer_bytes = hold(d, buffer_bytes);
    d.setup.switch_region = hold(d, region);
    d.setup.num_endpoints = num_endpoints;
}

void connections(Draft& d, const Ints& port, const Ints& dst, const Bytes& profile, const Ints& slot,
                 const Labels& label, const Doubles& cap_Bps, const Longs& way_start, const Ints& way_port) {
    const std::size_t num = port.size();
    if (dst.size() != num || profile.size() != num || slot.size() != num || label.size() != num || cap_Bps.size() != num) {
        throw std::invalid_argument("packet engine: columns of connections differ in length");
    }
    if (way_start.size() != num + 1 || way_start.data()[0] != 0 ||
        !std::is_sorted(way_start.data(), way_start.data() + num + 1) ||
        way_start.data()[num] != static_cast<std::int64_t>(way_port.size())) {
        throw std::invalid_argument("packet engine: rows of ways do not fit their ports");
    }
    d.setup.flow_port = hold(d, port);
    d.setup.flow_dst = hold(d, dst);
    d.setup.flow_profile = hold(d, profile);
    d.setup.flow_slot = hold(d, slot);
    d.setup.flow_label = hold(d, label);
    d.setup.flow_cap_Bps = hold(d, cap_Bps);
    d.setup.flow_way_start = hold(d, way_start);
    d.setup.flow_way_port = hold(d, way_port);
}

void buses(Draft& d, const Doubles& rate_Bps, const Longs& path_start, const Ints& path_bus) {
    d.setup.bus_Bps = hold(d, rate_Bps);
    d.setup.path_start = hold(d, path_start);
    d.setup.path_bus = hold(d, path_bus);
}

void tasks(Draft& d, const Ints& over, const Longs& size_bytes, const Longs& delay_ps, const Longs& start_ps,
           const Longs& wait_start, const Ints& wait_for) {
    const std::size_t num = over.size();
    if (size_bytes.size() != num || delay_ps.size() != num || start_ps.size() != num || wait_start.size() != num + 1 ||
        wait_start.data()[0] != 0 || wait_start.data()[num] != static_cast<std::int64_t>(wait_for.size())) {
        throw std::invalid_argument("packet engine: columns of tasks differ in length");
    }
    d.setup.task_over = hold(d, over);
    d.setup.task_bytes = hold(d, size_bytes);
    d.setup.task_delay_ps = hold(d, delay_ps);
    d.setup.task_start_ps = hold(d, start_ps);
    d.setup.wait_start = hold(d, wait_start);
    d.setup.wait_for = hold(d, wait_for);
}

void changes(Draft& d, const Longs& time_ps, const Ints& port, const Doubles& factor, const Longs& reroute_ps) {
    if (port.size() != time_ps.size() || factor.size() != time_ps.size() || reroute_ps.size() != time_ps.size()) {
        throw std::invalid_argument("packet engine: columns of changes differ in length");
    }
    d.setup.change_ps = hold(d, time_ps);
    d.setup.change_port = hold(d, port);
    d.setup.change_factor = hold(d, factor);
    d.setup.change_reroute_ps = hold(d, reroute_ps);
}

void sampling(Draft& d, std::int64_t every_ps, const Ints& port, const Ints& flow) {
    d.setup.sample_ps = every_ps;
    d.setup.sample_port = hold(d, port);
    d.setup.sample_flow = hold(d, flow);
}

void capture(Draft& d, const Ints& port, std::int64_t most) {
    d.setup.capture_port = hold(d, port);
    d.setup.capture_most = most;
}

void rules(Draft& d, std::vector<Profile> profiles, std::vector<ClassRule> classes, int routing, bool cut_through,
           double credit_bytes, double ugal_bias, std::int64_t headroom_bytes, std::uint64_t seed) {
    d.setup.profiles = std::move(profiles);
    d.setup.classes = std::move(classes);
    d.setup.routing = routing;
    d.setup.cut_through = cut_through;
    d.setup.credits = credit_bytes > 0;
    d.setup.credit_bytes = credit_bytes;
    d.setup.ugal_bias = ugal_bias;
    d.setup.headroom_bytes = headroom_bytes;
    d.setup.seed = seed;
}

nb::dict columns(const Engine& engine) {
    PortColumns found = engine.ports();
    nb::dict table;
    table["wire_bytes"] = give(std::move(found.wire_bytes));
    table["packets"] = give(std::move(found.packets));
    table["drops"] = give(std::move(found.drops));
    table["marks"] = give(std::move(found.marks));
    table["trims"] = give(std::move(found.trims));
    table["pauses"] = give(std::move(found.pauses));
    table["paused_ps"] = give(std::move(found.paused_ps));
    table["peak_bytes"] = give(std::move(found.peak_bytes));
    table["booked_ps"] = give(std::move(found.booked_ps));
    return table;
}

nb::dict flow_columns(const Engine& engine) {
    FlowColumns found = engine.flows();
    nb::dict table;
    table["marks"] = give(std::move(found.marks));
    table["drops"] = give(std::move(found.drops));
    table["trims"] = give(std::move(found.trims));
    table["lost"] = give(std::move(found.lost));
    table["resent"] = give(std::move(found.resent));
    return table;
}

nb::dict counters(const Engine& engine) {
    const Counters& found = engine.counters();
    nb::dict table;
    table["events"] = found.events;
    table["data_packets"] = found.data_packets;
    table["resent_packets"] = found.resent_packets;
    table["control_packets"] = found.control_packets;
    table["hops"] = found.hops;
    table["marks"] = found.marks;
    table["trims"] = found.trims;
    table["drops"] = found.drops;
    table["lossless_drops"] = found.lossless_drops;
    table["errors"] = found.errors;
    table["dead"] = found.dead;
    table["pauses"] = found.pauses;
    table["timeouts"] = found.timeouts;
    table["probes"] = found.probes;
    table["notices"] = found.notices;
    table["sent_bytes"] = found.sent_bytes;
    table["delivered_bytes"] = found.delivered_bytes;
    table["lost_bytes"] = found.lost_bytes;
    table["discarded_bytes"] = found.discarded_bytes;
    table["flying_bytes"] = found.flying_bytes;
    table["total_bytes"] = found.total_bytes;
    table["tasks_done"] = found.tasks_done;
    table["peak_packets"] = found.peak_packets;
    table["skipped_packets"] = found.skipped_packets;
    return table;
}

nb::dict samples(const Engine& engine) {
    Samples found = engine.samples();
    nb::dict table;
    table["time_ps"] = give(std::move(found.time_ps));
    table["queue_bytes"] = give(std::move(found.queue_bytes));
    table["wire_bytes"] = give(std::move(found.wire_bytes));
    table["marks"] = give(std::move(found.marks));
    table["paused"] = give(std::move(found.paused));
    table["flow_Bps"] = give(std::move(found.flow_Bps));
    table["flow_window_bytes"] = give(std::move(found.flow_window_bytes));
    table["flow_bytes"] = give(std::move(found.flow_bytes));
    return table;
}

nb::dict captured(const Engine& engine) {
    Captured found = engine.captured();
    nb::dict table;
    table["time_ps"] = give(std::move(found.time_ps));
    table["port"] = give(std::move(found.port));
    table["flow"] = give(std::move(found.flow));
    table["seq"] = give(std::move(found.seq));
    table["ack"] = give(std::move(found.ack));
    table["wire_bytes"] = give(std::move(found.wire_bytes));
    table["payload_bytes"] = give(std::move(found.payload_bytes));
    table["kind"] = give(std::move(found.kind));
    table["flags"] = give(std::move(found.flags));
    table["traffic_class"] = give(std::move(found.traffic_class));
    return table;
}

}  // namespace

NB_MODULE(packet, m) {
    m.doc() = "The packet engine of syncline; use the typed functions in syncline.sim.packet instead.";
    nb::class_<Profile>(m, "Profile", "How a group of connections sends.")
        .def(nb::init<>())
        .def_rw("transport", &Profile::transport)
        .def_rw("recovery", &Profile::recovery)
        .def_rw("spread", &Profile::spread)
        .def_rw("data_class", &Profile::data_class)
        .def_rw("ack_class", &Profile::ack_class)
        .def_rw("payload_bytes", &Profile::payload_bytes)
        .def_rw("header_bytes", &Profile::header_bytes)
        .def_rw("ack_bytes", &Profile::ack_bytes)
        .def_rw("ack_every", &Profile::ack_every)
        .def_rw("duplicate_threshold", &Profile::duplicate_threshold)
        .def_rw("window_bytes", &Profile::window_bytes)
        .def_rw("min_window_bytes", &Profile::min_window_bytes)
        .def_rw("max_window_bytes", &Profile::max_window_bytes)
        .def_rw("start_Bps", &Profile::start_Bps)
        .def_rw("min_Bps", &Profile::min_Bps)
        .def_rw("timeout_ps", &Profile::timeout_ps)
        .def_rw("timeout_low_ps", &Profile::timeout_low_ps)
        .def_rw("few_packets", &Profile::few_packets)
        .def_rw("tail_probe", &Profile::tail_probe)
        .def_rw("finds_lost_repeats", &Profile::finds_lost_repeats)
        .def_rw("reorder_ps", &Profile::reorder_ps)
        .def_rw("window_follows_rate", &Profile::window_follows_rate)
        .def_rw("clamps_target", &Profile::clamps_target)
        .def_rw("cuts_on_timer", &Profile::cuts_on_timer)
        .def_rw("law", &Profile::law)
        .def_rw("flowlet_gap_ps", &Profile::flowlet_gap_ps)
        .def_rw("base_rtt_ps", &Profile::base_rtt_ps)
        .def_rw("gain", &Profile::gain)
        .def_rw("alpha_timer_ps", &Profile::alpha_timer_ps)
        .def_rw("rate_timer_ps", &Profile::rate_timer_ps)
        .def_rw("cnp_interval_ps", &Profile::cnp_interval_ps)
        .def_rw("decrease_interval_ps", &Profile::decrease_interval_ps)
        .def_rw("byte_counter", &Profile::byte_counter)
        .def_rw("fast_stages", &Profile::fast_stages)
        .def_rw("additive_Bps", &Profile::additive_Bps)
        .def_rw("hyper_Bps", &Profile::hyper_Bps)
        .def_rw("target_ps", &Profile::target_ps)
        .def_rw("hop_ps", &Profile::hop_ps)
        .def_rw("additive_packets", &Profile::additive_packets)
        .def_rw("decrease", &Profile::decrease)
        .def_rw("max_decrease", &Profile::max_decrease)
        .def_rw("flow_scale_ps", &Profile::flow_scale_ps)
        .def_rw("flow_scale_min", &Profile::flow_scale_min)
        .def_rw("flow_scale_max", &Profile::flow_scale_max)
        .def_rw("target_utilisation", &Profile::target_utilisation)
        .def_rw("max_stage", &Profile::max_stage)
        .def_rw("additive_bytes", &Profile::additive_bytes)
        .def_rw("low_ps", &Profile::low_ps)
        .def_rw("high_ps", &Profile::high_ps)
        .def_rw("smoothing", &Profile::smoothing)
        .def_rw("timely_Bps", &Profile::timely_Bps)
        .def_rw("cubic_c", &Profile::cubic_c)
        .def_rw("slot_ps", &Profile::slot_ps)
        .def_rw("guard_ps", &Profile::guard_ps)
        .def_rw("num_slots", &Profile::num_slots);
    nb::class_<ClassRule>(m, "ClassRule", "What ports do with one traffic class.")
        .def(nb::init<>())
        .def_rw("lossless", &ClassRule::lossless)
        .def_rw("trims", &ClassRule::trims)
        .def_rw("trim_tail", &ClassRule::trim_tail)
        .def_rw("limit_bytes", &ClassRule::limit_bytes)
        .def_rw("alpha", &ClassRule::alpha)
        .def_rw("mark_low_bytes", &ClassRule::mark_low_bytes)
        .def_rw("mark_high_bytes", &ClassRule::mark_high_bytes)
        .def_rw("mark_probability", &ClassRule::mark_probability)
        .def_rw("weight", &ClassRule::weight)
        .def_rw("pause_bytes", &ClassRule::pause_bytes)
        .def_rw("pause_alpha", &ClassRule::pause_alpha)
        .def_rw("resume_gap_bytes", &ClassRule::resume_gap_bytes);
    nb::class_<Draft>(m, "Draft", "What a run needs, part by part.")
        .def(nb::init<>())
        .def("network", &network, "src"_a.noconvert(), "dst"_a.noconvert(), "rate_Bps"_a.noconvert(),
             "latency_ps"_a.noconvert(), "hops"_a.noconvert(), "loss"_a.noconvert(), "back"_a.noconvert(),
             "buffer_bytes"_a.noconvert(), "region"_a.noconvert(), "num_endpoints"_a)
        .def("connections", &connections, "port"_a.noconvert(), "dst"_a.noconvert(), "profile"_a.noconvert(),
             "slot"_a.noconvert(), "label"_a.noconvert(), "cap_Bps"_a.noconvert(), "way_start"_a.noconvert(),
             "way_port"_a.noconvert())
        .def("buses", &buses, "rate_Bps"_a.noconvert(), "path_start"_a.noconvert(), "path_bus"_a.noconvert())
        .def("tasks", &tasks, "over"_a.noconvert(), "size_bytes"_a.noconvert(), "delay_ps"_a.noconvert(),
             "start_ps"_a.noconvert(), "wait_start"_a.noconvert(), "wait_for"_a.noconvert())
        .def("changes", &changes, "time_ps"_a.noconvert(), "port"_a.noconvert(), "factor"_a.noconvert(),
             "reroute_ps"_a.noconvert())
        .def("sampling", &sampling, "every_ps"_a, "port"_a.noconvert(), "flow"_a.noconvert())
        .def("capture", &capture, "port"_a.noconvert(), "most"_a)
        .def("skip_steady", [](Draft& d) { d.setup.skips_steady = true; })
        .def("rules", &rules, "profiles"_a, "classes"_a, "routing"_a, "cut_through"_a, "credit_bytes"_a, "ugal_bias"_a,
             "headroom_bytes"_a, "seed"_a);
    nb::class_<Engine>(m, "Engine", "A run: advance it in slices, then read what happened.")
        .def("__init__",
             [](Engine* self, const Draft& draft) {
                 nb::gil_scoped_release release;
                 new (self) Engine(draft.setup);
             },
             "draft"_a)
        .def(
            "advance",
            [](Engine& self, std::int64_t until_ps, std::int64_t max_events) {
                nb::gil_scoped_release release;
                return static_cast<int>(self.advance(until_ps, max_events));
            },
            "until_ps"_a, "max_events"_a, "Return 0 running, 1 finished, 2 deadlock, 3 stalled.")
        .def_prop_ro("now_ps", &Engine::now_ps)
        .def("counters", &counters)
        .def("begin_ps", [](const Engine& self) { return copy(self.begin_ps()); })
        .def("end_ps", [](const Engine& self) { return copy(self.end_ps()); })
        .def("last_sent_ps", [](const Engine& self) { return copy(self.last_sent_ps()); })
        .def("limited_ps", [](const Engine& self) { return copy(self.limited_ps()); })
        .def("ports", &columns)
        .def("flows", &flow_columns)
        .def("samples", &samples)
        .def("captured", &captured)
        .def("cycle", [](const Engine& self) { return give(self.cycle()); })
        .def("next_ports",
             [](const Engine& self, std::int32_t from_switch, std::int32_t endpoint) {
                 return give(self.next_ports(from_switch, endpoint));
             },
             "from_switch"_a, "endpoint"_a);
}

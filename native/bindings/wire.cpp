// The Python face of the transport. Memory that is sent or received is held by the caller until it is waited for.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/wire.hpp"

namespace nb = nanobind;
namespace wire = syncline::wire;
using namespace nb::literals;

namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Room = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Said = std::tuple<int, int, int, std::string>;  // status, rank, parameter, text

Said said(const wire::Outcome& outcome) {
    return {static_cast<int>(outcome.status), outcome.rank, outcome.parameter, outcome.text};
}

void make_wire(wire::Wire* self, int rank, int size, const std::vector<std::pair<std::string, std::string>>& rails,
               const nb::bytes& secret, int connections, int threads, std::uint32_t frame_bytes, double stall_s,
               double give_up_s, std::uint32_t lead_bytes, std::uint32_t unsent_bytes) {
    wire::Options options;
    options.rank = rank;
    options.size = size;
    for (const auto& [address, interface] : rails) options.rails.push_back({address, interface});
    const auto* bytes = static_cast<const std::uint8_t*>(secret.data());
    options.secret.assign(bytes, bytes + secret.size());
    options.connections = connections;
    options.threads = threads;
    options.frame_bytes = frame_bytes;
    options.stall_s = stall_s;
    options.give_up_s = give_up_s;
    options.lead_bytes = lead_bytes;
    options.unsent_bytes = unsent_bytes;
    new (self) wire::Wire(std::move(options));
}

void connect(wire::Wire& self, int peer, const std::vector<std::pair<std::string, std::uint16_t>>& rails) {
    std::vector<wire::Endpoint> endpoints;
    for (const auto& [address, port] : rails) endpoints.push_back({address, port});
    self.connect(peer, endpoints);
}

// ("block", bits, block), ("sign", block) or ("cast", kind), as numbers.
wire::Coder coder(const std::string& family, const std::vector<std::int64_t>& numbers) {
    wire::Coder made;
    const auto number = [&](std::size_t k) {
        if (k >= numbers.size()) throw std::invalid_argument("a codec lacks a parameter");
        return numbers[k];
    };
    if (family == "block") {
        made.family = wire::Coder::Family::block;
        made.quantiser = {static_cast<int>(number(0)), number(1)};
    } else if (family == "sign") {
        made.family = wire::Coder::Family::sign;
        made.block = number(0);
    } else if (family == "cast") {
        made.cast = static_cast<syncline::codec::Short>(number(0));
    } else {
        throw std::invalid_argument("a lane has no codec family \"" + family + "\"");
    }
    return made;
}

std::unique_ptr<wire::Lane> lane(wire::Wire& self, std::uint32_t tag, std::vector<std::int64_t> bounds,
                                 std::vector<std::int64_t> payload_bytes, const std::string& family,
                                 const std::vector<std::int64_t>& numbers, bool scatter_only, int priority,
                                 std::uint32_t codec, std::uint32_t layout, int origin,
                                 std::vector<std::int64_t> ends, std::int64_t offset) {
    wire::LaneSpec spec;
    spec.tag = tag;
    spec.bounds = std::move(bounds);
    spec.payload_bytes = std::move(payload_bytes);
    spec.coder = coder(family, numbers);
    spec.scatter_only = scatter_only;
    spec.priority = priority;
    spec.codec = codec;
    spec.layout = layout;
    spec.origin = origin;
    spec.ends = std::move(ends);
    spec.offset = offset;
    return self.lane(std::move(spec));
}

void post(wire::Lane& self, const Floats& values, const std::optional<Floats>& residual, std::uint32_t sequence,
          std::uint32_t step, float scale, bool fail,
          const std::optional<std::pair<int, int>>& trouble) {
    wire::Posting posting;
    posting.values = values.data();
    posting.residual = residual ? residual->data() : nullptr;
    posting.sequence = sequence;
    posting.step = step;
    posting.scale = scale;
    posting.fail = fail;
    posting.trouble = trouble;
    nb::gil_scoped_release release;
    self.post(std::move(posting));
}

void take_back(wire::Lane& self, const Floats& values, const Floats& residual) {
    nb::gil_scoped_release release;
    self.take_back(values.data(), residual.data());
}

std::vector<std::tuple<int, int, double, double, std::int64_t>> spans(wire::Lane& self) {
    std::vector<std::tuple<int, int, double, double, std::int64_t>> all;
    for (const auto& span : self.spans()) {
        all.emplace_back(static_cast<int>(span.work), span.peer, span.began_s, span.ended_s, span.size_bytes);
    }
    return all;
}

using Line = std::tuple<int, int, int, bool, bool, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                        std::uint64_t, double>;

std::vector<Line> lines(const wire::Wire& self) {
    std::vector<Line> all;
    for (const auto& line : self.lines()) {
        all.emplace_back(line.peer, line.rail, line.index, line.up, line.stalled, line.sent_bytes, line.received_bytes,
                         line.resent_frames, line.wrong_frames, line.num_resets, line.rate_Bps);
    }
    return all;
}

std::vector<std::tuple<double, int, int, std::string>> events(wire::Wire& self) {
    std::vector<std::tuple<double, int, int, std::string>> all;
    for (const auto& event : self.events()) all.emplace_back(event.time_s, event.peer, event.rail, event.what);
    return all;
}

}  // namespace

NB_MODULE(wire, m) {
    nb::set_leak_warnings(false);  // a wire that is still open when the interpreter ends
    m.doc() = "The native transport; use syncline.runtime.sync.native_wire instead.";
    nb::class_<wire::Lane>(m, "Lane", "One exchange that is repeated; executed on the wire's threads.")
        .def("post", &post, "values"_a.noconvert(), "residual"_a.noconvert().none(), "sequence"_a, "step"_a,
             "scale"_a, "fail"_a, "trouble"_a.none(), "Begin; the memory is in use until wait_done returns.")
        .def("wait_reduced", [](wire::Lane& self, double timeout_s) {
                wire::Outcome outcome;
                {
                    nb::gil_scoped_release release;
                    outcome = self.wait_reduced(timeout_s);
                }
                return said(outcome);
            }, "timeout_s"_a, "Wait until the sum is made; return (status, rank, parameter, text).")
        .def("wait_done", [](wire::Lane& self, double timeout_s) {
                wire::Outcome outcome;
                {
                    nb::gil_scoped_release release;
                    outcome = self.wait_done(timeout_s);
                }
                return said(outcome);
            }, "timeout_s"_a, "Wait until all is done; return (status, rank, parameter, text).")
        .def("take_back", &take_back, "values"_a.noconvert(), "residual"_a.noconvert(),
             "Make the residual what it was before the last post, but for rounding.")
        .def("spans", &spans, "Return (work, peer, began_s, ended_s, bytes) since the last post.")
        .def_prop_ro("sent_bytes", &wire::Lane::sent_bytes, "What one run sends.");
    nb::class_<wire::Wire>(m, "Wire", "A transport between the ranks of a team, with threads of its own.")
        .def("__init__", &make_wire, "rank"_a, "size"_a, "rails"_a, "secret"_a, "connections"_a = 1, "threads"_a = 1,
             "frame_bytes"_a = 128u << 10, "stall_s"_a = 0.2, "give_up_s"_a = 1.0,
             "lead_bytes"_a = 512u << 10, "unsent_bytes"_a = 512u << 10)
        .def_prop_ro("ports", &wire::Wire::ports, "Where each rail listens.")
        .def("connect", &connect, "peer"_a, "rails"_a, "Say where a peer listens, (address, port) by rail.")
        .def("wait_connected", &wire::Wire::wait_connected, "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>(),
             "Wait until every peer is reached on some rail; False when it took longer.")
        .def("open", [](wire::Wire& self, std::uint32_t tag, int peer, const Room& room) {
                self.open(tag, peer, room.data(), room.size());
            }, "tag"_a, "peer"_a, "room"_a.noconvert(), "Say where a message goes.")
        .def("send", [](wire::Wire& self, std::uint32_t tag, int peer, const Room& data, int priority) {
                self.send(tag, peer, data.data(), data.size(), priority);
            }, "tag"_a, "peer"_a, "data"_a.noconvert(), "priority"_a = 0, "Begin to send.")
        .def("wait", [](wire::Wire& self, std::uint32_t tag, int peer, double timeout_s) {
                wire::Outcome outcome;
                {
                    nb::gil_scoped_release release;
                    outcome = self.wait(tag, peer, timeout_s);
                }
                return said(outcome);
            }, "tag"_a, "peer"_a, "timeout_s"_a, "Wait for a message.")
        .def("finish", [](wire::Wire& self, std::uint32_t tag, double timeout_s) {
                wire::Outcome outcome;
                {
                    nb::gil_scoped_release release;
                    outcome = self.finish(tag, timeout_s);
                }
                return said(outcome);
            }, "tag"_a, "timeout_s"_a, "Wait until what was sent under a tag has been received.")
        .def("lane", &lane, "tag"_a, "bounds"_a, "payload_bytes"_a, "family"_a, "numbers"_a,
             "scatter_only"_a, "priority"_a, "codec"_a, "layout"_a, "origin"_a, "ends"_a, "offset"_a,
             "Return a lane with its buffers.")
        .def("lines", &lines, "Return (peer, rail, index, up, stalled, sent, received, resent, wrong, resets, rate).")
        .def("events", &events, "Return (time_s, peer, rail, what) since the last call; -1: none in particular.")
        .def_prop_ro("num_strangers", &wire::Wire::num_strangers, "Who was turned away.")
        .def_prop_ro("cpu_s", &wire::Wire::cpu_s, "Processor time of the wire's threads.")
        .def("break_off", &wire::Wire::break_off, "text"_a, nb::call_guard<nb::gil_scoped_release>(),
             "End every wait with this text.")
        .def("close", &wire::Wire::close, "patience_s"_a, nb::call_guard<nb::gil_scoped_release>(),
             "Send what is under way, say goodbye, end the threads.");
}

// The Python face of the counter sampler.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/counter_sampler.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using syncline::CounterSampler;

using Taken = std::tuple<Out<std::int64_t>, Out<std::uint64_t>, std::uint64_t, std::uint64_t, std::uint64_t, double>;

// Rows of (socket, interface): those of one socket stand together.
void make(CounterSampler* self, const In<std::int32_t>& socket, const In<std::int32_t>& interface,
          std::int64_t period_ns, std::size_t num_rows) {
    std::vector<syncline::SampledGroup> groups;
    for (std::size_t i = 0; i < std::min(socket.size(), interface.size()); ++i) {
        if (groups.empty() || groups.back().socket != socket.data()[i]) groups.push_back({socket.data()[i], {}});
        groups.back().interfaces.push_back(static_cast<std::uint32_t>(interface.data()[i]));
    }
    new (self) CounterSampler(std::move(groups), period_ns, num_rows);
}

Taken take(CounterSampler& sampler) {
    syncline::SampledRows rows;
    {
        nb::gil_scoped_release release;
        rows = sampler.take();
    }
    return {give(std::move(rows.time_ns)), give(std::move(rows.counter)), rows.num_lost, rows.num_late, rows.num_failed,
            rows.cpu_s};
}

}  // namespace

NB_MODULE(sampler, m) {
    m.doc() = "The 1 ms loop of syncline.watch; use syncline.watch.sampler instead.";
    nb::class_<CounterSampler>(m, "CounterSampler", "Reads byte counters of interfaces in a thread of its own.")
        .def("__init__", &make, "socket"_a.noconvert(), "interface"_a.noconvert(), "period_ns"_a, "num_rows"_a)
        .def("take", &take, "Return (time_ns, counters row by row, lost, late, failed, cpu_s) since the last call.")
        .def("stop", &CounterSampler::stop, nb::call_guard<nb::gil_scoped_release>(), "End the thread.")
        .def_prop_ro("width", &CounterSampler::width, "Counters in a row: two of each interface.");
}

// The Python face of the flow engine.
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "syncline/flow.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Doubles = In<double>;
using Indices = In<std::int32_t>;
using Starts = In<std::int64_t>;
using Flags = In<std::uint8_t>;

// begin_s, end_s, path, bottleneck, link_bytes, num_solves, then the samples: link, begin_s, end_s, rate_Bps.
using Answer = std::tuple<Out<double>, Out<double>, Out<std::int32_t>, Out<std::int32_t>, Out<double>, std::int64_t,
                          Out<std::int32_t>, Out<double>, Out<double>, Out<double>>;

Answer run_flows(const Doubles& capacity_Bps, const Starts& path_start, const Indices& path_link,
                 const Doubles& path_share, const Indices& first_path, const Indices& num_paths,
                 const Doubles& size_bytes, const Doubles& delay_s, const Doubles& start_s, const Doubles& weight,
                 const Doubles& cap_Bps, const Flags& priority, const Starts& wait_start, const Indices& wait_for,
                 const Doubles& change_s, const Indices& change_link, const Doubles& change_Bps,
                 const Doubles& reroute_s, const Indices& reroute_task, const Indices& reroute_path,
                 const Indices& tenant, const Doubles& guarantee, const Doubles& burst_bytes, bool record) {
    const syncline::TaskSet tasks{view(capacity_Bps), view(path_start),  view(path_link),    view(path_share),
                                  view(first_path),   view(num_paths),   view(size_bytes),   view(delay_s),
                                  view(start_s),      view(weight),      view(cap_Bps),      view(priority),
                                  view(wait_start),   view(wait_for),    view(change_s),     view(change_link),
                                  view(change_Bps),   view(reroute_s),   view(reroute_task), view(reroute_path),
                                  view(tenant),       view(guarantee),   view(burst_bytes), record};
    syncline::Course course;
    {
        nb::gil_scoped_release release;
        syncline::validate(tasks);
        course = syncline::run_flows(tasks);
    }
    return {give(std::move(course.begin_s)),      give(std::move(course.end_s)),
            give(std::move(course.path)),         give(std::move(course.bottleneck)),
            give(std::move(course.link_bytes)),   course.num_solves,
            give(std::move(course.sample_link)),  give(std::move(course.sample_begin_s)),
            give(std::move(course.sample_end_s)), give(std::move(course.sample_Bps))};
}

}  // namespace

void bind_flow(nb::module_& m) {
    m.def("run_flows", &run_flows, "capacity_Bps"_a.noconvert(), "path_start"_a.noconvert(), "path_link"_a.noconvert(),
          "path_share"_a.noconvert(), "first_path"_a.noconvert(), "num_paths"_a.noconvert(), "size_bytes"_a.noconvert(),
          "delay_s"_a.noconvert(), "start_s"_a.noconvert(), "weight"_a.noconvert(), "cap_Bps"_a.noconvert(),
          "priority"_a.noconvert(), "wait_start"_a.noconvert(), "wait_for"_a.noconvert(), "change_s"_a.noconvert(),
          "change_link"_a.noconvert(), "change_Bps"_a.noconvert(), "reroute_s"_a.noconvert(),
          "reroute_task"_a.noconvert(), "reroute_path"_a.noconvert(), "tenant"_a.noconvert(), "guarantee"_a.noconvert(),
          "burst_bytes"_a.noconvert(), "record"_a,
          "Return (begin_s, end_s, path, bottleneck, link_bytes, num_solves, samples) of tasks that share links.");
}

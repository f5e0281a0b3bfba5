// The Python face of the native loops: arrays in, arrays out, no GIL while they run. The only folder that knows Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/maxmin.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

std::pair<Out<double>, Out<std::int32_t>> max_min_rates(const In<double>& capacity_Bps,
                                                        const In<std::int64_t>& flow_start,
                                                        const In<std::int32_t>& flow_link, const In<double>& weight,
                                                        const std::optional<In<double>>& cap_Bps) {
    syncline::FlowSet flows{view(capacity_Bps), view(flow_start), view(flow_link), view(weight)};
    if (cap_Bps) flows.cap_Bps = view(*cap_Bps);
    syncline::Allocation result;
    {
        nb::gil_scoped_release release;
        syncline::validate(flows);
        result = syncline::max_min_rates(flows);
    }
    return {give(std::move(result.rate_Bps)), give(std::move(result.bottleneck))};
}

}  // namespace

void bind_flow(nb::module_& m);

NB_MODULE(core, m) {
    m.doc() = "Native loops of syncline; use the typed functions in syncline.sim and syncline.codec instead.";
    // Nothing is converted on the way in: a float64 array of links would otherwise be cut to int32 in silence.
    m.def("max_min_rates", &max_min_rates, "capacity_Bps"_a.noconvert(), "flow_start"_a.noconvert(),
          "flow_link"_a.noconvert(), "weight"_a.noconvert(), "cap_Bps"_a.noconvert().none() = nb::none(),
          "Return (rate_Bps, bottleneck link or -1) of each flow; flows are CSR rows of links.");
    bind_flow(m);
}

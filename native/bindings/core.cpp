// The Python face of the native loops: arrays in, arrays out, no GIL while they run. The only file that knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "syncline/maxmin.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.size()};
}

// Hand a vector to NumPy without a copy; the capsule frees it.
template <typename T>
Out<T> give(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(owned->data(), {owned->size()}, owner);
}

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

NB_MODULE(core, m) {
    m.doc() = "Native loops of syncline; use the typed functions in syncline.sim and syncline.codec instead.";
    // Nothing is converted on the way in: a float64 array of links would otherwise be cut to int32 in silence.
    m.def("max_min_rates", &max_min_rates, "capacity_Bps"_a.noconvert(), "flow_start"_a.noconvert(),
          "flow_link"_a.noconvert(), "weight"_a.noconvert(), "cap_Bps"_a.noconvert().none() = nb::none(),
          "Return (rate_Bps, bottleneck link or -1) of each flow; flows are CSR rows of links.");
}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "syncline/maxmin.hpp"

namespace {

using check::close;

// Owns the columns a FlowSet looks at.
struct Case {
    std::vector<double> capacity_Bps;
    std::vector<std::int64_t> flow_start{0};
    std::vector<std::int32_t> flow_link{};
    std::vector<double> weight{};
    std::vector<double> cap_Bps{};

    Case& flow(const std::vector<std::int32_t>& path, double w = 1,
               double cap = std::numeric_limits<double>::infinity()) {
        flow_link.insert(flow_link.end(), path.begin(), path.end());
        flow_start.push_back(static_cast<std::int64_t>(flow_link.size()));
        weight.push_back(w);
        cap_Bps.push_back(cap);
        return *this;
    }

    syncline::FlowSet set() const { return {capacity_Bps, flow_start, flow_link, weight, cap_Bps}; }

    syncline::Allocation solve() const {
        syncline::validate(set());
        return syncline::max_min_rates(set());
    }
};

void closed_forms() {
    auto got = Case{{10, 4}}.flow({0}).flow({0, 1}).flow({1}).solve();
    CHECK((got.rate_Bps == std::vector<double>{8, 2, 2}));
    CHECK((got.bottleneck == std::vector<std::int32_t>{0, 1, 1}));

    got = Case{{12}}.flow({0}, 1).flow({0}, 2).flow({0}, 3).solve();
    CHECK((got.rate_Bps == std::vector<double>{2, 4, 6}));

    got = Case{{10}}.flow({0}, 1, 1).flow({0}).flow({}, 1, 7).solve();
    CHECK((got.rate_Bps == std::vector<double>{1, 9, 7}));
    CHECK((got.bottleneck == std::vector<std::int32_t>{-1, 0, -1}));

    CHECK(Case{{5}}.solve().rate_Bps.empty());
    CHECK(Case{{}}.solve().rate_Bps.empty());
}

void zero_capacity_and_tiny_weights() {
    const auto got = Case{{0, 6}}.flow({0, 1}).flow({1}).solve();
    CHECK((got.rate_Bps == std::vector<double>{0, 6}));
    const auto light = Case{{10, 1}}.flow({0, 1}, 1e20).flow({0}, 1e-6).solve();
    CHECK((light.rate_Bps == std::vector<double>{1, 9}));
}

// The definition, on cases far larger than the Python twin can do.
void no_link_overflows_and_every_flow_has_a_reason(unsigned seed) {
    std::mt19937 random(seed);
    const std::int32_t num_links = 500;
    std::uniform_int_distribution<std::int32_t> any_link(0, num_links - 1);
    std::uniform_real_distribution<double> amount(0.1, 10);
    Case some{std::vector<double>(num_links)};
    for (double& capacity : some.capacity_Bps) capacity = 1e9 * amount(random);
    for (int flow = 0; flow < 20000; ++flow) {
        std::vector<std::int32_t> path(1 + random() % 6);
        for (auto& link : path) link = any_link(random);
        const double cap = random() % 4 == 0 ? 1e7 * amount(random) : std::numeric_limits<double>::infinity();
        some.flow(path, amount(random), cap);
    }
    const auto got = some.solve();
    std::vector<double> load(num_links, 0), largest_share(num_links, 0);
    for (std::size_t f = 0; f < some.weight.size(); ++f)
        for (auto i = some.flow_start[f]; i < some.flow_start[f + 1]; ++i) {
            const auto link = static_cast<std::size_t>(some.flow_link[static_cast<std::size_t>(i)]);
            load[link] += got.rate_Bps[f];
            largest_share[link] = std::max(largest_share[link], got.rate_Bps[f] / some.weight[f]);
        }
    for (std::size_t link = 0; link < load.size(); ++link) CHECK(load[link] <= some.capacity_Bps[link] * (1 + 1e-9));
    for (std::size_t f = 0; f < some.weight.size(); ++f) {
        if (got.bottleneck[f] < 0) {
            CHECK(got.rate_Bps[f] == some.cap_Bps[f]);
            continue;
        }
        const auto link = static_cast<std::size_t>(got.bottleneck[f]);
        CHECK(close(load[link], some.capacity_Bps[link]));
        CHECK(close(got.rate_Bps[f] / some.weight[f], largest_share[link], 1e-6));
    }
}

void bad_input_is_named() {
    const auto text = [](const Case& bad) {
        return check::thrown<std::invalid_argument>([&] { syncline::validate(bad.set()); });
    };
    CHECK(text(Case{{1}}.flow({1})) == "crossing 0 names link 1; there are 1 links");
    CHECK(text(Case{{1}}.flow({-1})) == "crossing 0 names link -1; there are 1 links");
    CHECK(text(Case{{-1}}) == "link 0 has capacity -1 B/s; it must lie between 0 and 1e30");
    CHECK(text(Case{{1}}.flow({0}, 0)) == "flow 0 has weight 0; it must lie between 1e-30 and 1e30");
    CHECK(text(Case{{1}}.flow({})) == "flow 0 crosses no link and has no cap, so nothing bounds its rate");
    auto no_start = Case{{1}};
    no_start.flow_start.clear();
    CHECK(text(no_start) == "flow_start has 0 entries; 0 weights need 1");
    auto beyond = Case{{1}}.flow({0});
    beyond.flow_start[1] = 9;
    CHECK(text(beyond) == "flow_start ends at 9 but flow_link has 1 entries");
}

}  // namespace

SUITE(maxmin) {
    closed_forms();
    zero_capacity_and_tiny_weights();
    for (unsigned seed = 0; seed < 3; ++seed) no_link_overflows_and_every_flow_has_a_reason(seed);
    bad_input_is_named();
}

// Weighted max-min fair rates: what each flow gets when links share their rate evenly and no flow can gain without
// taking from one that has less.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace syncline {

// Flow f crosses the links flow_link[flow_start[f] .. flow_start[f + 1]); a link named twice is paid for twice.
struct FlowSet {
    std::span<const double> capacity_Bps;      // one per link, 0 to 1e30
    std::span<const std::int64_t> flow_start;  // one per flow and one more, starts at 0, never falls
    std::span<const std::int32_t> flow_link;   // link of each crossing
    std::span<const double> weight;            // one per flow, 1e-30 to 1e30
    std::optional<std::span<const double>> cap_Bps{};  // if given, one per flow, 0 to 1e30 or infinite
};

struct Allocation {
    std::vector<double> rate_Bps;          // one per flow
    std::vector<std::int32_t> bottleneck;  // the saturated link that holds the flow back; -1: its own cap does
};

// Throws std::invalid_argument, naming the first flow or link that breaks a rule above.
void validate(const FlowSet& flows);

// Progressive filling with a lazily updated heap of saturating links: O((crossings + links) log links) when weights
// are of similar size. `flows` must be valid.
Allocation max_min_rates(const FlowSet& flows);

}  // namespace syncline

// Next hops: for every switch and every group of endpoints behind the same switches, the ports on shortest paths.
#pragma once

#include <span>
#include <vector>

#include "state.hpp"

namespace syncline::packet {

struct Wire {
    std::int32_t src, dst;  // switch s: s; endpoint e: -1 - e
    u8 hops;
};

class Routes {
public:
    struct Set {
        u32 first;  // in choices()
        u32 count;  // 0: no way
    };
    static constexpr u32 kAttached = 0xFFFFFFFEu;  // the endpoints of the group hang on this switch

    void build(std::span<const Wire> wires, const std::vector<bool>& up, u32 num_switches, u32 num_endpoints,
               bool keep_distances);

    u32 set_of(u32 at_switch, u32 group) const { return table_[std::size_t{at_switch} * num_groups_ + group]; }
    void fetch(u32 at_switch, u32 group) const { __builtin_prefetch(&table_[std::size_t{at_switch} * num_groups_ + group]); }
    Set set(u32 number) const { return sets_[number]; }
    std::size_t num_sets() const { return sets_.size(); }
    const u32* choices() const { return choices_.data(); }
    u32 group(u32 endpoint) const { return group_of_[endpoint]; }
    u32 num_groups() const { return num_groups_; }
    u32 home(u32 group) const { return home_[group]; }  // a switch that the group hangs on
    u32 distance(u32 at_switch, u32 group) const { return distance_[std::size_t{at_switch} * num_groups_ + group]; }
    // The port from a switch to an endpoint that hangs on it; `turn` chooses among several.
    u32 down(u32 at_switch, u32 endpoint, u32 turn) const;

private:
    void group_endpoints(std::span<const Wire> wires, const std::vector<bool>& up, u32 num_endpoints);
    void group_switches(u32 num_switches);
    void search(u32 group, std::vector<u16>& distance);

    u32 num_groups_ = 0;
    std::vector<u32> group_of_, home_;
    std::vector<std::vector<u32>> leaves_;  // of each group
    std::vector<u64> down_start_;
    std::vector<u32> down_port_, down_switch_;
    std::vector<u32> table_;
    std::vector<Set> sets_;
    std::vector<u32> choices_;
    std::vector<u16> distance_;
    // Ports into each switch from others, and out of each to others, as rows.
    std::vector<u64> in_start_, out_start_;
    std::vector<u32> in_switch_, out_port_, out_switch_;
    std::vector<u8> in_hops_, out_hops_;
    std::vector<std::vector<u32>> buckets_;
};

}  // namespace syncline::packet

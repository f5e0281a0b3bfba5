#include "routes.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace syncline::packet {

namespace {

constexpr u16 kFar = 0xFFFF;

// Row starts of a compressed table with `count` rows.
std::vector<u64> rows(const std::vector<u32>& keys, u32 count, std::vector<u32>& order) {
    std::vector<u64> start(count + 1, 0);
    for (const u32 key : keys) ++start[key + 1];
    for (u32 i = 0; i < count; ++i) start[i + 1] += start[i];
    order.resize(keys.size());
    std::vector<u64> at(start.begin(), start.end() - 1);
    for (u32 i = 0; i < keys.size(); ++i) order[at[keys[i]]++] = i;
    return start;
}

}  // namespace

u32 Routes::down(u32 at_switch, u32 endpoint, u32 turn) const {
    u32 found = kNone, count = 0;
    for (u64 i = down_start_[endpoint]; i < down_start_[endpoint + 1]; ++i) {
        if (down_switch_[i] == at_switch) {
            ++count;
            if (found == kNone) found = down_port_[i];
        }
    }
    if (count < 2) return found;
    u32 wanted = turn % count;
    for (u64 i = down_start_[endpoint];; ++i) {
        if (down_switch_[i] == at_switch && wanted-- == 0) return down_port_[i];
    }
}

void Routes::group_endpoints(std::span<const Wire> wires, const std::vector<bool>& up, u32 num_endpoints) {
    std::vector<u32> keys, ports, order;
    for (u32 p = 0; p < wires.size(); ++p) {
        if (wires[p].dst >= 0 || wires[p].src < 0 || !up[p]) continue;
        keys.push_back(static_cast<u32>(-1 - wires[p].dst));
        ports.push_back(p);
    }
    down_start_ = rows(keys, num_endpoints, order);
    down_port_.clear();
    down_switch_.clear();
    for (const u32 i : order) {
        down_port_.push_back(ports[i]);
        down_switch_.push_back(static_cast<u32>(wires[ports[i]].src));
    }
    group_of_.assign(num_endpoints, 0);
    leaves_.clear();
    std::map<std::vector<u32>, u32> known;
    for (u32 e = 0; e < num_endpoints; ++e) {
        std::vector<u32> leaves(down_switch_.begin() + static_cast<std::ptrdiff_t>(down_start_[e]),
                                down_switch_.begin() + static_cast<std::ptrdiff_t>(down_start_[e + 1]));
        std::sort(leaves.begin(), leaves.end());
        leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
        const auto [entry, fresh] = known.try_emplace(leaves, static_cast<u32>(leaves_.size()));
        if (fresh) leaves_.push_back(leaves);
        group_of_[e] = entry->second;
    }
    num_groups_ = static_cast<u32>(leaves_.size());
    home_.clear();
    for (const auto& leaves : leaves_) home_.push_back(leaves.empty() ? kNone : leaves.front());
}

// Detours go over any switch, so one that no group has to itself is a group too, of no endpoints.
void Routes::group_switches(u32 num_switches) {
    std::vector<bool> known(num_switches, false);
    for (const auto& leaves : leaves_) {
        if (leaves.size() == 1) known[leaves.front()] = true;
    }
    for (u32 s = 0; s < num_switches; ++s) {
        if (known[s]) continue;
        leaves_.push_back({s});
        home_.push_back(s);
    }
    num_groups_ = static_cast<u32>(leaves_.size());
}

void Routes::search(u32 group, std::vector<u16>& distance) {
    std::fill(distance.begin(), distance.end(), kFar);
    buckets_.assign(1, {});
    for (const u32 leaf : leaves_[group]) {
        distance[leaf] = 0;
        buckets_[0].push_back(leaf);
    }
    for (std::size_t level = 0; level < buckets_.size(); ++level) {
        for (std::size_t i = 0; i < buckets_[level].size(); ++i) {
            const u32 here = buckets_[level][i];
            if (distance[here] != level) continue;
            for (u64 j = in_start_[here]; j < in_start_[here + 1]; ++j) {
                const std::size_t farther = level + in_hops_[j];
                if (farther >= distance[in_switch_[j]]) continue;
                distance[in_switch_[j]] = static_cast<u16>(farther);
                if (buckets_.size() <= farther) buckets_.resize(farther + 1);
                buckets_[farther].push_back(in_switch_[j]);
            }
        }
    }
}

void Routes::build(std::span<const Wire> wires, const std::vector<bool>& up, u32 num_switches, u32 num_endpoints,
                   bool keep_distances) {
    group_endpoints(wires, up, num_endpoints);
    if (keep_distances) group_switches(num_switches);
    std::vector<u32> heads, tails, ports, order;
    for (u32 p = 0; p < wires.size(); ++p) {
        if (wires[p].src < 0 || wires[p].dst < 0 || !up[p]) continue;
        heads.push_back(static_cast<u32>(wires[p].dst));
        tails.push_back(static_cast<u32>(wires[p].src));
        ports.push_back(p);
    }
    in_start_ = rows(heads, num_switches, order);
    in_switch_.clear();
    in_hops_.clear();
    for (const u32 i : order) {
        in_switch_.push_back(tails[i]);
        in_hops_.push_back(wires[ports[i]].hops);
    }
    out_start_ = rows(tails, num_switches, order);
    out_port_.clear();
    out_switch_.clear();
    out_hops_.clear();
    for (const u32 i : order) {
        out_port_.push_back(ports[i]);
        out_switch_.push_back(heads[i]);
        out_hops_.push_back(wires[ports[i]].hops);
    }
    const std::size_t size = std::size_t{num_switches} * num_groups_;
    table_.assign(size, 0);
    distance_.clear();
    if (keep_distances) distance_.assign(size, kFar);
    sets_.assign(1, Set{0, 0});
    choices_.clear();
    // Sets of ports are few: one a switch that leads up, one a port that leads down. Find them again by a checksum.
    std::vector<std::map<u64, u32>> known(num_switches);
    std::vector<u16> distance(num_switches);
    std::vector<u32> found;
    for (u32 g = 0; g < num_groups_; ++g) {
        search(g, distance);
        for (u32 s = 0; s < num_switches; ++s) {
            const std::size_t place = std::size_t{s} * num_groups_ + g;
            if (keep_distances) distance_[place] = distance[s];
            if (distance[s] == 0) table_[place] = kAttached;
            if (distance[s] == 0 || distance[s] == kFar) continue;
            found.clear();
            u64 sum = 0;
            for (u64 j = out_start_[s]; j < out_start_[s + 1]; ++j) {
                if (distance[out_switch_[j]] == kFar || distance[out_switch_[j]] + out_hops_[j] != distance[s]) continue;
                found.push_back(out_port_[j]);
                sum = sum * 0x9E3779B97F4A7C15ull + out_port_[j] + 1;
            }
            const auto [entry, fresh] = known[s].try_emplace(sum, static_cast<u32>(sets_.size()));
            if (fresh) {
                sets_.push_back({static_cast<u32>(choices_.size()), static_cast<u32>(found.size())});
                choices_.insert(choices_.end(), found.begin(), found.end());
            }
            table_[place] = entry->second;
        }
    }
}

}  // namespace syncline::packet

#include "syncline/maxmin.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "number_text.hpp"

namespace syncline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Within these bounds no level (rate / weight) overflows or vanishes.
constexpr double kLargest = 1e30;
constexpr double kSmallestWeight = 1e-30;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string name(const char* noun, std::size_t index) { return std::string(noun) + " " + std::to_string(index); }

void validate_links(const FlowSet& flows) {
    for (std::size_t link = 0; link < flows.capacity_Bps.size(); ++link)
        if (!(flows.capacity_Bps[link] >= 0 && flows.capacity_Bps[link] <= kLargest))
            refuse(name("link", link) + " has capacity " + text(flows.capacity_Bps[link]) +
                   " B/s; it must lie between 0 and 1e30");
}

void validate_shape(const FlowSet& flows) {
    const std::size_t num_flows = flows.weight.size();
    constexpr auto limit = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
    if (flows.capacity_Bps.size() > limit || num_flows > limit) refuse("at most 2147483647 links and flows fit");
    if (flows.flow_start.size() != num_flows + 1)
        refuse("flow_start has " + std::to_string(flows.flow_start.size()) + " entries; " + std::to_string(num_flows) +
               " weights need " + std::to_string(num_flows + 1));
    if (flows.cap_Bps && flows.cap_Bps->size() != num_flows)
        refuse("cap_Bps has " + std::to_string(flows.cap_Bps->size()) + " entries for " + std::to_string(num_flows) +
               " flows");
    if (flows.flow_start.front() != 0) refuse("flow_start must begin with 0");
    for (std::size_t flow = 0; flow < num_flows; ++flow)
        if (flows.flow_start[flow + 1] < flows.flow_start[flow]) refuse("flow_start falls at " + name("flow", flow));
    if (static_cast<std::size_t>(flows.flow_start.back()) != flows.flow_link.size())
        refuse("flow_start ends at " + std::to_string(flows.flow_start.back()) + " but flow_link has " +
               std::to_string(flows.flow_link.size()) + " entries");
}

void validate_flow(const FlowSet& flows, std::size_t flow) {
    if (!(flows.weight[flow] >= kSmallestWeight && flows.weight[flow] <= kLargest))
        refuse(name("flow", flow) + " has weight " + text(flows.weight[flow]) +
               "; it must lie between 1e-30 and 1e30");
    const double cap = flows.cap_Bps ? (*flows.cap_Bps)[flow] : kInfinity;
    if (!(cap >= 0 && (cap <= kLargest || std::isinf(cap))))
        refuse(name("flow", flow) + " has cap " + text(cap) + " B/s; it must lie between 0 and 1e30, or be infinite");
    if (flows.flow_start[flow] == flows.flow_start[flow + 1] && std::isinf(cap))
        refuse(name("flow", flow) + " crosses no link and has no cap, so nothing bounds its rate");
}

void validate_crossings(const FlowSet& flows) {
    const auto num_links = static_cast<std::int64_t>(flows.capacity_Bps.size());
    for (std::size_t i = 0; i < flows.flow_link.size(); ++i)
        if (flows.flow_link[i] < 0 || flows.flow_link[i] >= num_links)
            refuse(name("crossing", i) + " names link " + std::to_string(flows.flow_link[i]) + "; there are " +
                   std::to_string(num_links) + " links");
}

// The water level rises from 0; an active flow's rate is weight x level. A link saturates at the level where its active
// flows use what the frozen ones left. Freezing a flow can only raise the saturation level of the links it crosses, so
// a key in the heap is a lower bound: an old one is put right when it is popped, and at most one stale pop is paid per
// crossing.
class Filling {
public:
    explicit Filling(const FlowSet& flows)
        : flows_(flows),
          links_(flows.capacity_Bps.size()),
          crossing_(flows.flow_link.size()),
          frozen_(flows.weight.size(), false) {
        result_.rate_Bps.resize(flows.weight.size());
        result_.bottleneck.resize(flows.weight.size(), -1);
        index_links();
        sort_caps();
    }

    Allocation run() {
        std::vector<Key> keys;
        keys.reserve(links_.size());
        for (std::size_t link = 0; link < links_.size(); ++link)
            if (links_[link].end > links_[link].begin) keys.emplace_back(level(link), static_cast<std::int32_t>(link));
        Heap heap(std::greater<>{}, std::move(keys));
        while (!heap.empty()) {
            const auto [key, index] = heap.top();
            const auto link = static_cast<std::size_t>(index);
            freeze_caps_up_to(key);
            const double now = level(link);
            heap.pop();
            if (now > key && now < kInfinity)
                heap.emplace(now, index);
            else if (now < kInfinity)
                saturate(link, now);
        }
        freeze_caps_up_to(kInfinity);
        return std::move(result_);
    }

private:
    using Key = std::pair<double, std::int32_t>;
    using Heap = std::priority_queue<Key, std::vector<Key>, std::greater<>>;

    struct Link {
        double left_Bps = 0;        // capacity less what frozen flows use
        double weight = 0;          // sum over active crossings
        double scanned_weight = 0;  // `weight` when it was last summed afresh
        std::size_t begin = 0;      // its crossings in crossing_; frozen flows are dropped by scan()
        std::size_t end = 0;
        std::size_t num_active = 0;
    };

    std::span<const std::int32_t> path(std::size_t flow) const {
        const auto begin = static_cast<std::size_t>(flows_.flow_start[flow]);
        return flows_.flow_link.subspan(begin, static_cast<std::size_t>(flows_.flow_start[flow + 1]) - begin);
    }

    void index_links() {
        for (const std::int32_t link : flows_.flow_link) ++links_[static_cast<std::size_t>(link)].end;
        std::size_t at = 0;
        for (std::size_t link = 0; link < links_.size(); ++link) {
            const std::size_t count = links_[link].end;
            links_[link] = {flows_.capacity_Bps[link], 0, 0, at, at, count};
            at += count;
        }
        for (std::size_t flow = 0; flow < flows_.weight.size(); ++flow)
            for (const std::int32_t link : path(flow)) {
                Link& here = links_[static_cast<std::size_t>(link)];
                crossing_[here.end++] = static_cast<std::int32_t>(flow);
                here.weight += flows_.weight[flow];
            }
        for (Link& link : links_) link.scanned_weight = link.weight;
    }

    void sort_caps() {
        if (!flows_.cap_Bps) return;
        for (std::size_t flow = 0; flow < flows_.cap_Bps->size(); ++flow) {
            const double cap = (*flows_.cap_Bps)[flow];
            if (cap < kInfinity) caps_.emplace_back(cap / flows_.weight[flow], static_cast<std::int32_t>(flow));
        }
        std::sort(caps_.begin(), caps_.end());
    }

    // Subtracting weights one by one loses digits once most of the sum is gone, so it is summed afresh each time it has
    // halved. Dropping frozen flows on the way keeps the whole cost linear when weights are alike.
    void scan(Link& link) {
        link.weight = 0;
        std::size_t kept = link.begin;
        for (std::size_t i = link.begin; i < link.end; ++i) {
            const std::int32_t flow = crossing_[i];
            if (frozen_[static_cast<std::size_t>(flow)]) continue;
            crossing_[kept++] = flow;
            link.weight += flows_.weight[static_cast<std::size_t>(flow)];
        }
        link.end = kept;
        link.scanned_weight = link.weight;
    }

    double level(std::size_t index) {
        Link& link = links_[index];
        if (link.num_active == 0) return kInfinity;
        if (link.weight < 0.5 * link.scanned_weight) scan(link);
        return std::max(0.0, link.left_Bps) / link.weight;
    }

    void freeze(std::size_t flow, double rate_Bps, std::int32_t bottleneck) {
        frozen_[flow] = true;
        result_.rate_Bps[flow] = rate_Bps;
        result_.bottleneck[flow] = bottleneck;
        for (const std::int32_t index : path(flow)) {
            Link& link = links_[static_cast<std::size_t>(index)];
            link.left_Bps -= rate_Bps;
            link.weight -= flows_.weight[flow];
            --link.num_active;
        }
    }

    void freeze_caps_up_to(double level) {
        for (; next_cap_ < caps_.size() && caps_[next_cap_].first <= level; ++next_cap_) {
            const auto flow = static_cast<std::size_t>(caps_[next_cap_].second);
            if (!frozen_[flow]) freeze(flow, (*flows_.cap_Bps)[flow], -1);
        }
    }

    void saturate(std::size_t index, double level) {
        for (std::size_t i = links_[index].begin; i < links_[index].end; ++i) {
            const auto flow = static_cast<std::size_t>(crossing_[i]);
            if (!frozen_[flow]) freeze(flow, flows_.weight[flow] * level, static_cast<std::int32_t>(index));
        }
    }

    const FlowSet& flows_;
    std::vector<Link> links_;
    std::vector<std::int32_t> crossing_;  // flows, grouped by the link they cross
    std::vector<Key> caps_;               // (level at which its cap holds, flow), rising
    std::size_t next_cap_ = 0;
    std::vector<char> frozen_;
    Allocation result_;
};

}  // namespace

void validate(const FlowSet& flows) {
    validate_shape(flows);
    validate_links(flows);
    validate_crossings(flows);
    for (std::size_t flow = 0; flow < flows.weight.size(); ++flow) validate_flow(flows, flow);
}

Allocation max_min_rates(const FlowSet& flows) { return Filling(flows).run(); }

}  // namespace syncline

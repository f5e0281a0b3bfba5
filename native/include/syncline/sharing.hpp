// Max-min fair sharing that is kept up to date: flows come and go, links change, and only the rates that can differ are
// computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace syncline {

// One flow over one link: the link carries `share` times the flow's rate (1 for a plain path, 1/p for a flow sprayed
// over p paths, 2 for two like flows that are simulated as one).
struct Crossing {
    std::int32_t link;
    double share;
};

class Sharing {
public:
    struct Flow {
        double weight = 1;
        double cap_Bps = 0;          // infinite when nothing but links holds it back
        double rate_Bps = 0;
        std::int32_t bottleneck = -1;  // the link that holds it back; -1: its own cap
        std::uint8_t priority = 0;     // 0 is served first, the next class gets what is left
        bool active = false;
        std::int32_t tenant = -1;
        double floor_Bps = 0;  // what its tenant's guarantee gives it, whoever else wants the link
    };

    // `guarantee`: the part of every link that is each tenant's own when it wants it; together at most 1.
    Sharing(std::span<const double> capacity_Bps, std::size_t num_flows, std::span<const double> guarantee = {});

    void add(std::int32_t flow, std::span<const Crossing> path, double weight, double cap_Bps, std::uint8_t priority,
             std::int32_t tenant = -1);
    void remove(std::int32_t flow);
    void set_capacity(std::int32_t link, double capacity_Bps);

    // Bring every rate up to date. Afterwards `changed()` lists the flows whose rate differs, with the old rate, and
    // `touched()` the links whose load may.
    void solve();
    const std::vector<std::pair<std::int32_t, double>>& changed() const { return changed_; }
    const std::vector<std::int32_t>& touched() const { return touched_; }
    bool pending() const { return !dirty_.empty() || !fresh_.empty(); }

    const Flow& flow(std::int32_t flow) const { return flows_[index(flow)]; }
    double used_Bps(std::int32_t link) const { return links_[index(link)].used; }
    double capacity_Bps(std::int32_t link) const { return links_[index(link)].capacity; }
    std::size_t num_active(std::int32_t link) const { return links_[index(link)].slots.size(); }

private:
    struct Slot {
        std::int32_t flow;
        std::int32_t hop;
        double share;
    };
    struct Hop {
        std::int32_t link;
        std::int32_t slot;  // where the flow stands in the link's list
        double share;
    };
    struct Link {
        double capacity = 0;
        double used = 0;
        std::vector<Slot> slots;
        // Working values of one solve:
        double left = 0;            // capacity less what fixed and frozen flows use
        double weight = 0;          // sum of weight x share over free flows that still rise
        double scanned_weight = 0;  // `weight` when it was last summed afresh
        double level = 0;           // level at which it saturated in this solve
        std::int32_t num_rising = 0;
        bool touched = false;
        bool expanded = false;
        bool full = false;
        bool dirty = false;
    };
    using Key = std::pair<double, std::int32_t>;
    enum class State : std::uint8_t { kFixed, kRising, kFrozen, kWaiting };

    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

    void mark_dirty(std::int32_t link);
    void set_free(std::int32_t flow);
    void expand(std::int32_t link);
    void prepare();
    void set_floors();
    void reserve_floors();
    void fill();
    void fill_class(std::size_t begin, std::size_t end);
    void rise(std::int32_t flow);
    void join(std::int32_t flow);
    double level_of(Link& link);
    void scan(Link& link);
    void freeze(std::int32_t flow, double rate_Bps, std::int32_t bottleneck);
    void saturate(std::int32_t link, double level);
    bool expand_where_wrong();
    bool is_wrong(const Link& link, std::int32_t index) const;
    void expand_all();
    void commit();
    void refresh_used(Link& link, std::int32_t index);

    std::vector<Link> links_;
    std::vector<Flow> flows_;
    std::vector<std::vector<Hop>> paths_;
    std::vector<std::vector<Hop>> spare_;
    std::vector<State> state_;
    std::vector<double> next_rate_;
    std::vector<std::int32_t> next_bottleneck_;
    std::vector<std::int32_t> dirty_;
    std::vector<std::int32_t> fresh_;
    std::vector<std::int32_t> free_;
    std::vector<std::int32_t> touched_;
    std::vector<std::pair<std::int32_t, double>> changed_;
    std::vector<Key> keys_;
    std::vector<Key> caps_;
    std::vector<Key> joins_;  // flows that stay at their floor until the level reaches it
    std::vector<double> guarantee_;
    std::vector<std::int32_t> all_free_;
    std::size_t num_lower_ = 0;    // active flows of a priority other than 0
    std::size_t num_assured_ = 0;  // active flows of a tenant with a guarantee
};

}  // namespace syncline

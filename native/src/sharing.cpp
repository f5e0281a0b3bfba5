#include "syncline/sharing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

namespace syncline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-9;
// After so many local passes the whole connected part is solved at once: long chains of bottlenecks are rare.
constexpr int kLocalPasses = 6;

}  // namespace

Sharing::Sharing(std::span<const double> capacity_Bps, std::size_t num_flows, std::span<const double> guarantee)
    : links_(capacity_Bps.size()),
      flows_(num_flows),
      paths_(num_flows),
      state_(num_flows, State::kFixed),
      next_rate_(num_flows, 0),
      next_bottleneck_(num_flows, -1),
      guarantee_(guarantee.begin(), guarantee.end()) {
    for (std::size_t link = 0; link < links_.size(); ++link) links_[link].capacity = capacity_Bps[link];
}

void Sharing::mark_dirty(std::int32_t link) {
    Link& here = links_[index(link)];
    if (here.dirty) return;
    here.dirty = true;
    dirty_.push_back(link);
}

void Sharing::add(std::int32_t flow, std::span<const Crossing> path, double weight, double cap_Bps,
                  std::uint8_t priority, std::int32_t tenant) {
    flows_[index(flow)] = {weight, cap_Bps, 0, -1, priority, true, tenant, 0};
    num_lower_ += priority != 0;
    num_assured_ += tenant >= 0;
    auto& hops = paths_[index(flow)];
    if (!spare_.empty()) {  // room that a flow gone by has left
        hops = std::move(spare_.back());
        spare_.pop_back();
    }
    hops.clear();
    for (const Crossing& crossing : path) {
        Link& link = links_[index(crossing.link)];
        link.slots.push_back({flow, static_cast<std::int32_t>(hops.size()), crossing.share});
        hops.push_back({crossing.link, static_cast<std::int32_t>(link.slots.size() - 1), crossing.share});
    }
    fresh_.push_back(flow);
}

void Sharing::remove(std::int32_t flow) {
    Flow& gone = flows_[index(flow)];
    num_lower_ -= gone.priority != 0;
    num_assured_ -= gone.tenant >= 0;
    gone.active = false;
    for (const Hop& hop : paths_[index(flow)]) {
        Link& link = links_[index(hop.link)];
        link.used = std::max(0.0, link.used - gone.rate_Bps * hop.share);
        const auto at = index(hop.slot);
        link.slots[at] = link.slots.back();
        paths_[index(link.slots[at].flow)][index(link.slots[at].hop)].slot = hop.slot;
        link.slots.pop_back();
        if (link.slots.empty()) link.used = 0;
        mark_dirty(hop.link);
    }
    spare_.push_back(std::move(paths_[index(flow)]));
    paths_[index(flow)].clear();
    gone.rate_Bps = 0;
}

void Sharing::set_capacity(std::int32_t link, double capacity_Bps) {
    links_[index(link)].capacity = capacity_Bps;
    mark_dirty(link);
}

// A free flow's rate is computed again; every link it crosses takes part.
void Sharing::set_free(std::int32_t flow) {
    if (state_[index(flow)] != State::kFixed) return;
    state_[index(flow)] = State::kWaiting;
    free_.push_back(flow);
    for (const Hop& hop : paths_[index(flow)]) {
        Link& link = links_[index(hop.link)];
        if (link.touched) continue;
        link.touched = true;
        touched_.push_back(hop.link);
    }
}

void Sharing::expand(std::int32_t link) {
    Link& here = links_[index(link)];
    if (here.expanded) return;
    here.expanded = true;
    if (!here.touched) {
        here.touched = true;
        touched_.push_back(link);
    }
    for (const Slot& slot : here.slots) set_free(slot.flow);
}

// Flows that a change cannot reach keep their rate. Start with the flows at a link that lost a flow it held back or
// changed its capacity, and with new flows; solve; where the answer breaks the rule of max-min for a flow that was
// kept, free that link's flows too and solve again.
void Sharing::solve() {
    changed_.clear();
    touched_.clear();
    free_.clear();
    for (const std::int32_t flow : fresh_) {
        if (!flows_[index(flow)].active) continue;
        set_free(flow);
        // A full link must make room for the newcomer: no need to find that out by solving.
        for (const Hop& hop : paths_[index(flow)]) {
            const Link& link = links_[index(hop.link)];
            if (link.used >= link.capacity * (1 - kTolerance)) expand(hop.link);
        }
    }
    for (const std::int32_t link : dirty_) {
        Link& here = links_[index(link)];
        here.dirty = false;
        const bool holds_back = std::any_of(here.slots.begin(), here.slots.end(), [&](const Slot& slot) {
            return flows_[index(slot.flow)].bottleneck == link;
        });
        if (holds_back || here.used > here.capacity) expand(link);
        else if (!here.touched) {
            here.touched = true;
            touched_.push_back(link);
        }
    }
    dirty_.clear();
    fresh_.clear();
    if (num_lower_ > 0 || num_assured_ > 0) expand_all();
    if (num_assured_ > 0) set_floors();
    for (int pass = 0;; ++pass) {
        prepare();
        if (num_assured_ > 0) reserve_floors();
        fill();
        if (!expand_where_wrong()) break;
        if (pass >= kLocalPasses) expand_all();
    }
    commit();
}

void Sharing::expand_all() {
    for (std::size_t i = 0; i < touched_.size(); ++i) expand(touched_[i]);
}

void Sharing::prepare() {
    for (const std::int32_t at : touched_) {
        Link& link = links_[index(at)];
        link.left = link.capacity - link.used;
        link.weight = 0;
        link.num_rising = 0;
        link.full = false;
        if (link.expanded) link.left = link.capacity;  // all its flows are free: nothing to subtract, no rounding
    }
    for (const std::int32_t flow : free_) {
        state_[index(flow)] = State::kWaiting;
        const double rate = flows_[index(flow)].rate_Bps;
        if (rate == 0) continue;
        for (const Hop& hop : paths_[index(flow)]) {
            Link& link = links_[index(hop.link)];
            if (!link.expanded) link.left += rate * hop.share;
        }
    }
}

// What a guarantee gives a flow: its max-min rate if its tenant had the guaranteed part of every link to itself (its own
// classes hold among its flows). All flows that could matter are free here, so each tenant is filled alone.
void Sharing::set_floors() {
    for (const std::int32_t flow : free_) flows_[index(flow)].floor_Bps = 0;
    all_free_.clear();
    all_free_.swap(free_);
    std::stable_sort(all_free_.begin(), all_free_.end(), [&](std::int32_t a, std::int32_t b) {
        return flows_[index(a)].tenant < flows_[index(b)].tenant;
    });
    for (std::size_t begin = 0, end = 0; begin < all_free_.size(); begin = end) {
        const auto tenant = flows_[index(all_free_[begin])].tenant;
        while (end < all_free_.size() && flows_[index(all_free_[end])].tenant == tenant) ++end;
        if (tenant < 0) continue;
        free_.assign(all_free_.begin() + static_cast<std::ptrdiff_t>(begin),
                     all_free_.begin() + static_cast<std::ptrdiff_t>(end));
        for (const std::int32_t at : touched_) {
            Link& link = links_[index(at)];
            link.left = link.capacity * guarantee_[index(tenant)];
            link.weight = 0;
            link.num_rising = 0;
        }
        fill();
        for (const std::int32_t flow : free_) flows_[index(flow)].floor_Bps = next_rate_[index(flow)];
    }
    free_.swap(all_free_);
}

// Floors of every class are taken out first: a guarantee holds against strict priority too.
void Sharing::reserve_floors() {
    for (const std::int32_t flow : free_)
        for (const Hop& hop : paths_[index(flow)])
            links_[index(hop.link)].left -= flows_[index(flow)].floor_Bps * hop.share;
}

void Sharing::fill() {
    if (num_lower_ == 0) return fill_class(0, free_.size());
    std::stable_sort(free_.begin(), free_.end(), [&](std::int32_t a, std::int32_t b) {
        return flows_[index(a)].priority < flows_[index(b)].priority;
    });
    for (std::size_t begin = 0, end = 0; begin < free_.size(); begin = end) {
        const auto priority = flows_[index(free_[begin])].priority;
        while (end < free_.size() && flows_[index(free_[end])].priority == priority) ++end;
        fill_class(begin, end);
    }
}

void Sharing::rise(std::int32_t flow) {
    state_[index(flow)] = State::kRising;
    for (const Hop& hop : paths_[index(flow)]) {
        Link& link = links_[index(hop.link)];
        link.weight += flows_[index(flow)].weight * hop.share;
        ++link.num_rising;
    }
}

// The level has reached a flow's floor: what was reserved for it goes back, and from here it rises like the others. Its
// links may fill sooner than their keys say.
void Sharing::join(std::int32_t flow) {
    rise(flow);
    for (const Hop& hop : paths_[index(flow)]) {
        Link& link = links_[index(hop.link)];
        link.left += flows_[index(flow)].floor_Bps * hop.share;
        link.scanned_weight = std::max(link.scanned_weight, link.weight);
        keys_.emplace_back(level_of(link), hop.link);
        std::push_heap(keys_.begin(), keys_.end(), std::greater<>{});
    }
}

// Progressive filling: see maxmin.cpp. A key in the heap is a lower bound of its link's level.
void Sharing::fill_class(std::size_t begin, std::size_t end) {
    caps_.clear();
    keys_.clear();
    joins_.clear();
    for (std::size_t i = begin; i < end; ++i) {
        const std::int32_t flow = free_[i];
        const Flow& here = flows_[index(flow)];
        if (here.cap_Bps < kInfinity) caps_.emplace_back(here.cap_Bps / here.weight, flow);
        if (here.floor_Bps > 0) joins_.emplace_back(here.floor_Bps / here.weight, flow);
        else rise(flow);
    }
    std::sort(caps_.begin(), caps_.end());
    std::sort(joins_.begin(), joins_.end());
    for (const std::int32_t at : touched_) {
        Link& link = links_[index(at)];
        link.scanned_weight = link.weight;
        if (link.num_rising > 0) keys_.emplace_back(level_of(link), at);
    }
    std::make_heap(keys_.begin(), keys_.end(), std::greater<>{});
    std::size_t next_cap = 0, next_join = 0;
    const auto freeze_caps = [&](double level) {
        for (; next_cap < caps_.size() && caps_[next_cap].first <= level; ++next_cap) {
            const std::int32_t flow = caps_[next_cap].second;
            if (state_[index(flow)] == State::kRising) freeze(flow, flows_[index(flow)].cap_Bps, -1);
        }
    };
    while (!keys_.empty() || next_join < joins_.size()) {
        if (next_join < joins_.size() && (keys_.empty() || joins_[next_join].first <= keys_.front().first)) {
            freeze_caps(std::nextafter(joins_[next_join].first, 0));
            join(joins_[next_join++].second);
            continue;
        }
        const auto [key, at] = keys_.front();
        freeze_caps(key);
        std::pop_heap(keys_.begin(), keys_.end(), std::greater<>{});
        keys_.pop_back();
        Link& link = links_[index(at)];
        if (link.num_rising == 0) continue;
        const double now = level_of(link);
        if (now > key) {
            keys_.emplace_back(now, at);
            std::push_heap(keys_.begin(), keys_.end(), std::greater<>{});
        } else {
            saturate(at, now);
        }
    }
    freeze_caps(kInfinity);
}

double Sharing::level_of(Link& link) {
    if (link.weight < 0.5 * link.scanned_weight) scan(link);
    return std::max(0.0, link.left) / link.weight;
}

// Subtracting weights loses digits once most of the sum is gone: sum afresh each time it has halved.
void Sharing::scan(Link& link) {
    link.weight = 0;
    for (const Slot& slot : link.slots)
        if (state_[index(slot.flow)] == State::kRising) link.weight += flows_[index(slot.flow)].weight * slot.share;
    link.scanned_weight = link.weight;
}

void Sharing::freeze(std::int32_t flow, double rate_Bps, std::int32_t bottleneck) {
    state_[index(flow)] = State::kFrozen;
    next_rate_[index(flow)] = rate_Bps;
    next_bottleneck_[index(flow)] = bottleneck;
    const double weight = flows_[index(flow)].weight;
    for (const Hop& hop : paths_[index(flow)]) {
        Link& link = links_[index(hop.link)];
        link.left -= rate_Bps * hop.share;
        link.weight -= weight * hop.share;
        --link.num_rising;
    }
}

void Sharing::saturate(std::int32_t at, double level) {
    Link& link = links_[index(at)];
    link.full = true;
    link.level = level;
    for (const Slot& slot : link.slots)
        if (state_[index(slot.flow)] == State::kRising) freeze(slot.flow, flows_[index(slot.flow)].weight * level, at);
}

bool Sharing::expand_where_wrong() {
    bool wrong = false;
    for (std::size_t i = 0, size = touched_.size(); i < size; ++i) {
        const Link& link = links_[index(touched_[i])];
        if (!link.expanded && is_wrong(link, touched_[i])) {
            expand(touched_[i]);
            wrong = true;
        }
    }
    return wrong;
}

// Max-min means: each flow is at its cap, or crosses a full link on which no flow has more (per weight). A kept flow
// may break that in two ways: it has more than the free flows this link now holds back, or this link held it back and
// now has room or serves a free flow better.
bool Sharing::is_wrong(const Link& link, std::int32_t at) const {
    const bool has_room = link.left > kTolerance * link.capacity;
    double most_kept = -1, least_held = kInfinity, most_free = -1;
    for (const Slot& slot : link.slots) {
        const Flow& flow = flows_[index(slot.flow)];
        if (state_[index(slot.flow)] != State::kFixed) {
            most_free = std::max(most_free, next_rate_[index(slot.flow)] / flow.weight);
            continue;
        }
        const double share = flow.rate_Bps / flow.weight;
        most_kept = std::max(most_kept, share);
        if (flow.bottleneck == at) least_held = std::min(least_held, share);
    }
    if (link.full && most_kept > link.level * (1 + kTolerance)) return true;
    if (least_held == kInfinity) return false;
    return has_room || most_free > least_held * (1 + kTolerance);
}

void Sharing::refresh_used(Link& link, std::int32_t at) {
    if (link.expanded) {
        link.used = 0;
        for (const Slot& slot : link.slots) link.used += flows_[index(slot.flow)].rate_Bps * slot.share;
    } else {
        link.used = link.capacity - link.left;
    }
    if (link.used > link.capacity * (1 + 1e-6) + 1e-6)
        throw std::logic_error("link " + std::to_string(at) + " carries " + std::to_string(link.used) +
                               " B/s, more than its " + std::to_string(link.capacity));
}

void Sharing::commit() {
    for (const std::int32_t at : free_) {
        Flow& flow = flows_[index(at)];
        state_[index(at)] = State::kFixed;
        flow.bottleneck = next_bottleneck_[index(at)];
        const double next = next_rate_[index(at)];
        if (next == flow.rate_Bps) continue;
        changed_.emplace_back(at, flow.rate_Bps);
        flow.rate_Bps = next;
    }
    for (const std::int32_t at : touched_) {
        Link& link = links_[index(at)];
        refresh_used(link, at);
        link.touched = link.expanded = false;
    }
}

}  // namespace syncline

// How an exchange stands: whether what came is what was due, who is waited for, what was done when.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "coder.hpp"
#include "lane.hpp"

namespace syncline::wire {
namespace {

std::string hex(std::uint32_t number) {
    char text[16];
    std::snprintf(text, sizeof text, "%#x", number);
    return text;
}

}  // namespace

int LaneState::find(int shard) const {
    const float* values = posting_.values + low(shard);
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < length(shard); ++i) {
        if (!std::isfinite(values[i])) {
            bad = i;
            break;
        }
    }
    const std::int64_t element = spec_.offset + low(shard) + bad;
    const auto end = std::upper_bound(spec_.ends.begin(), spec_.ends.end(), element);
    const auto place = static_cast<int>(end - spec_.ends.begin());
    return spec_.ends.empty() ? 0 : std::min(place, static_cast<int>(spec_.ends.size()) - 1);
}

Outcome LaneState::judged(const Prefix& got, std::uint32_t total, std::size_t payload, int peer) const {
    if (total < sizeof(Prefix)) return {Status::disagreed, peer, -1, "fewer bytes came than a message has"};
    if (got.protocol == kLaneProtocol && (got.flags & kFailed) != 0) {
        return {Status::failed, static_cast<int>(got.origin), -1, ""};
    }
    const Prefix due = prefix(0, 0, 0);
    const auto differs = [](const char* name, std::uint32_t found, std::uint32_t wanted) {
        return std::string(name) + " is " + hex(found) + " and " + hex(wanted) + " was due";
    };
    const std::pair<const char*, std::pair<std::uint32_t, std::uint32_t>> fields[] = {
        {"start mark", {got.protocol, due.protocol}}, {"codec or version", {got.codec, due.codec}},
        {"parameters of the bucket", {got.layout, due.layout}}, {"sequence", {got.sequence, due.sequence}}};
    for (const auto& [name, numbers] : fields) {
        if (numbers.first != numbers.second) {
            return {Status::disagreed, peer, -1, differs(name, numbers.first, numbers.second)};
        }
    }
    if (got.step != due.step) {
        return {Status::disagreed, peer, static_cast<int>(got.step), differs("step", got.step, due.step)};
    }
    if ((got.flags & kNotFinite) != 0) {
        return {Status::troubled, static_cast<int>(got.origin), static_cast<int>(got.detail), ""};
    }
    if (total != sizeof(Prefix) + payload) {
        return {Status::disagreed, peer, -1,
                "length is " + hex(total) + " and " + hex(static_cast<std::uint32_t>(sizeof(Prefix) + payload)) + " was due"};
    }
    return {};
}

std::vector<WorkSpan> LaneState::take_spans() {
    std::vector<WorkSpan> all = std::exchange(spans_, {});
    for (const int peer : peers_) {
        const Side& one = side(peer);
        if (is_decided_) all.push_back({Work::shards, peer, posted_s_, std::max(posted_s_, one.shard_s), one.shard_total});
        if (one.has_sum) all.push_back({Work::sums, peer, summed_s_, std::max(summed_s_, one.sum_s), one.sum_total});
    }
    return all;
}

bool LaneState::is_done() const {
    if (num_tasks_ > 0) return false;
    if (is_over() && outcome_.status != Status::troubled) return true;
    if (!is_encoded_ || !is_decided_) return false;
    for (const int peer : peers_) {
        const Side& one = sides_[static_cast<std::size_t>(peer)];
        if (one.shard_out && !one.shard_out->is_over) return false;
        if (sends_in_place() && one.sum_out && !one.sum_out->is_over) return false;
        if (outcome_.status == Status::fine && !spec_.scatter_only && !one.is_decoded) return false;
    }
    return is_reduced_ || is_over();
}

Outcome LaneState::trouble_with_peers() const {
    for (const int peer : peers_) {
        const Side& one = sides_[static_cast<std::size_t>(peer)];
        const bool waits = (!is_decided_ && !one.has_shard) ||
                           (is_decided_ && !spec_.scatter_only && !is_over() && !one.has_sum) ||
                           (one.shard_out && !one.shard_out->is_over) ||
                           (sends_in_place() && one.sum_out && !one.sum_out->is_over);
        const Outcome trouble = hub_.trouble_with(peer);
        if (trouble.status == Status::closed || (waits && trouble.status != Status::fine)) return trouble;
    }
    return {};
}

int LaneState::first_late() const {
    for (const int peer : peers_) {
        const Side& one = sides_[static_cast<std::size_t>(peer)];
        if (!is_decided_ ? !one.has_shard : !one.has_sum) return peer;
    }
    return peers_.empty() ? rank_ : peers_.front();
}

void LaneState::take_back(const float* values, float* residual) {
    std::vector<float> sent;
    for (const int peer : peers_) {
        if (side(peer).out.empty()) continue;
        const std::int64_t at = low(peer), count = length(peer);
        sent.assign(static_cast<std::size_t>(count), 0.0f);
        decode(spec_.coder, side(peer).out.data(), {sent.data(), count, false, 1.0f});
        for (std::int64_t i = 0; i < count; ++i) {
            const float change = sent[static_cast<std::size_t>(i)] - values[at + i];
            if (std::isfinite(change)) residual[at + i] += change;
        }
    }
}

}  // namespace syncline::wire

#include "lane.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "coder.hpp"

namespace syncline::wire {
namespace {

constexpr std::int64_t kNear = 4096;  // elements that are looked at twice while they are in the nearest cache

FrameSums taken(Sealer& sealer) { return std::make_shared<const std::vector<std::uint32_t>>(sealer.take()); }

Part part_of(Prefix& prefix) { return {reinterpret_cast<std::uint8_t*>(&prefix), sizeof prefix}; }

}  // namespace

LaneState::LaneState(Hub& hub, LaneSpec spec)
    : hub_(hub),
      spec_(std::move(spec)),
      rank_(hub.options.rank),
      size_(hub.options.size),
      is_plain_(is_plain(spec_.coder)),
      sides_(static_cast<std::size_t>(size_)) {
    const auto count = static_cast<std::size_t>(size_);
    if (spec_.bounds.size() != count + 1 || spec_.payload_bytes.size() != count) {
        throw std::invalid_argument("a lane needs a shard for every rank");
    }
    if (!std::is_sorted(spec_.bounds.begin(), spec_.bounds.end()) || spec_.bounds.front() != 0) {
        throw std::invalid_argument("shards of a lane must follow each other from 0");
    }
    for (int k = 1; k < size_; ++k) peers_.push_back((rank_ + k) % size_);
    if (!is_plain_) sum_.resize(payload_bytes(rank_));
    for (const int peer : peers_) {
        Side& one = side(peer);
        if (!is_plain_) one.out.resize(payload_bytes(peer));
        if (!is_plain_ && !spec_.scatter_only) one.sum_in.resize(payload_bytes(peer));
        sent_bytes_ += static_cast<std::int64_t>(sizeof(Prefix) + payload_bytes(peer));
        if (!spec_.scatter_only) sent_bytes_ += static_cast<std::int64_t>(sizeof(Prefix) + payload_bytes(rank_));
    }
}

std::size_t LaneState::payload_bytes(int shard) const {
    return static_cast<std::size_t>(spec_.payload_bytes[static_cast<std::size_t>(shard)]);
}

Prefix LaneState::prefix(std::uint32_t flags, int origin, int detail) const {
    return {kLaneProtocol,  spec_.codec, spec_.layout, posting_.sequence, posting_.step, flags,
            static_cast<std::uint32_t>(origin), static_cast<std::uint32_t>(detail)};
}

void LaneState::open_first() {
    for (const int peer : peers_) {
        Side& one = side(peer);
        one.has_shard = false;
        one.is_open = true;
        hub_.open(peer, 2 * spec_.tag, this, kShards, part_of(one.shard_prefix));
    }
}

void LaneState::expect_rooms(bool some) {
    const int count = static_cast<int>(peers_.size());
    hub_.rooms.expect(payload_bytes(rank_), some ? count : -count);
}

// Whoever has this tag next gets what came for it, also what came already.
bool LaneState::hand_over() {
    if (is_handed_over_) return true;
    if (num_tasks_ > 0) return false;
    for (const int peer : peers_) {
        Side& one = side(peer);
        if (!hub_.unopen(peer, 2 * spec_.tag, this) || !hub_.unopen(peer, 2 * spec_.tag + 1, this)) return false;
        if (one.has_shard && is_decided_ && one.shard_total <= sizeof(Prefix) + payload_bytes(rank_)) {
            const Part parts[2] = {part_of(one.shard_prefix), {one.in.get(), payload_bytes(rank_)}};
            hub_.put_back(peer, 2 * spec_.tag, parts, one.shard_total);
        }
        one.has_shard = false;
        hub_.rooms.give(std::move(one.in), payload_bytes(rank_));
    }
    is_handed_over_ = true;
    return true;
}

bool LaneState::leave(bool waits) {
    if (!hand_over()) return false;
    std::vector<OutPointer> sent = told_;
    for (const int peer : peers_) {
        sent.push_back(side(peer).shard_out);
        sent.push_back(side(peer).sum_out);
    }
    // Others need what was sent last, though this rank needs nothing more.
    for (const OutPointer& message : sent) {
        if (!message) continue;
        if (!message->is_over && waits && hub_.trouble_with(message->peer).status == Status::fine) return false;
        hub_.forget(message);
        if (message->num_being_written > 0) return false;
    }
    const auto found = hub_.lanes.find(spec_.tag);
    if (found != hub_.lanes.end() && found->second == this) hub_.lanes.erase(found);
    return true;
}

// Run without the lock, on a thread of the wire; what follows from it is done with the lock.
void LaneState::run(Hub::Kind kind, void (LaneState::*work)(int), int argument) {
    ++num_tasks_;
    hub_.add_task(spec_.priority, kind, [this, work, argument] { (this->*work)(argument); });
}

void LaneState::post(Posting posting) {
    posting_ = std::move(posting);
    outcome_ = told_by_ = {};
    bad_.clear();
    spans_.clear();
    is_encoded_ = is_decided_ = is_reducing_ = is_reduced_ = is_told_ = false;
    for (const int peer : peers_) {
        Side& one = side(peer);
        one.has_sum = one.is_decoded = one.is_placed = false;
        one.shard_out.reset();
        if (!spec_.scatter_only) hub_.open(peer, 2 * spec_.tag + 1, this, kSums, part_of(one.sum_prefix));
    }
    num_to_encode_ = size_;
    if (posting_.fail) {
        send_shards(kFailed, spec_.origin, 0);
        fail({Status::failed, spec_.origin, -1, "this rank"});
    } else if (posting_.trouble) {
        send_shards(kNotFinite, posting_.trouble->first, posting_.trouble->second);
        decide();
    } else {
        for (const int peer : peers_) run(Hub::Kind::ahead, &LaneState::do_encode, peer);
        run(Hub::Kind::ahead, &LaneState::do_check, rank_);
    }
}

void LaneState::took(Work work, int peer, double began_s, std::int64_t size) {
    spans_.push_back({work, peer, began_s, now_s(), size});
}

// Begins with the prefix that stands before whatever is sent when nothing is wrong.
Sealer LaneState::sealer(std::size_t payload) const {
    const Prefix first = prefix(0, 0, 0);
    Sealer made(static_cast<std::uint32_t>(sizeof first + payload), hub_.options.frame_bytes);
    made.add(&first, sizeof first);
    return made;
}

void LaneState::do_encode(int peer) {
    const double began = now_s();
    const std::int64_t at = low(peer), count = length(peer);
    float* values = posting_.values + at;
    float* residual = posting_.residual == nullptr ? nullptr : posting_.residual + at;
    bool finite = true;
    Sealer seals = sealer(payload_bytes(peer));
    if (sends_in_place()) {
        for (std::int64_t from = 0; from < count; from += kNear) {
            const std::int64_t some = std::min(kNear, count - from);
            finite &= is_finite(values + from, some);
            seals.add(values + from, static_cast<std::size_t>(4 * some));
        }
    } else {
        if (side(peer).out.empty()) side(peer).out.resize(payload_bytes(peer));  // plain, with a residual
        finite = encode(spec_.coder, {values, residual, count}, side(peer).out.data());
        seals.add(side(peer).out.data(), payload_bytes(peer));
    }
    side(peer).shard_sums = taken(seals);
    const std::lock_guard hold(hub_.mutex);
    took(Work::encode, peer, began, 4 * count);
    encoded(peer, finite);
}

void LaneState::do_check(int shard) {
    const bool finite = is_finite(posting_.values + low(shard), length(shard));
    const std::lock_guard hold(hub_.mutex);
    encoded(shard, finite);
}

void LaneState::encoded(int shard, bool finite) {
    --num_tasks_;
    if (!finite) bad_.push_back(shard);
    if (--num_to_encode_ == 0) {
        if (bad_.empty()) {
            send_shards(0, 0, 0);
        } else {
            // The own shard first, then as they are sent: the same rank names the same parameter whatever its threads do.
            std::sort(bad_.begin(), bad_.end(),
                      [this](int a, int b) { return (a - rank_ + size_) % size_ < (b - rank_ + size_) % size_; });
            posting_.trouble = {spec_.origin, find(bad_.front())};
            send_shards(kNotFinite, posting_.trouble->first, posting_.trouble->second);
        }
        decide();
    }
    moved();
}

void LaneState::send_shards(std::uint32_t flags, int origin, int detail) {
    is_encoded_ = true;
    posted_s_ = now_s();
    shard_prefix_ = prefix(flags, origin, detail);
    for (const int peer : peers_) {
        Part payload{};
        if (flags == 0) {
            auto* values = reinterpret_cast<std::uint8_t*>(posting_.values + low(peer));
            payload = {sends_in_place() ? values : side(peer).out.data(), payload_bytes(peer)};
        }
        side(peer).shard_out =
            hub_.send(peer, 2 * spec_.tag, 2 * spec_.priority, this, kShards, part_of(shard_prefix_), payload,
                      flags == 0 ? side(peer).shard_sums : nullptr);
    }
}

Part LaneState::place(std::uint32_t key, int peer, std::uint32_t total) {
    Side& one = side(peer);
    if (key == kShards) {
        one.shard_total = total;
        if (!one.in) one.in = hub_.rooms.take(payload_bytes(rank_));
        return {one.in.get(), payload_bytes(rank_)};
    }
    one.sum_total = total;
    if (total <= sizeof(Prefix)) return {};
    // A sum has my shard in it: what is still to be acknowledged of that has come.
    hub_.release(one.shard_out);
    const bool in_place = is_plain_ && one.shard_out && one.shard_out->num_being_written == 0 &&
                          posting_.residual == nullptr;
    one.is_placed = in_place;
    if (in_place) return {reinterpret_cast<std::uint8_t*>(posting_.values + low(peer)), payload_bytes(peer)};
    if (one.sum_in.empty()) one.sum_in.resize(payload_bytes(peer));
    return {one.sum_in.data(), one.sum_in.size()};
}

void LaneState::arrived(std::uint32_t key, int peer, std::uint32_t total) {
    Side& one = side(peer);
    if (key == kShards) {
        one.has_shard = true;
        one.is_open = false;
        one.shard_total = total;
        one.shard_s = now_s();
        decide();
    } else {
        one.has_sum = true;
        one.sum_total = total;
        one.sum_s = now_s();
        const Outcome judgement = judged(one.sum_prefix, total, payload_bytes(peer), peer);
        if (judgement.status != Status::fine && !is_decided_) {
            told_by_ = judgement;  // what this rank finds itself says more
        } else if (judgement.status != Status::fine) {
            fail(judgement);
        } else if (one.is_placed) {
            one.is_decoded = true;
        } else {
            run(Hub::Kind::due, &LaneState::do_decode, peer);
        }
    }
    moved();
}

// Once everything that peers sent is there: go on, or end as all ranks do alike.
void LaneState::decide() {
    if (is_decided_ || !is_encoded_) return;
    for (const int peer : peers_) {
        if (!side(peer).has_shard) return;
    }
    is_decided_ = true;
    Outcome found;
    if (posting_.trouble) found = {Status::troubled, posting_.trouble->first, posting_.trouble->second, ""};
    for (const int peer : peers_) {
        const Side& one = side(peer);
        const Outcome judgement = judged(one.shard_prefix, one.shard_total, payload_bytes(rank_), peer);
        if (judgement.status == Status::fine) continue;
        if (judgement.status != Status::troubled) {
            fail(judgement);
            return;
        }
        if (found.status == Status::fine || judgement.rank < found.rank) found = judgement;
    }
    if (found.status != Status::fine) {
        outcome_ = found;
        for (const int peer : peers_) hub_.unopen(peer, 2 * spec_.tag + 1, this);  // no sums will come
        open_first();
        moved();
        return;
    }
    if (told_by_.status != Status::fine) {
        fail(told_by_);
        return;
    }
    maybe_reduce();
}

// The sum's memory is free once the last one has been received by all.
void LaneState::maybe_reduce() {
    if (!is_decided_ || is_reducing_ || is_over()) return;
    for (const int peer : peers_) {
        const OutPointer& last = side(peer).sum_out;
        if (last && !last->is_over) return;
    }
    is_reducing_ = true;
    run(Hub::Kind::due, &LaneState::do_reduce, rank_);
}

void LaneState::do_reduce(int) {
    const double began = now_s();
    const std::int64_t at = low(rank_), count = length(rank_);
    float* residual = posting_.residual == nullptr ? nullptr : posting_.residual + at;
    if (sum_.empty() && !sends_in_place()) sum_.resize(payload_bytes(rank_));  // plain, with a residual
    std::vector<const std::uint8_t*> payloads;
    for (const int peer : peers_) payloads.push_back(side(peer).in.get());
    const float share = 1.0f / static_cast<float>(size_);
    const bool owes = residual != nullptr;
    codec::Reduction all{payloads.data(), static_cast<std::int64_t>(payloads.size()), posting_.values + at, residual,
                         count, sum_.data(), owes ? 1.0f : share, owes ? share : 1.0f};
    if (spec_.scatter_only) {
        all.residual = nullptr;
        all.payload = nullptr;
        all.before = posting_.scale;
        all.after = 1.0f;
    }
    if (sends_in_place()) all.payload = nullptr;  // the sum is sent from where it is made
    reduce_all(all);
    const std::lock_guard hold(hub_.mutex);
    --num_tasks_;
    took(Work::reduce, rank_, began, 4 * count);
    summed_s_ = now_s();
    is_reduced_ = true;
    for (const int peer : peers_) hub_.rooms.give(std::move(side(peer).in), payload_bytes(rank_));
    open_first();
    if (!spec_.scatter_only && !is_over()) send_sums();
    moved();
}

// Sum, and take the checksums of what is sent to every peer once.
void LaneState::reduce_all(codec::Reduction all) {
    if (spec_.scatter_only) {
        reduce(spec_.coder, all);
        return;
    }
    Sealer seals = sealer(payload_bytes(rank_));
    if (all.payload != nullptr) {
        reduce(spec_.coder, all);
        seals.add(all.payload, payload_bytes(rank_));
    } else {
        std::vector<const std::uint8_t*> payloads(all.payloads, all.payloads + all.num_payloads);
        all.payloads = payloads.data();
        for (std::int64_t left = all.size; left > 0; left -= all.size) {
            all.size = std::min(kNear, left);
            reduce(spec_.coder, all);
            seals.add(all.own, static_cast<std::size_t>(4 * all.size));
            all.own += all.size;
            for (const std::uint8_t*& payload : payloads) payload += 4 * all.size;
        }
    }
    sum_sums_ = taken(seals);
}

// After shards of the same priority: when the last shard has gone there is still enough to send until it is summed.
void LaneState::send_sums() {
    sum_prefix_ = prefix(0, 0, 0);
    auto* own = reinterpret_cast<std::uint8_t*>(posting_.values + low(rank_));
    for (const int peer : peers_) {
        side(peer).sum_out =
            hub_.send(peer, 2 * spec_.tag + 1, 2 * spec_.priority - 1, this, kSums, part_of(sum_prefix_),
                      {sends_in_place() ? own : sum_.data(), payload_bytes(rank_)}, sum_sums_);
    }
}

void LaneState::do_decode(int owner) {
    const double began = now_s();
    const float scale = posting_.residual == nullptr ? 1.0f : 1.0f / static_cast<float>(size_);
    decode(spec_.coder, side(owner).sum_in.data(), {posting_.values + low(owner), length(owner), false, scale});
    const std::lock_guard hold(hub_.mutex);
    --num_tasks_;
    took(Work::decode, owner, began, 4 * length(owner));
    side(owner).is_decoded = true;
    moved();
}

void LaneState::sent(std::uint32_t key, int) {
    if (key == kSums) maybe_reduce();
    moved();
}

void LaneState::moved() {
    if (is_reduced()) reduced_.notify_all();
    if (is_done()) done_.notify_all();
    if (!is_busy() && trouble_with_peers().status != Status::fine) wake_all();
}

void LaneState::wake_all() {
    reduced_.notify_all();
    done_.notify_all();
}

void LaneState::fail(Outcome outcome) {
    if (outcome_.status != Status::fine && outcome_.status != Status::troubled) return;
    outcome_ = std::move(outcome);
    if (!is_told_ && !spec_.scatter_only) {
        is_told_ = true;
        fail_prefix_ = prefix(kFailed, spec_.origin, 0);
        for (const int peer : peers_) {
            told_.push_back(
                hub_.send(peer, 2 * spec_.tag + 1, 2 * spec_.priority + 1, this, kFailure, part_of(fail_prefix_), {}));
        }
    }
    moved();
}

}  // namespace syncline::wire

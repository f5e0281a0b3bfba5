// When things happen: a calendar of small entries, 8 bytes each, for events that lie close ahead.
//
// Near events are kept in buckets of a power of two of picoseconds, unsorted, in chunks of a few cache lines that are only
// written to until then. A bucket is sorted shortly before its turn comes, which costs a few compares an event however many are
// pending, and the sorted batch tells what will be needed next, so that it can be fetched ahead. Far events (timers) wait
// in slots and come near once.
// Events of one moment happen in the order of their numbers: the same input gives the same course.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <queue>
#include <vector>

#include "pages.hpp"

namespace syncline::packet {

using Time = std::int64_t;  // picoseconds

class Calendar {
public:
    // `width_bits`: a bucket is 2^width_bits ps wide.
    explicit Calendar(int width_bits)
        : shift_(width_bits),
          span_(Time{kSlotBuckets} << width_bits),
          buckets_(kBuckets),
          busy_(kBuckets / 64, 0),
          slots_(kSlots),
          horizon_(Time{kBuckets} << width_bits) {}

    void push(Time at, std::uint32_t what) {
        ++pending_;
        if (at < horizon_) {
            near(at, what);
        } else {
            far(at, what);
        }
    }

    // Moves to the next event; false when there is none at or before `until`.
    bool next(Time until) {
        if (position_ == batch_.size() && !open(until)) return false;
        return start_ + static_cast<Time>(batch_[position_] >> 32) <= until;
    }
    Time time() const { return start_ + static_cast<Time>(batch_[position_] >> 32); }
    std::uint32_t what() const { return static_cast<std::uint32_t>(batch_[position_]); }
    void pop() {
        ++position_;
        --pending_;
        fresh_ = false;
    }
    // Nothing of the batch has been seen before.
    bool at_start_of_batch() const { return fresh_; }
    // Opens buckets before their turn until `ahead` more events are in order, where so many are near.
    void foresee(std::size_t ahead) {
        while (batch_.size() - position_ <= ahead && num_near_ != 0 && append()) {
        }
    }
    // What comes `ahead` places later, or `none`: only to fetch it early.
    std::uint32_t peek(std::size_t ahead, std::uint32_t none) const {
        const std::size_t at = position_ + ahead;
        return at < batch_.size() ? static_cast<std::uint32_t>(batch_[at]) : none;
    }
    std::int64_t pending() const { return pending_; }

private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
    static constexpr int kBuckets = 1 << 14;
    static constexpr int kSlotBuckets = kBuckets / 8;
    static constexpr int kSlots = 1 << 12;
    static constexpr int kPartBits = 8;
    static constexpr std::uint32_t kFew = 16;
    static constexpr Time kReach = Time{1} << 31;  // of the batch, whose entries hold times in 32 bits

    static constexpr std::uint32_t kChunk = 31;

    struct Bucket {
        std::uint32_t chunk = kNone;  // the last one, which is being filled
        std::uint32_t count = kChunk;  // entries in it
    };
    struct alignas(64) Chunk {
        std::uint32_t next;
        std::uint64_t entry[kChunk];
    };
    struct Far {
        Time at;
        std::uint32_t what;
        bool operator>(const Far& other) const { return at != other.at ? at > other.at : what > other.what; }
    };

    static std::uint64_t entry_of(Time after, std::uint32_t what) {
        return static_cast<std::uint64_t>(after) << 32 | what;
    }

    void near(Time at, std::uint32_t what) {
        if (at < open_end_) {
            // It falls into a bucket that is being worked off: put it in its place among what is left.
            const std::uint64_t key = entry_of(std::max<Time>(at - start_, 0), what);
            batch_.insert(std::upper_bound(batch_.begin() + static_cast<std::ptrdiff_t>(position_), batch_.end(), key), key);
            return;
        }
        const std::size_t number = static_cast<std::size_t>(at >> shift_) & (kBuckets - 1);
        Bucket& bucket = buckets_[number];
        if (bucket.count == kChunk) {
            const std::uint32_t fresh = take_chunk();
            chunks_[fresh].next = bucket.chunk;
            bucket = {fresh, 0};
            busy_[number >> 6] |= std::uint64_t{1} << (number & 63);
        }
        chunks_[bucket.chunk].entry[bucket.count++] = entry_of(at & ((Time{1} << shift_) - 1), what);
        ++num_near_;
    }

    void far(Time at, std::uint32_t what) {
        const Time slot = at / span_;
        if (slot < horizon_ / span_ + kSlots) {
            slots_[static_cast<std::size_t>(slot) & (kSlots - 1)].push_back({at, what});
            ++num_slotted_;
        } else {
            farthest_.push({at, what});
        }
    }

    std::uint32_t take_chunk() {
        if (free_ == kNone) {
            chunks_.push_back({});
            return static_cast<std::uint32_t>(chunks_.size() - 1);
        }
        const std::uint32_t chunk = free_;
        free_ = chunks_[chunk].next;
        return chunk;
    }

    // The near window always reaches between 7/8 and 8/8 of the calendar past the open bucket.
    void reach(Time from) {
        while (horizon_ + span_ <= from + (Time{kBuckets} << shift_)) advance_horizon();
    }

    void advance_horizon() {
        const Time slot = horizon_ / span_;
        while (!farthest_.empty() && farthest_.top().at / span_ < slot + kSlots) {
            const Far row = farthest_.top();
            farthest_.pop();
            far(row.at, row.what);
        }
        horizon_ += span_;
        auto& rows = slots_[static_cast<std::size_t>(slot) & (kSlots - 1)];
        num_slotted_ -= static_cast<std::int64_t>(rows.size());
        for (const Far& row : rows) near(row.at, row.what);
        rows.clear();
    }

    bool open(Time until) {
        while (num_near_ == 0) {
            if (num_slotted_ == 0) {
                if (farthest_.empty()) return false;
                // Nothing for a long time: start the window just before the next event.
                const Time slot = farthest_.top().at / span_;
                horizon_ = std::max(horizon_, slot * span_);
            }
            if (horizon_ > until) return false;
            advance_horizon();
        }
        const Time number = next_bucket();
        if ((number << shift_) > until) return false;
        start_ = number << shift_;
        batch_.clear();
        position_ = 0;
        fresh_ = true;
        take_bucket(number);
        return true;
    }

    // The first bucket with something in it after those that have been opened.
    Time next_bucket() const {
        const Time first = std::max(open_end_ >> shift_, (horizon_ >> shift_) - kBuckets);
        const std::size_t place = first_busy(static_cast<std::size_t>(first) & (kBuckets - 1));
        // The bucket's number follows from its place in the window that ends at the horizon.
        const Time last = (horizon_ >> shift_) - 1;
        return last - ((last - static_cast<Time>(place)) & (kBuckets - 1));
    }

    // Puts the next bucket behind what is left of the batch, whose entries count from the first of them from then on.
    bool append() {
        const Time number = next_bucket(), first = time();
        if ((number << shift_) - first >= kReach) return false;
        const std::uint64_t earlier = entry_of(first - start_, 0);
        const auto left = batch_.begin() + static_cast<std::ptrdiff_t>(position_);
        std::transform(left, batch_.end(), batch_.begin(), [earlier](std::uint64_t entry) { return entry - earlier; });
        batch_.resize(batch_.size() - position_);
        position_ = 0;
        start_ = first;
        take_bucket(number);
        return true;
    }

    // Empties a bucket into the batch, in order.
    void take_bucket(Time number) {
        const std::size_t place = static_cast<std::size_t>(number) & (kBuckets - 1);
        unsorted_.clear();
        std::uint32_t chunk = buckets_[place].chunk, count = buckets_[place].count;
        while (chunk != kNone) {
            Chunk& from = chunks_[chunk];
            const std::uint32_t after = from.next;
            if (after != kNone) __builtin_prefetch(&chunks_[after]);
            unsorted_.insert(unsorted_.end(), from.entry, from.entry + count);
            from.next = free_;
            free_ = chunk;
            chunk = after;
            count = kChunk;
        }
        buckets_[place] = {};
        busy_[place >> 6] &= ~(std::uint64_t{1} << (place & 63));
        num_near_ -= static_cast<std::int64_t>(unsorted_.size());
        open_end_ = (number + 1) << shift_;
        sort_behind(entry_of((number << shift_) - start_, 0));
        reach(number << shift_);
    }

    // Puts what was unsorted behind the batch, each time later by `later`. Times spread evenly over a bucket: the entries
    // are dealt out by the upper bits of theirs, after which few are out of place.
    void sort_behind(std::uint64_t later) {
        const int bits = std::clamp(static_cast<int>(std::bit_width(unsorted_.size())), 1, kPartBits);
        const int drop = 32 + std::max(shift_ - bits, 0);
        const std::size_t num_parts = std::size_t{1} << bits;
        std::array<std::uint32_t, (1 << kPartBits) + 1> start;
        std::fill_n(start.begin(), num_parts + 1, 0);
        for (const std::uint64_t entry : unsorted_) ++start[(entry >> drop) + 1];
        std::uint32_t most = 0;
        for (std::size_t part = 1; part <= num_parts; ++part) {
            most = std::max(most, start[part]);
            start[part] += start[part - 1];
        }
        const std::size_t before = batch_.size();
        batch_.resize(before + unsorted_.size());
        std::uint64_t* const sorted = batch_.data() + before;
        for (const std::uint64_t entry : unsorted_) sorted[start[entry >> drop]++] = entry + later;
        if (most > kFew) {
            sort_parts(sorted, start.data(), num_parts);
        } else {
            settle(sorted, unsorted_.size());
        }
    }

    // Each start is by now the end of its part.
    static void sort_parts(std::uint64_t* sorted, const std::uint32_t* ends, std::size_t num_parts) {
        std::uint32_t from = 0;
        for (std::size_t part = 0; part < num_parts; ++part) {
            if (ends[part] - from > 1) std::sort(sorted + from, sorted + ends[part]);
            from = ends[part];
        }
    }

    // Sorts what is almost in order.
    static void settle(std::uint64_t* sorted, std::size_t num) {
        for (std::size_t i = 1; i < num; ++i) {
            const std::uint64_t entry = sorted[i];
            std::size_t at = i;
            for (; at > 0 && sorted[at - 1] > entry; --at) sorted[at] = sorted[at - 1];
            sorted[at] = entry;
        }
    }

    std::size_t first_busy(std::size_t from) const {
        std::size_t word = from >> 6;
        std::uint64_t bits = busy_[word] & (~std::uint64_t{0} << (from & 63));
        while (bits == 0) {
            word = (word + 1) & (busy_.size() - 1);
            bits = busy_[word];
        }
        return (word << 6) + static_cast<std::size_t>(std::countr_zero(bits));
    }

    int shift_;
    Time span_;
    std::vector<Bucket> buckets_;
    std::vector<std::uint64_t> busy_;
    Table<Chunk> chunks_;
    std::uint32_t free_ = kNone;
    std::vector<std::vector<Far>> slots_;
    std::priority_queue<Far, std::vector<Far>, std::greater<>> farthest_;
    Time horizon_;
    Time start_ = 0;     // entries of the batch count from here
    Time open_end_ = 0;  // events before this go into the batch
    bool fresh_ = false;
    std::vector<std::uint64_t> batch_, unsorted_;
    std::size_t position_ = 0;
    std::int64_t pending_ = 0;
    std::int64_t num_near_ = 0;
    std::int64_t num_slotted_ = 0;
};

}  // namespace syncline::packet

// When things happen: a calendar of small entries, 8 bytes each, for events that lie close ahead.
//
// Near events are kept in buckets of a power of two of picoseconds, unsorted, in chunks of a few cache lines that are only
// written to until then. A bucket is sorted when its turn comes, which costs a few compares an event however many are
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
    }
    bool at_start_of_batch() const { return position_ == 0; }
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
    static constexpr std::size_t kFew = 24;

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

    void near(Time at, std::uint32_t what) {
        const Time bucket_start = (at >> shift_) << shift_;
        const std::uint64_t key = (static_cast<std::uint64_t>(at - bucket_start) << 32) | what;
        if (bucket_start <= start_ && opened_) {
            // It falls into the bucket that is being worked off: put it in its place among what is left.
            const std::uint64_t late = at < start_ ? what : key;
            batch_.insert(std::upper_bound(batch_.begin() + static_cast<std::ptrdiff_t>(position_), batch_.end(), late),
                          late);
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
        chunks_[bucket.chunk].entry[bucket.count++] = key;
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
        const Time first = std::max(opened_ ? (start_ >> shift_) + 1 : 0, (horizon_ >> shift_) - kBuckets);
        const std::size_t bucket = first_busy(static_cast<std::size_t>(first) & (kBuckets - 1));
        // The bucket's start follows from its place in the window that ends at the horizon.
        const Time last = (horizon_ >> shift_) - 1;
        const Time number = last - ((last - static_cast<Time>(bucket)) & (kBuckets - 1));
        if ((number << shift_) > until) return false;
        start_ = number << shift_;
        opened_ = true;
        take_batch(bucket);
        reach(start_);
        return true;
    }

    // Empty a bucket into the batch, in order.
    void take_batch(std::size_t number) {
        unsorted_.clear();
        std::uint32_t chunk = buckets_[number].chunk, count = buckets_[number].count;
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
        buckets_[number] = {};
        busy_[number >> 6] &= ~(std::uint64_t{1} << (number & 63));
        num_near_ -= static_cast<std::int64_t>(unsorted_.size());
        position_ = 0;
        if (unsorted_.size() <= kFew) {
            batch_.swap(unsorted_);
            std::sort(batch_.begin(), batch_.end());
        } else {
            sort_by_parts();
        }
    }

    // Times spread evenly over a bucket: deal the entries out by the upper bits of theirs, then sort each part.
    void sort_by_parts() {
        const int drop = 32 + std::max(shift_ - kPartBits, 0);
        std::array<std::uint32_t, (1 << kPartBits) + 1> start{};
        for (const std::uint64_t entry : unsorted_) ++start[(entry >> drop) + 1];
        for (std::size_t part = 1; part < start.size(); ++part) start[part] += start[part - 1];
        batch_.resize(unsorted_.size());
        for (const std::uint64_t entry : unsorted_) batch_[start[entry >> drop]++] = entry;
        std::uint32_t from = 0;
        for (std::size_t part = 0; part + 1 < start.size(); ++part) {  // each start is now the end of its part
            const std::uint32_t until = start[part];
            if (until - from > 1) std::sort(batch_.begin() + from, batch_.begin() + until);
            from = until;
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
    Time start_ = 0;
    bool opened_ = false;
    std::vector<std::uint64_t> batch_, unsorted_;
    std::size_t position_ = 0;
    std::int64_t pending_ = 0;
    std::int64_t num_near_ = 0;
    std::int64_t num_slotted_ = 0;
};

}  // namespace syncline::packet

// A heap of numbered entries by time in which an entry's time can change; ties go to the lower number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace syncline {

class MomentHeap {
public:
    explicit MomentHeap(std::size_t num_entries) : place_(num_entries, kAbsent) {}

    bool empty() const { return heap_.empty(); }
    double next_s() const { return heap_.front().first; }
    std::int32_t next() const { return heap_.front().second; }

    void set(std::int32_t entry, double time_s) {
        std::size_t at = place_[static_cast<std::size_t>(entry)];
        if (at == kAbsent) {
            at = heap_.size();
            heap_.emplace_back(time_s, entry);
        } else {
            heap_[at].first = time_s;
        }
        sift_down(sift_up(at));
    }

    void erase(std::int32_t entry) {
        const std::size_t at = place_[static_cast<std::size_t>(entry)];
        if (at == kAbsent) return;
        place_[static_cast<std::size_t>(entry)] = kAbsent;
        const Item last = heap_.back();
        heap_.pop_back();
        if (at == heap_.size()) return;
        put(at, last);
        sift_down(sift_up(at));
    }

private:
    using Item = std::pair<double, std::int32_t>;
    static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
    static constexpr std::size_t kWidth = 4;

    void put(std::size_t at, const Item& item) {
        heap_[at] = item;
        place_[static_cast<std::size_t>(item.second)] = at;
    }

    std::size_t sift_up(std::size_t at) {
        const Item item = heap_[at];
        while (at > 0 && item < heap_[(at - 1) / kWidth]) {
            put(at, heap_[(at - 1) / kWidth]);
            at = (at - 1) / kWidth;
        }
        put(at, item);
        return at;
    }

    void sift_down(std::size_t at) {
        const Item item = heap_[at];
        for (;;) {
            std::size_t best = at;
            Item least = item;
            for (std::size_t child = kWidth * at + 1; child <= kWidth * at + kWidth && child < heap_.size(); ++child)
                if (heap_[child] < least) {
                    best = child;
                    least = heap_[child];
                }
            if (best == at) break;
            put(at, least);
            at = best;
        }
        put(at, item);
    }

    std::vector<Item> heap_;
    std::vector<std::size_t> place_;
};

}  // namespace syncline

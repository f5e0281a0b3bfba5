// Reads the byte counters of a few interfaces every millisecond in a thread of its own, and keeps them in a ring.
//
// Waking a thread a thousand times a second costs 1 % of a core on a virtual machine before anything is read; an
// interpreter doubles that. So the loop is here, the arithmetic is not: rows are taken out in bulk, once or twice a second.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace syncline {

// The interfaces read through one netlink socket (of one network namespace).
struct SampledGroup {
    int socket = -1;  // a bound NETLINK_ROUTE socket; borrowed, must outlive the sampler
    std::vector<std::uint32_t> interfaces;
};

struct SampledRows {
    std::vector<std::int64_t> time_ns;   // CLOCK_MONOTONIC, taken after the row was read
    std::vector<std::uint64_t> counter;  // row-major: rx_bytes, tx_bytes of each interface, in the order given
    std::uint64_t num_lost = 0;          // rows overwritten before they were taken
    std::uint64_t num_late = 0;          // ticks left out because the thread woke too late for them
    std::uint64_t num_failed = 0;        // reads that failed: an interface that is gone keeps its last value
    double cpu_s = 0;                    // processor time of the thread since it started
};

// Tells readings that took so long that nobody knows which moment their counters are of: who reads and then stands still
// would stamp them too late, and what moved meanwhile would seem to have moved in the next, shorter interval.
class ReadingTimer {
public:
    explicit ReadingTimer(std::int64_t least_ns) : least_ns_(least_ns) {}
    bool is_long(std::int64_t took_ns) {
        quickest_ns_ = std::min(quickest_ns_, took_ns);
        return took_ns > std::max(least_ns_, 4 * quickest_ns_);
    }

private:
    std::int64_t least_ns_;
    std::int64_t quickest_ns_ = std::numeric_limits<std::int64_t>::max() / 4;
};

class CounterSampler {
public:
    CounterSampler(std::vector<SampledGroup> groups, std::int64_t period_ns, std::size_t num_rows);
    ~CounterSampler();
    CounterSampler(const CounterSampler&) = delete;
    CounterSampler& operator=(const CounterSampler&) = delete;

    // Returns and forgets every row since the last call; the counts of trouble are since the start.
    SampledRows take();
    void stop();
    [[nodiscard]] std::size_t width() const { return width_; }

private:
    struct Group;
    void run();
    void read(Group& group, std::uint64_t* row);

    std::vector<Group> groups_;
    std::size_t width_ = 0;
    std::int64_t period_ns_;
    std::size_t capacity_;
    std::vector<std::int64_t> time_ns_;
    std::vector<std::uint64_t> counter_;
    std::uint64_t written_ = 0, taken_ = 0, lost_ = 0, late_ = 0;
    std::atomic<std::uint64_t> failed_{0};
    double cpu_s_ = 0;
    std::mutex mutex_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace syncline

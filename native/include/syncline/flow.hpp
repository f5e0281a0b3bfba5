// Flow-level simulation: tasks that wait for each other and share links max-min fairly, from first start to last end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syncline {

// A task waits for all its predecessors and for `start_s`, then for `delay_s` (latency, a compute span), then moves
// `size_bytes` over its path. With no bytes it ends after the delay. Rows in CSR form as in FlowSet.
struct TaskSet {
    std::span<const double> capacity_Bps;  // one per link

    std::span<const std::int64_t> path_start;  // paths: link and share of each crossing
    std::span<const std::int32_t> path_link;
    std::span<const double> path_share;  // empty: every share is 1

    std::span<const std::int32_t> first_path;  // per task: its paths first_path .. first_path + num_paths - 1;
    std::span<const std::int32_t> num_paths;   // with several, the least loaded is taken when the flow starts
    std::span<const double> size_bytes;
    std::span<const double> delay_s;
    std::span<const double> start_s;
    std::span<const double> weight;
    std::span<const double> cap_Bps;
    std::span<const std::uint8_t> priority;

    std::span<const std::int64_t> wait_start;  // predecessors of each task
    std::span<const std::int32_t> wait_for;

    std::span<const double> change_s;  // link changes, by rising time
    std::span<const std::int32_t> change_link;
    std::span<const double> change_Bps;

    std::span<const double> reroute_s;  // path changes, by rising time: from then on the task takes that path
    std::span<const std::int32_t> reroute_task;
    std::span<const std::int32_t> reroute_path;

    std::span<const std::int32_t> tenant;  // per task, -1: nobody's; empty: there are no tenants
    std::span<const double> guarantee;     // per tenant: the part of every link that is its own when it wants it

    std::span<const double> burst_bytes;  // per link, empty: none: what an idle link lets through at once (a token bucket)

    bool record = false;  // keep the load of every link over time
};

struct Course {
    std::vector<double> begin_s;           // when everything the task waits for was done, before its delay
    std::vector<double> end_s;
    std::vector<std::int32_t> path;        // the path it last took; -1: none
    std::vector<std::int32_t> bottleneck;  // the link that held it back last; -1: none did
    std::vector<double> link_bytes;
    std::int64_t num_solves = 0;
    // Samples: link `sample_link` carried `sample_Bps` from `sample_begin_s` to `sample_end_s`; idle times are not in.
    std::vector<std::int32_t> sample_link;
    std::vector<double> sample_begin_s;
    std::vector<double> sample_end_s;
    std::vector<double> sample_Bps;
};

// Throws std::invalid_argument, naming the first task, link or row that breaks a rule above.
void validate(const TaskSet& tasks);

// Throws std::runtime_error when some task can never end: a circle of waits, or a link that stays down. `tasks` must be
// valid.
Course run_flows(const TaskSet& tasks);

}  // namespace syncline

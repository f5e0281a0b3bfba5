// What a TaskSet must obey, and the text that names the first offender.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "number_text.hpp"
#include "syncline/flow.hpp"

namespace syncline {
namespace {

constexpr double kLargest = 1e30;

// The text is made only when it is needed: these checks run once per row.
template <typename What>
void require(bool ok, What what) {
    if (!ok) throw std::invalid_argument(what());
}

template <typename T>
void same_length(std::span<const T> column, std::size_t length, const char* name) {
    require(column.size() == length, [&] {
        return std::string(name) + " has " + text(column.size()) + " entries where " + text(length) + " are needed";
    });
}

void within(std::span<const double> column, double low, double high, const char* name, bool infinite = false) {
    for (std::size_t i = 0; i < column.size(); ++i)
        if (!((column[i] >= low && column[i] <= high) || (infinite && std::isinf(column[i]) && column[i] > 0)))
            throw std::invalid_argument(std::string(name) + " of row " + text(i) + " is " + text(column[i]) +
                                        "; it must lie between " + text(low) + " and " + text(high));
}

void indices(std::span<const std::int32_t> column, std::size_t limit, const char* name) {
    for (std::size_t i = 0; i < column.size(); ++i)
        if (column[i] < 0 || static_cast<std::size_t>(column[i]) >= limit)
            throw std::invalid_argument(std::string(name) + " of row " + text(i) + " is " + text(column[i]) +
                                        "; there are " + text(limit));
}

void rows(std::span<const std::int64_t> start, std::size_t size, const char* name) {
    require(!start.empty() && start.front() == 0, [&] { return std::string(name) + " must begin with 0"; });
    for (std::size_t i = 1; i < start.size(); ++i)
        require(start[i] >= start[i - 1], [&] { return std::string(name) + " falls at row " + text(i); });
    require(static_cast<std::size_t>(start.back()) == size, [&] {
        return std::string(name) + " ends at " + text(start.back()) + " but has " + text(size) + " entries";
    });
}

void rising(std::span<const double> column, const char* name) {
    for (std::size_t i = 1; i < column.size(); ++i)
        require(column[i] >= column[i - 1], [&] { return std::string(name) + " falls at row " + text(i); });
}

void validate_tasks(const TaskSet& tasks) {
    const std::size_t num_tasks = tasks.size_bytes.size();
    require(num_tasks < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
            [&] { return std::string("too many tasks"); });
    same_length(tasks.first_path, num_tasks, "first_path");
    same_length(tasks.num_paths, num_tasks, "num_paths");
    same_length(tasks.delay_s, num_tasks, "delay_s");
    same_length(tasks.start_s, num_tasks, "start_s");
    same_length(tasks.weight, num_tasks, "weight");
    same_length(tasks.cap_Bps, num_tasks, "cap_Bps");
    same_length(tasks.priority, num_tasks, "priority");
    same_length(tasks.wait_start, num_tasks + 1, "wait_start");
    within(tasks.size_bytes, 0, kLargest, "size_bytes");
    within(tasks.delay_s, 0, kLargest, "delay_s");
    within(tasks.start_s, 0, kLargest, "start_s");
    within(tasks.weight, 1e-9, 1e9, "weight");
    within(tasks.cap_Bps, 0, kLargest, "cap_Bps", true);
    rows(tasks.wait_start, tasks.wait_for.size(), "wait_start");
    indices(tasks.wait_for, num_tasks, "wait_for");
}

void validate_paths(const TaskSet& tasks) {
    within(tasks.capacity_Bps, 0, kLargest, "capacity_Bps");
    rows(tasks.path_start, tasks.path_link.size(), "path_start");
    indices(tasks.path_link, tasks.capacity_Bps.size(), "path_link");
    if (!tasks.path_share.empty()) same_length(tasks.path_share, tasks.path_link.size(), "path_share");
    within(tasks.path_share, 1e-9, 1e9, "path_share");
    const auto num_paths = static_cast<std::int64_t>(tasks.path_start.size()) - 1;
    for (std::size_t i = 0; i < tasks.num_paths.size(); ++i) {
        const std::int64_t first = tasks.first_path[i], count = tasks.num_paths[i];
        require(count >= 0 && (count == 0 || (first >= 0 && first + count <= num_paths)), [&] {
            return "task " + text(i) + " names paths " + text(first) + " to " + text(first + count - 1) +
                   "; there are " + text(num_paths);
        });
        for (std::int64_t path = first; path < first + count; ++path) {
            const auto row = static_cast<std::size_t>(path);
            require(tasks.path_start[row] < tasks.path_start[row + 1] || std::isfinite(tasks.cap_Bps[i]), [&] {
                return "task " + text(i) + " crosses no link and has no cap, so nothing bounds its rate";
            });
        }
    }
}

void validate_changes(const TaskSet& tasks) {
    same_length(tasks.change_link, tasks.change_s.size(), "change_link");
    same_length(tasks.change_Bps, tasks.change_s.size(), "change_Bps");
    within(tasks.change_s, 0, kLargest, "change_s");
    within(tasks.change_Bps, 0, kLargest, "change_Bps");
    rising(tasks.change_s, "change_s");
    indices(tasks.change_link, tasks.capacity_Bps.size(), "change_link");
    same_length(tasks.reroute_task, tasks.reroute_s.size(), "reroute_task");
    same_length(tasks.reroute_path, tasks.reroute_s.size(), "reroute_path");
    within(tasks.reroute_s, 0, kLargest, "reroute_s");
    rising(tasks.reroute_s, "reroute_s");
    indices(tasks.reroute_task, tasks.size_bytes.size(), "reroute_task");
    indices(tasks.reroute_path, tasks.path_start.size() - 1, "reroute_path");
}

void validate_tenants(const TaskSet& tasks) {
    if (!tasks.tenant.empty()) same_length(tasks.tenant, tasks.size_bytes.size(), "tenant");
    within(tasks.guarantee, 0, 1, "guarantee");
    double sum = 0;
    for (const double part : tasks.guarantee) sum += part;
    require(sum <= 1 + 1e-12,
            [&] { return "the guarantees of all tenants add up to " + text(sum) + ", more than 1"; });
    const auto num_tenants = static_cast<std::int64_t>(tasks.guarantee.size());
    for (std::size_t i = 0; i < tasks.tenant.size(); ++i)
        require(tasks.tenant[i] >= -1 && tasks.tenant[i] < num_tenants, [&] {
            return "task " + text(i) + " belongs to tenant " + text(tasks.tenant[i]) + "; there are " +
                   text(num_tenants);
        });
}

}  // namespace

void validate(const TaskSet& tasks) {
    validate_tenants(tasks);
    if (!tasks.burst_bytes.empty()) same_length(tasks.burst_bytes, tasks.capacity_Bps.size(), "burst_bytes");
    within(tasks.burst_bytes, 0, kLargest, "burst_bytes");
    validate_tasks(tasks);
    validate_paths(tasks);
    validate_changes(tasks);
}

}  // namespace syncline

#include "syncline/flow.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "moment_heap.hpp"
#include "syncline/sharing.hpp"

namespace syncline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotYet = std::numeric_limits<double>::quiet_NaN();
// Flows that end together in exact arithmetic end this close to each other in doubles; they are taken as one moment.
constexpr double kSameMoment = 1e-13;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Engine {
public:
    explicit Engine(const TaskSet& tasks)
        : tasks_(tasks),
          num_tasks_(tasks.size_bytes.size()),
          sharing_(tasks.capacity_Bps, num_tasks_, tasks.guarantee),
          ends_(num_tasks_),
          remaining_(tasks.size_bytes.begin(), tasks.size_bytes.end()),
          since_s_(num_tasks_, 0),
          waits_(num_tasks_),
          ready_s_(num_tasks_, -kInfinity),
          path_(num_tasks_, -1),
          link_since_s_(tasks.capacity_Bps.size(), 0),
          link_rate_(tasks.capacity_Bps.size(), 0),
          credit_(tasks.burst_bytes.begin(), tasks.burst_bytes.end()),
          credit_since_s_(tasks.burst_bytes.size(), 0) {
        course_.begin_s.assign(num_tasks_, kNotYet);
        course_.end_s.assign(num_tasks_, kNotYet);
        course_.bottleneck.assign(num_tasks_, -1);
        course_.link_bytes.assign(tasks.capacity_Bps.size(), 0);
        index_paths();
        index_successors();
    }

    Course run() {
        for (std::size_t task = 0; task < num_tasks_; ++task)
            if (waits_[task] == 0) become_ready(static_cast<std::int32_t>(task), -kInfinity);
        for (double next = next_moment(); next < kInfinity; next = next_moment()) {
            now_s_ = std::max(now_s_, next);
            const double until_s = now_s_ + kSameMoment * std::abs(now_s_);
            change_links(until_s);
            change_paths(until_s);
            while (end_flows(until_s) | start_tasks(until_s)) {}
            if (sharing_.pending()) share();
        }
        check_all_ended();
        for (std::size_t link = 0; link < link_rate_.size(); ++link) close_sample(static_cast<std::int32_t>(link), 0);
        course_.path = std::move(path_);
        return std::move(course_);
    }

private:
    using Start = std::pair<double, std::int32_t>;

    void index_paths() {
        crossings_.reserve(tasks_.path_link.size());
        for (std::size_t i = 0; i < tasks_.path_link.size(); ++i)
            crossings_.push_back({tasks_.path_link[i], tasks_.path_share.empty() ? 1.0 : tasks_.path_share[i]});
    }

    void index_successors() {
        next_start_.assign(num_tasks_ + 1, 0);
        for (const std::int32_t before : tasks_.wait_for) ++next_start_[at(before) + 1];
        for (std::size_t task = 0; task < num_tasks_; ++task) next_start_[task + 1] += next_start_[task];
        next_.resize(tasks_.wait_for.size());
        std::vector<std::int64_t> place(next_start_.begin(), next_start_.end() - 1);
        for (std::size_t task = 0; task < num_tasks_; ++task) {
            waits_[task] = static_cast<std::int32_t>(tasks_.wait_start[task + 1] - tasks_.wait_start[task]);
            for (auto i = tasks_.wait_start[task]; i < tasks_.wait_start[task + 1]; ++i)
                next_[at(place[at(tasks_.wait_for[at(i)])]++)] = static_cast<std::int32_t>(task);
        }
    }

    std::span<const Crossing> crossings(std::int32_t path) const {
        const auto begin = at(tasks_.path_start[at(path)]);
        return {crossings_.data() + begin, at(tasks_.path_start[at(path) + 1]) - begin};
    }

    double next_moment() const {
        double next = ends_.empty() ? kInfinity : ends_.next_s();
        if (!starts_.empty()) next = std::min(next, starts_.top().first);
        if (next_change_ < tasks_.change_s.size()) next = std::min(next, tasks_.change_s[next_change_]);
        if (next_reroute_ < tasks_.reroute_s.size()) next = std::min(next, tasks_.reroute_s[next_reroute_]);
        return next;
    }

    void change_links(double until_s) {
        for (; next_change_ < tasks_.change_s.size() && tasks_.change_s[next_change_] <= until_s; ++next_change_) {
            refill(tasks_.change_link[next_change_]);
            sharing_.set_capacity(tasks_.change_link[next_change_], tasks_.change_Bps[next_change_]);
        }
    }

    void change_paths(double until_s) {
        for (; next_reroute_ < tasks_.reroute_s.size() && tasks_.reroute_s[next_reroute_] <= until_s; ++next_reroute_) {
            const std::int32_t task = tasks_.reroute_task[next_reroute_];
            path_[at(task)] = tasks_.reroute_path[next_reroute_];
            if (!sharing_.flow(task).active) continue;
            advance(task, sharing_.flow(task).rate_Bps);
            sharing_.remove(task);
            ends_.erase(task);
            add(task);
        }
    }

    void become_ready(std::int32_t task, double time_s) {
        const double ready_s = std::max(time_s, tasks_.start_s[at(task)]);
        course_.begin_s[at(task)] = ready_s;
        starts_.emplace(ready_s + tasks_.delay_s[at(task)], task);
    }

    bool start_tasks(double until_s) {
        bool any = false;
        for (; !starts_.empty() && starts_.top().first <= until_s; any = true) {
            const auto [time_s, task] = starts_.top();
            starts_.pop();
            const bool has_bytes = tasks_.size_bytes[at(task)] > 0;
            const bool moves = has_bytes && (tasks_.num_paths[at(task)] > 0 || path_[at(task)] >= 0);
            if (!moves && !(has_bytes && tasks_.cap_Bps[at(task)] < kInfinity)) {
                end(task, time_s);
                continue;
            }
            since_s_[at(task)] = time_s;
            if (path_[at(task)] < 0 && moves) path_[at(task)] = choose(task);
            if (spend_credit(task)) end(task, time_s);
            else add(task);
        }
        return any;
    }

    void add(std::int32_t task) {
        const std::int32_t path = path_[at(task)];
        sharing_.add(task, path < 0 ? std::span<const Crossing>{} : crossings(path), tasks_.weight[at(task)],
                     tasks_.cap_Bps[at(task)], tasks_.priority[at(task)],
                     tasks_.tenant.empty() ? -1 : tasks_.tenant[at(task)]);
    }

    // A link's bucket fills with what the link does not use.
    void refill(std::int32_t link) {
        if (credit_.empty()) return;
        const double unused = std::max(0.0, sharing_.capacity_Bps(link) - link_rate_[at(link)]);
        const double passed_s = std::max(0.0, now_s_ - credit_since_s_[at(link)]);
        credit_[at(link)] = std::min(tasks_.burst_bytes[at(link)], credit_[at(link)] + unused * passed_s);
        credit_since_s_[at(link)] = now_s_;
    }

    // A flow that starts takes what all its links let through at once; true when that is all it has.
    bool spend_credit(std::int32_t task) {
        if (credit_.empty() || path_[at(task)] < 0) return false;
        double taken = remaining_[at(task)];
        for (const Crossing& crossing : crossings(path_[at(task)])) {
            refill(crossing.link);
            taken = std::min(taken, credit_[at(crossing.link)] / crossing.share);
        }
        remaining_[at(task)] -= taken;
        for (const Crossing& crossing : crossings(path_[at(task)])) {
            credit_[at(crossing.link)] -= taken * crossing.share;
            course_.link_bytes[at(crossing.link)] += taken * crossing.share;
        }
        return remaining_[at(task)] <= 0;
    }

    // The path whose worst link would have the fewest flows for its capacity; of equal ones a different one per task.
    std::int32_t choose(std::int32_t task) const {
        const std::int32_t count = tasks_.num_paths[at(task)];
        std::int32_t best = tasks_.first_path[at(task)];
        if (count == 1) return best;
        auto least = std::pair{kInfinity, kInfinity};
        for (std::int32_t i = 0; i < count; ++i) {
            const std::int32_t path = tasks_.first_path[at(task)] + (i + task) % count;
            auto load = std::pair{0.0, 0.0};
            for (const Crossing& crossing : crossings(path)) {
                const double capacity = sharing_.capacity_Bps(crossing.link);
                const double flows = static_cast<double>(sharing_.num_active(crossing.link)) + 1;
                load.first = std::max(load.first, capacity > 0 ? flows / capacity : kInfinity);
                load.second += capacity > 0 ? sharing_.used_Bps(crossing.link) / capacity : 0;
            }
            if (load < least) {
                least = load;
                best = path;
            }
        }
        return best;
    }

    bool end_flows(double until_s) {
        bool any = false;
        for (; !ends_.empty() && ends_.next_s() <= until_s; any = true) {
            const std::int32_t task = ends_.next();
            const double time_s = ends_.next_s();
            ends_.erase(task);
            course_.bottleneck[at(task)] = sharing_.flow(task).bottleneck;
            sharing_.remove(task);
            end(task, time_s);
        }
        return any;
    }

    void end(std::int32_t task, double time_s) {
        course_.end_s[at(task)] = time_s;
        ++num_ended_;
        for (auto i = next_start_[at(task)]; i < next_start_[at(task) + 1]; ++i) {
            const std::int32_t after = next_[at(i)];
            ready_s_[at(after)] = std::max(ready_s_[at(after)], time_s);
            if (--waits_[at(after)] == 0) become_ready(after, ready_s_[at(after)]);
        }
    }

    void advance(std::int32_t task, double rate_Bps) {
        const double passed_s = std::max(0.0, now_s_ - since_s_[at(task)]);
        remaining_[at(task)] = std::max(0.0, remaining_[at(task)] - rate_Bps * passed_s);
        since_s_[at(task)] = std::max(now_s_, since_s_[at(task)]);
    }

    void share() {
        sharing_.solve();
        ++course_.num_solves;
        for (const auto& [task, old_Bps] : sharing_.changed()) {
            advance(task, old_Bps);
            const double rate = sharing_.flow(task).rate_Bps;
            if (rate > 0)
                ends_.set(task, since_s_[at(task)] + remaining_[at(task)] / rate);
            else
                ends_.erase(task);
        }
        for (const std::int32_t link : sharing_.touched()) close_sample(link, sharing_.used_Bps(link));
    }

    void close_sample(std::int32_t link, double rate_Bps) {
        const double old = link_rate_[at(link)];
        if (old == rate_Bps) return;
        refill(link);
        const double begin = link_since_s_[at(link)];
        course_.link_bytes[at(link)] += old * (now_s_ - begin);
        if (tasks_.record && old > 0 && now_s_ > begin) {
            course_.sample_link.push_back(link);
            course_.sample_begin_s.push_back(begin);
            course_.sample_end_s.push_back(now_s_);
            course_.sample_Bps.push_back(old);
        }
        link_rate_[at(link)] = rate_Bps;
        link_since_s_[at(link)] = now_s_;
    }

    void check_all_ended() const {
        if (num_ended_ == num_tasks_) return;
        for (std::size_t i = 0; i < num_tasks_; ++i) {
            const auto task = static_cast<std::int32_t>(i);
            if (!std::isnan(course_.end_s[i]) || !sharing_.flow(task).active) continue;
            const std::int32_t link = sharing_.flow(task).bottleneck;
            throw std::runtime_error("task " + std::to_string(i) + " never ends: " +
                                     (link < 0 ? "its rate is capped at 0"
                                               : "link " + std::to_string(link) + " has no rate left for it"));
        }
        const auto& ends = course_.end_s;
        const auto stuck = std::find_if(ends.begin(), ends.end(), [](double s) { return std::isnan(s); });
        throw std::runtime_error("task " + std::to_string(stuck - ends.begin()) +
                                 " never starts: tasks wait for each other in a circle");
    }

    const TaskSet& tasks_;
    std::size_t num_tasks_;
    Sharing sharing_;
    MomentHeap ends_;
    std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
    std::vector<Crossing> crossings_;
    std::vector<double> remaining_;
    std::vector<double> since_s_;  // when `remaining_` held
    std::vector<std::int32_t> waits_;
    std::vector<double> ready_s_;
    std::vector<std::int32_t> path_;
    std::vector<std::int64_t> next_start_;  // tasks that wait for a task
    std::vector<std::int32_t> next_;
    std::vector<double> link_since_s_;
    std::vector<double> link_rate_;
    std::vector<double> credit_;
    std::vector<double> credit_since_s_;
    std::size_t next_change_ = 0;
    std::size_t next_reroute_ = 0;
    std::size_t num_ended_ = 0;
    double now_s_ = 0;
    Course course_;
};

}  // namespace

Course run_flows(const TaskSet& tasks) { return Engine(tasks).run(); }

}  // namespace syncline

// The flow engine on cases small enough to check by hand.
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "syncline/flow.hpp"

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Tasks of one path each, with the columns that most cases leave alone filled in.
struct Case {
    explicit Case(std::vector<double> capacity_Bps) : capacity(std::move(capacity_Bps)) {}

    std::vector<double> capacity;
    std::vector<std::int64_t> path_start{0};
    std::vector<std::int32_t> path_link, first_path, num_paths, wait_for, change_link, reroute_task, reroute_path, tenant;
    std::vector<double> share, size, delay, start, weight, cap, change_s, change_Bps, reroute_s, guarantee, burst;
    std::vector<std::uint8_t> priority;
    std::vector<std::int64_t> wait_start{0};

    std::int32_t path(std::vector<std::int32_t> links) {
        path_link.insert(path_link.end(), links.begin(), links.end());
        path_start.push_back(static_cast<std::int64_t>(path_link.size()));
        return static_cast<std::int32_t>(path_start.size()) - 2;
    }

    void task(std::vector<std::int32_t> links, double bytes, double delay_s = 0, double start_s = 0,
              std::vector<std::int32_t> after = {}, std::uint8_t order = 0) {
        first_path.push_back(links.empty() ? 0 : path(links));
        num_paths.push_back(links.empty() ? 0 : 1);
        size.push_back(bytes);
        delay.push_back(delay_s);
        start.push_back(start_s);
        weight.push_back(1);
        cap.push_back(kInfinity);
        priority.push_back(order);
        tenant.push_back(-1);
        wait_for.insert(wait_for.end(), after.begin(), after.end());
        wait_start.push_back(static_cast<std::int64_t>(wait_for.size()));
    }

    syncline::Course run(bool record = false) const {
        const syncline::TaskSet tasks{capacity, path_start, path_link, share,       first_path,  num_paths,  size,
                                      delay,    start,      weight,    cap,         priority,    wait_start, wait_for,
                                      change_s, change_link, change_Bps, reroute_s, reroute_task, reroute_path, tenant, guarantee, burst, record};
        syncline::validate(tasks);
        return syncline::run_flows(tasks);
    }
};

void a_guarantee_holds_against_a_crowd_and_a_higher_class() {
    Case it({10});
    it.guarantee = {0.4};
    it.task({0}, 40, 0, 0, {}, 1);
    it.tenant[0] = 0;
    for (int i = 0; i < 6; ++i) it.task({0}, 10);
    const auto course = it.run();
    CHECK(check::close(course.end_s[0], 10));  // 4 B/s of 10, although the class above wants all
    CHECK(check::close(course.end_s[1], 10));  // the other six have 1 B/s each
}

void a_bucket_lets_the_first_bytes_through_and_fills_while_idle() {
    Case it({10});
    it.burst = {5};
    it.task({0}, 15);              // 5 at once, then 10 at 10 B/s
    it.task({0}, 3, 0, 1.2);       // 0.2 s of idle link have put 2 back
    it.task({0}, 4, 0, 9);         // all of it at once
    const auto course = it.run();
    CHECK(check::close(course.end_s[0], 1));
    CHECK(check::close(course.end_s[1], 1.3));
    CHECK(check::close(course.end_s[2], 9));
    CHECK(check::close(course.link_bytes[0], 22));
}

void two_flows_share_then_one_speeds_up() {
    Case it({10});
    it.task({0}, 10);
    it.task({0}, 30);
    const auto got = it.run(true);
    CHECK(check::close(got.end_s[0], 2));
    CHECK(check::close(got.end_s[1], 4));
    CHECK(check::close(got.link_bytes[0], 40));
    CHECK(got.bottleneck[1] == 0);
    CHECK(got.sample_link.size() == 1);  // the link is full all the time: one sample
}

void tasks_wait_for_each_other_and_for_their_delay() {
    Case it({10});
    it.task({}, 0, 3);
    it.task({0}, 20, 1, 0, {0});
    it.task({0}, 10, 0, 10, {1});
    const auto got = it.run();
    CHECK(check::close(got.end_s[0], 3));
    CHECK(check::close(got.begin_s[1], 3));
    CHECK(check::close(got.end_s[1], 6));
    CHECK(check::close(got.end_s[2], 11));
}

void a_lower_class_gets_what_is_left() {
    Case it({10, 4});
    it.task({0, 1}, 8);
    it.task({0}, 24, 0, 0, {}, 1);
    const auto got = it.run();
    CHECK(check::close(got.end_s[0], 2));   // held back to 4 by link 1
    CHECK(check::close(got.end_s[1], 3.2)); // 6 for two seconds, then 10
}

void a_dead_link_stops_a_flow_until_it_is_rerouted() {
    Case it({10, 10});
    it.task({0}, 50);
    it.change_s = {1};
    it.change_link = {0};
    it.change_Bps = {0};
    CHECK(check::thrown<std::runtime_error>([&] { it.run(); }) ==
          "task 0 never ends: link 0 has no rate left for it");
    it.reroute_s = {3};
    it.reroute_task = {0};
    it.reroute_path = {it.path({1})};
    const auto got = it.run();
    CHECK(check::close(got.end_s[0], 7));
    CHECK(check::close(got.link_bytes[0], 10));
    CHECK(check::close(got.link_bytes[1], 40));
}

void a_flow_with_a_choice_takes_the_idle_path() {
    Case it({10, 10, 10});
    for (int flow = 0; flow < 3; ++flow) it.task({}, 30);
    it.path({0});
    it.path({1});
    it.path({2});
    it.num_paths = {3, 3, 3};
    const auto got = it.run();
    for (const double end : got.end_s) CHECK(check::close(end, 3));
}

void a_sprayed_flow_uses_its_share_of_each_link() {
    Case it({10, 5});
    it.task({0, 1}, 20);
    it.share = {0.5, 0.5};
    const auto got = it.run();
    CHECK(check::close(got.end_s[0], 2));  // link 1 allows a rate of 10
    CHECK(check::close(got.link_bytes[0], 10));
}

void a_circle_of_waits_is_named() {
    Case it({10});
    it.task({}, 0, 0, 0, {1});
    it.task({}, 0, 0, 0, {0});
    CHECK(check::thrown<std::runtime_error>([&] { it.run(); }) ==
          "task 0 never starts: tasks wait for each other in a circle");
}

void bad_columns_are_named() {
    Case it({10});
    it.task({1}, 10);
    CHECK(check::thrown<std::invalid_argument>([&] { it.run(); }) == "path_link of row 0 is 1; there are 1");
}

}  // namespace

SUITE(flow) {
    two_flows_share_then_one_speeds_up();
    tasks_wait_for_each_other_and_for_their_delay();
    a_lower_class_gets_what_is_left();
    a_guarantee_holds_against_a_crowd_and_a_higher_class();
    a_bucket_lets_the_first_bytes_through_and_fills_while_idle();
    a_dead_link_stops_a_flow_until_it_is_rerouted();
    a_flow_with_a_choice_takes_the_idle_path();
    a_sprayed_flow_uses_its_share_of_each_link();
    a_circle_of_waits_is_named();
    bad_columns_are_named();
}

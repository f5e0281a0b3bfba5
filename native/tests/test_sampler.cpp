#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "check.hpp"
#include "syncline/counter_sampler.hpp"

namespace {

using syncline::CounterSampler;
using syncline::ReadingTimer;

int open_route() {
    const int handle = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    if (handle < 0 || bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof address)) return -1;
    return handle;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Takes rows until they are enough, waiting longer each time: a busy machine may not wake the thread for a while.
template <typename Enough>
syncline::SampledRows take_until(CounterSampler& sampler, Enough enough) {
    syncline::SampledRows rows;
    for (int ms = 30; ms < 20'000; ms *= 2) {
        sleep_ms(ms);
        rows = sampler.take();
        if (enough(rows)) break;
    }
    return rows;
}

void long_readings_are_told() {
    ReadingTimer timer(250'000);
    CHECK(!timer.is_long(40'000));
    CHECK(!timer.is_long(200'000));
    CHECK(timer.is_long(300'000));
    ReadingTimer of_many(250'000);
    CHECK(!of_many.is_long(2'000'000));
    CHECK(!of_many.is_long(7'000'000));
    CHECK(of_many.is_long(9'000'000));
}

void reads_loopback(int route) {
    CounterSampler sampler({{route, {1}}}, 1'000'000, 4096);
    CHECK(sampler.width() == 2);
    const auto rows = take_until(sampler, [](const auto& found) { return found.time_ns.size() >= 5; });
    CHECK(rows.time_ns.size() >= 5);
    CHECK(rows.counter.size() == 2 * rows.time_ns.size());
    CHECK(rows.num_failed == 0);
    for (std::size_t i = 1; i < rows.time_ns.size(); ++i) CHECK(rows.time_ns[i] > rows.time_ns[i - 1]);
}

// Two columns are dumped, one is asked for: the same interface reads the same either way.
void both_ways_read_the_same(int route) {
    const int other = open_route();
    CounterSampler sampler({{route, {1, 1}}, {other, {1}}}, 1'000'000, 4096);
    sleep_ms(60);
    sampler.stop();
    const auto rows = sampler.take();
    CHECK(rows.num_failed == 0);
    CHECK(rows.counter.size() == 6 * rows.time_ns.size());
    for (std::size_t i = 0; i < rows.counter.size(); i += 6) {
        CHECK(rows.counter[i] == rows.counter[i + 2]);
        CHECK(rows.counter[i + 4] >= rows.counter[i]);
    }
    close(other);
}

void a_full_ring_loses_the_oldest(int route) {
    CounterSampler sampler({{route, {1}}}, 1'000'000, 4);
    const auto rows = take_until(sampler, [](const auto& found) { return found.num_lost > 0; });
    CHECK(rows.time_ns.size() == 4);
    CHECK(rows.num_lost > 0);
}

void an_interface_that_is_not_there_is_counted(int route) {
    CounterSampler sampler({{route, {1, 1 << 30}}}, 1'000'000, 64);
    const auto rows = take_until(sampler, [](const auto& found) { return found.num_failed > 0; });
    CHECK(rows.num_failed > 0);
    CHECK(rows.counter.size() == 4 * rows.time_ns.size());
    if (!rows.counter.empty()) CHECK(rows.counter[2] == 0);
}

}  // namespace

SUITE(sampler) {
    long_readings_are_told();
    const int route = open_route();
    if (route >= 0) {
        reads_loopback(route);
        both_ways_read_the_same(route);
        a_full_ring_loses_the_oldest(route);
        an_interface_that_is_not_there_is_counted(route);
        close(route);
    }
    CHECK(check::thrown<std::invalid_argument>([] { CounterSampler({}, 1'000'000, 16); }) == "no interface to sample");
}

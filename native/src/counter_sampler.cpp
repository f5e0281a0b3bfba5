#include "syncline/counter_sampler.hpp"

#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <time.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace syncline {

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::size_t answer_bytes = 512;

struct Request {
    nlmsghdr header;
    if_stats_msg body;
};

std::int64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * second_ns + now.tv_nsec;
}

void sleep_until(std::int64_t moment_ns) {
    const timespec moment{moment_ns / second_ns, moment_ns % second_ns};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, nullptr) == EINTR) {
    }
}

}  // namespace

struct CounterSampler::Group {
    int socket;
    std::size_t first;  // column of its first interface
    std::vector<Request> requests;
    std::vector<char> answers;
    std::vector<iovec> parts;
    std::vector<mmsghdr> messages;
    std::vector<std::uint64_t> last;
};

CounterSampler::CounterSampler(std::vector<SampledGroup> groups, std::int64_t period_ns, std::size_t num_rows)
    : period_ns_(period_ns), capacity_(num_rows) {
    if (period_ns < 10'000 || num_rows < 2) throw std::invalid_argument("a period under 10 us, or fewer than 2 rows");
    for (auto& given : groups) {
        Group group{given.socket, width_, {}, {}, {}, {}, {}};
        const std::size_t count = given.interfaces.size();
        for (std::size_t i = 0; i < count; ++i) {
            Request request{};
            request.header.nlmsg_len = sizeof(Request);
            request.header.nlmsg_type = RTM_GETSTATS;
            request.header.nlmsg_flags = NLM_F_REQUEST;
            request.header.nlmsg_seq = static_cast<std::uint32_t>(i);
            request.body.ifindex = given.interfaces[i];
            request.body.filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
            group.requests.push_back(request);
        }
        group.answers.resize(count * answer_bytes);
        group.parts.resize(count);
        group.messages.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            group.parts[i] = {group.answers.data() + i * answer_bytes, answer_bytes};
            group.messages[i] = {};
            group.messages[i].msg_hdr.msg_iov = &group.parts[i];
            group.messages[i].msg_hdr.msg_iovlen = 1;
        }
        group.last.assign(2 * count, 0);
        width_ += 2 * count;
        groups_.push_back(std::move(group));
    }
    if (width_ == 0) throw std::invalid_argument("no interface to sample");
    time_ns_.resize(capacity_);
    counter_.resize(capacity_ * width_);
    thread_ = std::thread([this] { run(); });
}

CounterSampler::~CounterSampler() { stop(); }

void CounterSampler::stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

// All requests of a socket go out in one datagram; the kernel answers each in order, in a datagram of its own.
void CounterSampler::read(Group& group, std::uint64_t* row) {
    const std::size_t count = group.requests.size();
    const auto sent = send(group.socket, group.requests.data(), count * sizeof(Request), 0);
    const int got = sent < 0 ? 0
                             : recvmmsg(group.socket, group.messages.data(), static_cast<unsigned>(count),
                                        MSG_DONTWAIT, nullptr);
    std::size_t num_read = 0;
    for (int i = 0; i < got; ++i) {
        const char* answer = group.answers.data() + static_cast<std::size_t>(i) * answer_bytes;
        nlmsghdr header;
        std::memcpy(&header, answer, sizeof header);
        const std::size_t which = header.nlmsg_seq;
        constexpr std::size_t at = sizeof(nlmsghdr) + sizeof(if_stats_msg) + sizeof(rtattr);
        if (header.nlmsg_type != RTM_NEWSTATS || which >= count || header.nlmsg_len < at + sizeof(rtnl_link_stats64))
            continue;
        rtnl_link_stats64 statistics;
        std::memcpy(&statistics, answer + at, sizeof statistics);
        group.last[2 * which] = statistics.rx_bytes;
        group.last[2 * which + 1] = statistics.tx_bytes;
        ++num_read;
    }
    failed_ += count - num_read;
    std::memcpy(row + group.first, group.last.data(), group.last.size() * sizeof(std::uint64_t));
}

void CounterSampler::run() {
    std::vector<std::uint64_t> row(width_);
    std::int64_t next = now_ns(CLOCK_MONOTONIC);
    while (!stopping_) {
        next += period_ns_;
        sleep_until(next);
        for (Group& group : groups_) read(group, row.data());
        const std::int64_t time = now_ns(CLOCK_MONOTONIC);
        const std::int64_t behind = (time - next) / period_ns_;
        next += behind * period_ns_;
        const std::lock_guard lock(mutex_);
        late_ += static_cast<std::uint64_t>(behind);
        const std::size_t at = written_ % capacity_;
        time_ns_[at] = time;
        std::memcpy(counter_.data() + at * width_, row.data(), width_ * sizeof(std::uint64_t));
        ++written_;
        if (written_ - taken_ > capacity_) {
            ++taken_;
            ++lost_;
        }
        if (written_ % 64 == 0) cpu_s_ = static_cast<double>(now_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9;
    }
}

SampledRows CounterSampler::take() {
    SampledRows rows;
    const std::lock_guard lock(mutex_);
    const std::size_t count = written_ - taken_;
    rows.time_ns.resize(count);
    rows.counter.resize(count * width_);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = (taken_ + i) % capacity_;
        rows.time_ns[i] = time_ns_[at];
        std::memcpy(rows.counter.data() + i * width_, counter_.data() + at * width_, width_ * sizeof(std::uint64_t));
    }
    taken_ = written_;
    rows.num_lost = lost_;
    rows.num_late = late_;
    rows.num_failed = failed_;
    rows.cpu_s = cpu_s_;
    return rows;
}

}  // namespace syncline

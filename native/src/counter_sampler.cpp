#include "syncline/counter_sampler.hpp"

#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace syncline {

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr int most_readings = 4;  // of one row, on a machine so busy that each takes long
constexpr std::size_t answer_bytes = 512;
constexpr std::size_t dump_bytes = 8192;  // no part of a dump is longer, unless a reader has shown more room
constexpr std::size_t dump_limit = 3;     // times as many interfaces as are wanted: then asking for each is cheaper

struct Request {
    nlmsghdr header;
    if_stats_msg body;
};

Request statistics_request(std::uint32_t interface, std::uint16_t flags, std::size_t number) {
    Request request{};
    request.header.nlmsg_len = sizeof(Request);
    request.header.nlmsg_type = RTM_GETSTATS;
    request.header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    request.header.nlmsg_seq = static_cast<std::uint32_t>(number);
    request.body.ifindex = interface;
    request.body.filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
    return request;
}

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

// Reads its interfaces in one of two ways. A dump answers for the whole namespace in one piece, the cheaper way where
// most of that is wanted; else one datagram holds a request for each, and the kernel answers one by one.
struct CounterSampler::Group {
    int socket;
    std::size_t first;  // column of its first interface
    bool by_dump;
    std::vector<Request> requests;
    Request dump;
    std::vector<char> answers;
    std::vector<iovec> parts;
    std::vector<mmsghdr> messages;
    std::vector<std::uint64_t> last;

    Group(const SampledGroup& given, std::size_t column);
    std::size_t read_each();
    std::size_t read_dump();
    std::size_t keep(const void* answer, std::size_t size);
};

CounterSampler::Group::Group(const SampledGroup& given, std::size_t column)
    : socket(given.socket),
      first(column),
      by_dump(given.interfaces.size() > 1),
      dump(statistics_request(0, NLM_F_DUMP, 0)) {
    const std::size_t count = given.interfaces.size();
    for (std::size_t i = 0; i < count; ++i) requests.push_back(statistics_request(given.interfaces[i], 0, i));
    answers.resize(std::max(count * answer_bytes, dump_bytes));
    parts.resize(count);
    messages.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        parts[i] = {answers.data() + i * answer_bytes, answer_bytes};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    last.assign(2 * count, 0);
}

// Keeps the bytes of the interface that a message tells of; returns how many columns wanted them.
std::size_t CounterSampler::Group::keep(const void* answer, std::size_t size) {
    constexpr std::size_t at = sizeof(Request) + sizeof(rtattr);
    Request head;
    rtnl_link_stats64 statistics;
    if (size < at + sizeof statistics) return 0;
    std::memcpy(&head, answer, sizeof head);
    if (head.header.nlmsg_type != RTM_NEWSTATS) return 0;
    std::memcpy(&statistics, static_cast<const char*>(answer) + at, sizeof statistics);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (requests[i].body.ifindex != head.body.ifindex) continue;
        last[2 * i] = statistics.rx_bytes;
        last[2 * i + 1] = statistics.tx_bytes;
        ++wanted;
    }
    return wanted;
}

std::size_t CounterSampler::Group::read_each() {
    if (send(socket, requests.data(), requests.size() * sizeof(Request), 0) < 0) return 0;
    const int got = recvmmsg(socket, messages.data(), static_cast<unsigned>(messages.size()), MSG_DONTWAIT, nullptr);
    std::size_t num_read = 0;
    for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got); ++i)
        num_read += keep(parts[i].iov_base, messages[i].msg_len) > 0;
    return num_read;
}

std::size_t CounterSampler::Group::read_dump() {
    if (send(socket, &dump, sizeof dump, 0) < 0) return 0;
    std::size_t num_read = 0, num_seen = 0;
    for (bool is_done = false; !is_done;) {
        const auto got = recv(socket, answers.data(), answers.size(), MSG_DONTWAIT);
        if (got <= 0) break;
        const auto size = static_cast<std::size_t>(got);
        for (std::size_t at = 0; at + sizeof(nlmsghdr) <= size;) {
            nlmsghdr header;
            std::memcpy(&header, answers.data() + at, sizeof header);
            if (header.nlmsg_len < sizeof header || header.nlmsg_len > size - at) break;
            is_done |= header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR;
            num_read += keep(answers.data() + at, header.nlmsg_len);
            ++num_seen;
            at += NLMSG_ALIGN(header.nlmsg_len);
        }
    }
    by_dump = num_read > 0 && num_seen <= dump_limit * requests.size();
    return num_read;
}

CounterSampler::CounterSampler(std::vector<SampledGroup> groups, std::int64_t period_ns, std::size_t num_rows)
    : period_ns_(period_ns), capacity_(num_rows) {
    if (period_ns < 10'000 || num_rows < 2) throw std::invalid_argument("a period under 10 us, or fewer than 2 rows");
    for (const auto& given : groups) {
        groups_.emplace_back(given, width_);
        width_ += 2 * given.interfaces.size();
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

void CounterSampler::read(Group& group, std::uint64_t* row) {
    failed_ += group.requests.size() - (group.by_dump ? group.read_dump() : group.read_each());
    std::memcpy(row + group.first, group.last.data(), group.last.size() * sizeof(std::uint64_t));
}

void CounterSampler::run() {
    std::vector<std::uint64_t> row(width_);
    std::int64_t next = now_ns(CLOCK_MONOTONIC);
    ReadingTimer timer(period_ns_ / 4);
    while (!stopping_) {
        next += period_ns_;
        sleep_until(next);
        std::int64_t time = now_ns(CLOCK_MONOTONIC);
        for (int i = 0; i < most_readings; ++i) {
            const std::int64_t begun = time;
            for (Group& group : groups_) read(group, row.data());
            time = now_ns(CLOCK_MONOTONIC);
            if (!timer.is_long(time - begun)) break;
        }
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

#include "connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace syncline::wire {
namespace {

constexpr std::size_t kReadBudget = 1u << 20;
constexpr std::size_t kWriteBudget = 1u << 20;
constexpr std::size_t kBatchBytes = 512u << 10;
constexpr std::size_t kMostPieces = 24;

}  // namespace

Connection::Connection(Hub& hub, Line& line, std::uint64_t epoch, Socket socket)
    : hub_(hub), line_(line), epoch_(epoch), socket_(std::move(socket)), payload_(hub.options.frame_bytes) {}

Connection::~Connection() { hub_.unwritten(going_, first_); }

bool Connection::fail(std::string why) {
    why_ = std::move(why);
    return false;
}

bool Connection::read() {
    for (std::size_t budget = kReadBudget; budget > 0;) {
        std::array<iovec, 2> into{};
        std::array<std::uint8_t, sizeof(FrameHeader)> next{};
        int count = 1;
        const bool in_header = num_header_ < sizeof header_;
        if (in_header) {
            into[0] = {reinterpret_cast<std::uint8_t*>(&header_) + num_header_, sizeof header_ - num_header_};
        } else {
            into[0] = {payload_.data() + num_payload_, header_.length - num_payload_};
            into[1] = {next.data(), next.size()};
            count = 2;
        }
        const ssize_t got = readv(socket_.fd(), into.data(), count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (got <= 0) return fail(got == 0 ? "the other end closed it" : std::strerror(errno));
        const auto size = static_cast<std::size_t>(got);
        budget -= std::min(budget, size);
        if (in_header) {
            num_header_ += size;
            if (num_header_ == sizeof header_ && !begin_frame()) return false;
            continue;
        }
        const std::size_t some = std::min(size, header_.length - num_payload_);
        num_payload_ += some;
        if (num_payload_ < header_.length) continue;
        if (!end_frame()) return false;
        num_header_ = size - some;
        std::memcpy(&header_, next.data(), num_header_);
        if (num_header_ == sizeof header_ && !begin_frame()) return false;
    }
    return true;
}

bool Connection::begin_frame() {
    if (!is_whole(header_)) return fail("a header was wrong, so nothing after it can be read");
    if (header_.length > payload_.size()) return fail("a frame was longer than agreed");
    num_payload_ = 0;
    if (header_.length > 0) return true;
    num_header_ = 0;
    return end_frame();
}

bool Connection::end_frame() {
    hub_.heard(line_);
    const auto kind = static_cast<FrameKind>(header_.kind);
    const bool is_right = crc32c(0, payload_.data(), header_.length) == header_.payload_crc;
    if (kind == FrameKind::data) {
        if (is_right) return take_data();
        hub_.ask_again(line_, header_);
        line_.is_dirty = true;
        return true;
    }
    if (!is_right) return fail("a control frame was wrong");
    switch (kind) {
        case FrameKind::ack: {
            std::vector<std::uint64_t> sequences(header_.length / sizeof(std::uint64_t));
            std::memcpy(sequences.data(), payload_.data(), sequences.size() * sizeof(std::uint64_t));
            hub_.acknowledged(line_, sequences);
            return true;
        }
        case FrameKind::again: hub_.resend(line_, header_.sequence); return true;
        case FrameKind::ping: {
            const std::lock_guard hold(hub_.mutex);
            line_.pong = true;
            line_.is_dirty = true;
            return true;
        }
        case FrameKind::pong: return true;
        case FrameKind::bye: hub_.said_bye(line_); return true;
        default: return fail("a frame of no known kind came");
    }
}

bool Connection::take_data() {
    Commit commit;
    if (!hub_.begin_commit(line_, header_, commit)) return fail("a frame lay outside its message");
    line_.is_dirty = true;  // the acknowledgement
    if (commit.message == nullptr) return true;
    std::size_t at = header_.offset, left = header_.length;
    const std::uint8_t* from = payload_.data();
    for (const Part& part : commit.to) {
        if (at < part.size && left > 0) {
            const std::size_t some = std::min(left, part.size - at);
            std::memcpy(part.data + at, from, some);
            from += some;
            left -= some;
            at += some;
        }
        at -= std::min(at, part.size);
    }
    hub_.end_commit(line_, header_, commit);
    return true;
}

void Connection::prepare(Going& going) const {
    FrameHeader& header = going.header;
    header.sender = static_cast<std::uint16_t>(hub_.options.rank);
    if (!going.words.empty()) {
        header.length = static_cast<std::uint32_t>(going.words.size() * sizeof(std::uint64_t));
        header.payload_crc = crc32c(0, going.words.data(), header.length);
    }
    for (const Part& part : going.part) header.payload_crc = crc32c(header.payload_crc, part.data, part.size);
    seal(header);
}

bool Connection::fill() {
    going_.clear();
    first_ = gone_ = 0;
    has_more_ = hub_.next_going(line_, epoch_, going_, kBatchBytes);
    for (Going& going : going_) prepare(going);
    return !going_.empty();
}

bool Connection::write() {
    for (std::size_t budget = kWriteBudget; budget > 0;) {
        if (first_ == going_.size() && !fill()) return true;
        std::array<iovec, kMostPieces + 4> from{};
        std::size_t count = 0, skip = gone_;
        const auto add = [&](const void* data, std::size_t size) {
            const std::size_t some = std::min(skip, size);
            skip -= some;
            if (size > some) from[count++] = {static_cast<std::uint8_t*>(const_cast<void*>(data)) + some, size - some};
        };
        for (std::size_t k = first_; k < going_.size() && count < kMostPieces; ++k) {
            add(&going_[k].header, sizeof(FrameHeader));
            add(going_[k].words.data(), going_[k].words.size() * sizeof(std::uint64_t));
            for (const Part& part : going_[k].part) add(part.data, part.size);
        }
        msghdr message{};
        message.msg_iov = from.data();
        message.msg_iovlen = count;
        const ssize_t sent = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            is_blocked_ = true;
            return true;
        }
        if (sent < 0) return fail(std::strerror(errno));
        budget -= std::min(budget, static_cast<std::size_t>(sent));
        gone_ += static_cast<std::size_t>(sent);
        while (first_ < going_.size() && gone_ >= sizeof(FrameHeader) + going_[first_].header.length) {
            gone_ -= sizeof(FrameHeader) + going_[first_].header.length;
            hub_.written(line_, going_[first_++]);
        }
    }
    has_more_ = true;
    return true;
}

}  // namespace syncline::wire

#include "connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace syncline::wire {
namespace {

constexpr std::size_t kReadBudget = 1u << 20;
constexpr std::size_t kWriteBudget = 1u << 20;
constexpr std::size_t kBatchBytes = 512u << 10;
constexpr std::size_t kMostPieces = 24;
constexpr std::size_t kWorthWaiting = 16u << 10;

}  // namespace

bool Half::fail(std::string why) {
    why_ = std::move(why);
    return false;
}

Reader::~Reader() { hub_.drop(claim_); }

std::size_t Reader::rest(iovec* into) {
    if (is_claimed_ && claim_.is_revoked) {
        is_claimed_ = false;
        is_broken_off_ = true;
    }
    if (!is_claimed_) {
        if (scratch_.size() < header_.length) scratch_.resize(header_.length);
        into[0] = {scratch_.data() + num_payload_, header_.length - num_payload_};
        return 1;
    }
    std::size_t count = 0, skip = num_payload_;
    for (const Part& part : claim_.to) {
        const std::size_t some = std::min(skip, part.size);
        skip -= some;
        if (part.size > some) into[count++] = {part.data + some, part.size - some};
    }
    return count;
}

bool Reader::read() {
    for (std::size_t budget = kReadBudget; budget > 0;) {
        std::array<iovec, 3> into{};
        std::array<std::uint8_t, sizeof(FrameHeader)> next{};
        std::size_t count = 1;
        const bool in_header = num_header_ < sizeof header_;
        ssize_t got;
        if (in_header) {
            into[0] = {reinterpret_cast<std::uint8_t*>(&header_) + num_header_, sizeof header_ - num_header_};
            got = readv(socket_.fd(), into.data(), static_cast<int>(count));
        } else {
            const std::lock_guard hold(claim_.mutex);
            count = rest(into.data());
            into[count++] = {next.data(), next.size()};
            got = readv(socket_.fd(), into.data(), static_cast<int>(count));
        }
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
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
    await(num_header_ < sizeof header_ ? 1 : header_.length - num_payload_);
    return true;
}

void Reader::await(std::size_t size) {
    const int wanted = size < kWorthWaiting ? 1 : static_cast<int>(size);
    if (wanted == low_water_) return;
    if (setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0) low_water_ = wanted;
}

bool Reader::begin_frame() {
    if (!is_whole(header_)) return fail("a header was wrong, so nothing after it can be read");
    if (header_.length > hub_.options.frame_bytes + kLonger) return fail("a frame was longer than agreed");
    num_payload_ = 0;
    is_claimed_ = is_broken_off_ = false;
    if (static_cast<FrameKind>(header_.kind) == FrameKind::data) {
        if (!hub_.begin_frame(line_, header_, claim_)) return fail("a frame lay outside its message");
        is_claimed_ = claim_.to[0].size + claim_.to[1].size > 0;
    }
    if (header_.length > 0) return true;
    num_header_ = 0;
    return end_frame();
}

// Whether the payload is what was sent; its place is not taken away meanwhile.
Arrival Reader::judge() {
    const std::lock_guard hold(claim_.mutex);
    if (is_broken_off_ || (is_claimed_ && claim_.is_revoked)) return Arrival::broken_off;
    std::uint32_t crc = 0;
    if (is_claimed_) {
        for (const Part& part : claim_.to) crc = crc32c(crc, part.data, part.size);
    } else {
        crc = crc32c(0, scratch_.data(), header_.length);
    }
    return crc == header_.payload_crc ? Arrival::right : Arrival::wrong;
}

bool Reader::end_frame() {
    const Arrival arrival = judge();
    if (static_cast<FrameKind>(header_.kind) == FrameKind::data) {
        const std::uint8_t* aside = is_claimed_ ? nullptr : scratch_.data();
        if (hub_.end_frame(line_, header_, claim_, arrival, aside)) has_answer_ = true;
        claim_.to[0] = claim_.to[1] = {};
        is_claimed_ = false;
        return true;
    }
    if (arrival != Arrival::right) return fail("a control frame was wrong");
    hub_.heard(line_);
    return end_control();
}

bool Reader::end_control() {
    switch (static_cast<FrameKind>(header_.kind)) {
        case FrameKind::ack: {
            std::vector<std::uint64_t> sequences(header_.length / sizeof(std::uint64_t));
            if (!sequences.empty()) {
                std::memcpy(sequences.data(), scratch_.data(), sequences.size() * sizeof(std::uint64_t));
            }
            hub_.acknowledged(line_, sequences);
            return true;
        }
        case FrameKind::again: hub_.resend(line_, header_.sequence); return true;
        case FrameKind::ping: {
            const std::lock_guard hold(hub_.mutex);
            line_.pong = true;
            has_answer_ = true;
            return true;
        }
        case FrameKind::pong: return true;
        case FrameKind::bye: hub_.said_bye(line_); return true;
        default: return fail("a frame of no known kind came");
    }
}

Writer::~Writer() { hub_.unwritten(going_, first_); }

void Writer::prepare(Going& going) const {
    FrameHeader& header = going.header;
    header.sender = static_cast<std::uint16_t>(hub_.options.rank);
    if (!going.words.empty()) {
        header.length = static_cast<std::uint32_t>(going.words.size() * sizeof(std::uint64_t));
        header.payload_crc = crc32c(0, going.words.data(), header.length);
    }
    if (!going.is_summed) {
        for (const Part& part : going.part) header.payload_crc = crc32c(header.payload_crc, part.data, part.size);
    }
    seal(header);
}

void Writer::let_go() {
    std::vector<Going> kept, gone;
    for (std::size_t k = first_; k < going_.size(); ++k) {
        Going& going = going_[k];
        const bool is_elsewhere = going.message && !hub_.is_on(line_, going.header.sequence);
        if (is_elsewhere && k == first_ && gone_ > 0) {
            copy_.clear();
            for (const Part& part : going.part) copy_.insert(copy_.end(), part.data, part.data + part.size);
            gone.emplace_back().message = std::exchange(going.message, nullptr);
            going.part[0] = {copy_.data(), copy_.size()};
            going.part[1] = {};
        }
        (is_elsewhere && going.message ? gone : kept).push_back(std::move(going));
    }
    going_ = std::move(kept);
    first_ = 0;
    hub_.unwritten(gone, 0);
}

bool Writer::fill() {
    going_.clear();
    first_ = gone_ = 0;
    has_more_ = hub_.next_going(line_, epoch_, going_, kBatchBytes);
    for (Going& going : going_) prepare(going);
    return !going_.empty();
}

bool Writer::write() {
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

// What goes over a connection: frames, each a header with its own checksum and a payload with another.
#pragma once

#include <bit>
#include <cstddef>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "crc32c.hpp"

namespace syncline::wire {

static_assert(std::endian::native == std::endian::little, "the wire's bytes are those of little-endian machines");

constexpr std::uint32_t kMagic = 0x314c5753;  // "SWL1"; another number whenever a byte changes its meaning
constexpr std::uint32_t kFrameLimit = 1u << 20;

enum class FrameKind : std::uint8_t { data = 1, ack = 2, again = 3, ping = 4, pong = 5, bye = 6 };

// `sequence` counts the frames from one rank to another, whatever they travel on; a message is (tag, number), `total`
// bytes long, of which this frame has those from `offset`.
struct FrameHeader {
    std::uint32_t magic;
    std::uint8_t kind;
    std::uint8_t zero;
    std::uint16_t sender;
    std::uint32_t length;
    std::uint32_t payload_crc;
    std::uint64_t sequence;
    std::uint32_t tag;
    std::uint32_t number;
    std::uint32_t offset;
    std::uint32_t total;
    std::uint32_t spare;
    std::uint32_t header_crc;  // of all bytes before it
};
static_assert(sizeof(FrameHeader) == 48);

inline void seal(FrameHeader& header) {
    header.magic = kMagic;
    header.header_crc = crc32c(0, &header, offsetof(FrameHeader, header_crc));
}

inline bool is_whole(const FrameHeader& header) {
    return header.magic == kMagic && header.length <= kFrameLimit &&
           header.header_crc == crc32c(0, &header, offsetof(FrameHeader, header_crc));
}

// The checksums of a message's frames, made while its bytes are made and still in the cache.
class FrameCrcs {
   public:
    void begin(std::uint32_t frame_bytes) {
        frame_bytes_ = frame_bytes;
        done_.clear();
        crc_ = 0;
        filled_ = 0;
    }
    void add(const void* data, std::size_t size) {
        const auto* at = static_cast<const std::uint8_t*>(data);
        while (size > 0) {
            const std::size_t some = std::min<std::size_t>(size, frame_bytes_ - filled_);
            crc_ = crc32c(crc_, at, some);
            at += some;
            size -= some;
            filled_ += some;
            if (filled_ == frame_bytes_) end();
        }
    }
    void end() {
        if (filled_ == 0) return;
        done_.push_back(crc_);
        crc_ = 0;
        filled_ = 0;
    }
    std::uint32_t at(std::size_t frame) const { return done_[frame]; }
    std::size_t size() const { return done_.size(); }

   private:
    std::uint32_t frame_bytes_ = 0, crc_ = 0;
    std::size_t filled_ = 0;
    std::vector<std::uint32_t> done_;
};

}  // namespace syncline::wire

// What goes over a connection: frames, each a header with its own checksum and a payload with another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "crc32c.hpp"

namespace syncline::wire {

static_assert(std::endian::native == std::endian::little, "the wire's bytes are those of little-endian machines");

constexpr std::uint32_t kMagic = 0x324c5753;  // "SWL2"; another number whenever a byte changes its meaning
constexpr std::uint32_t kFrameLimit = 1u << 20;
constexpr std::uint32_t kLonger = 1u << 9;  // by so much the last frame may be longer: no frame for what little is left

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
    return header.magic == kMagic && header.length <= kFrameLimit + kLonger &&
           header.header_crc == crc32c(0, &header, offsetof(FrameHeader, header_crc));
}

// How long the frame is that begins `left` bytes before the end of its message.
inline std::uint32_t frame_length(std::uint32_t left, std::uint32_t frame_bytes) {
    return left <= frame_bytes + kLonger ? left : frame_bytes;
}

// The checksums of a message's frames, taken while its bytes are made and are still near.
class Sealer {
   public:
    Sealer(std::uint32_t total, std::uint32_t frame_bytes)
        : frame_bytes_(frame_bytes), left_(total), room_(frame_length(total, frame_bytes)) {}

    void add(const void* data, std::size_t size) {
        const auto* at = static_cast<const std::uint8_t*>(data);
        while (size > 0 && room_ > 0) {
            const auto some = static_cast<std::uint32_t>(size < room_ ? size : room_);
            crc_ = crc32c(crc_, at, some);
            at += some;
            size -= some;
            left_ -= some;
            room_ -= some;
            if (room_ > 0) continue;
            sums_.push_back(crc_);
            crc_ = 0;
            room_ = frame_length(left_, frame_bytes_);
        }
    }
    std::vector<std::uint32_t> take() { return std::move(sums_); }

   private:
    const std::uint32_t frame_bytes_;
    std::uint32_t left_, room_, crc_ = 0;
    std::vector<std::uint32_t> sums_;
};

}  // namespace syncline::wire

// What goes over a connection: frames, each a header with its own checksum and a payload with another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

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

}  // namespace syncline::wire

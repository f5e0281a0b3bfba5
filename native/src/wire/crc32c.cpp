// CRC-32C by table (slicing by eight) and by instruction, three streams at once.
#include "crc32c.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define SYNCLINE_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define SYNCLINE_CRC_TARGET __attribute__((target("+crc")))
#endif

namespace syncline::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // bits reversed
using Table = std::array<std::uint32_t, 256>;

constexpr std::array<Table, 8> slices() {
    std::array<Table, 8> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? kPolynomial : 0u);
        made[0][i] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t i = 0; i < 256; ++i) made[k][i] = (made[k - 1][i] >> 8) ^ made[0][made[k - 1][i] & 0xffu];
    }
    return made;
}
constexpr auto kSlices = slices();

std::uint32_t by_table(std::uint32_t crc, const unsigned char* at, std::size_t size) {
    for (; size >= 8; at += 8, size -= 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) crc ^= kSlices[7 - k][(word >> (8 * k)) & 0xffu];
    }
    for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kSlices[0][(crc ^ *at) & 0xffu];
    return crc;
}

#if defined(SYNCLINE_CRC_TARGET)

#if defined(__x86_64__)
SYNCLINE_CRC_TARGET inline std::uint64_t step8(std::uint64_t crc, std::uint64_t word) { return _mm_crc32_u64(crc, word); }
SYNCLINE_CRC_TARGET inline std::uint32_t step1(std::uint32_t crc, unsigned char byte) { return _mm_crc32_u8(crc, byte); }
#else
SYNCLINE_CRC_TARGET inline std::uint64_t step8(std::uint64_t crc, std::uint64_t word) {
    return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
SYNCLINE_CRC_TARGET inline std::uint32_t step1(std::uint32_t crc, unsigned char byte) { return __crc32cb(crc, byte); }
#endif

// What a CRC becomes when kStride zero bytes follow it: linear, so four look-ups. The instruction takes three cycles
// and starts every cycle: three stretches side by side keep it busy, and this joins them. Stretches are short, so the
// processor's own prefetching never learns them: the next ones are asked for here (1.6 times as fast from memory).
constexpr std::size_t kStride = 512;
constexpr std::size_t kLine = 64;
struct Shift {
    std::array<Table, 4> part;
    Shift() : part{} {
        const std::array<unsigned char, kStride> zeros{};
        for (std::size_t k = 0; k < 4; ++k) {
            for (std::uint32_t i = 0; i < 256; ++i) part[k][i] = by_table(i << (8 * k), zeros.data(), kStride);
        }
    }
    std::uint32_t operator()(std::uint32_t crc) const {
        return part[0][crc & 0xffu] ^ part[1][(crc >> 8) & 0xffu] ^ part[2][(crc >> 16) & 0xffu] ^ part[3][crc >> 24];
    }
};

SYNCLINE_CRC_TARGET std::uint32_t by_hardware(std::uint32_t crc, const unsigned char* at, std::size_t size) {
    static const Shift shift;
    for (; size >= 3 * kStride; at += 3 * kStride, size -= 3 * kStride) {
        std::uint64_t one = crc, two = 0, three = 0;
        for (std::size_t from = 0; from < kStride; from += kLine) {
            for (std::size_t part = 3; part < 6; ++part) __builtin_prefetch(at + part * kStride + from);
            for (std::size_t i = from; i < from + kLine; i += 8) {
                std::uint64_t a, b, c;
                std::memcpy(&a, at + i, 8);
                std::memcpy(&b, at + kStride + i, 8);
                std::memcpy(&c, at + 2 * kStride + i, 8);
                one = step8(one, a);
                two = step8(two, b);
                three = step8(three, c);
            }
        }
        crc = shift(shift(static_cast<std::uint32_t>(one)) ^ static_cast<std::uint32_t>(two)) ^
              static_cast<std::uint32_t>(three);
    }
    std::uint64_t wide = crc;
    for (; size >= 8; at += 8, size -= 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        wide = step8(wide, word);
    }
    crc = static_cast<std::uint32_t>(wide);
    for (; size > 0; ++at, --size) crc = step1(crc, *at);
    return crc;
}

#endif

}  // namespace

bool has_hardware_crc() {
#if defined(__x86_64__)
    static const bool has = __builtin_cpu_supports("sse4.2");
    return has;
#elif defined(SYNCLINE_CRC_TARGET)
    static const bool has = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
    return has;
#else
    return false;
#endif
}

std::uint32_t crc32c_by(Crc kind, std::uint32_t crc, const void* data, std::size_t size) {
    const auto* at = static_cast<const unsigned char*>(data);
    if (kind == Crc::table) return ~by_table(~crc, at, size);
#if defined(SYNCLINE_CRC_TARGET)
    if (has_hardware_crc()) return ~by_hardware(~crc, at, size);
#endif
    throw std::invalid_argument("this machine has no instruction for CRC-32C");
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) {
    static const Crc kind = has_hardware_crc() ? Crc::hardware : Crc::table;
    return crc32c_by(kind, crc, data, size);
}

}  // namespace syncline::wire

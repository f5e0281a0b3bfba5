// CRC-32C by table (slicing by eight), by instruction, three streams at once, and by folding 256 bytes at a time.
#include "crc32c.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#if defined(__x86_64__)
#include <immintrin.h>
#define SYNCLINE_CRC_TARGET __attribute__((target("sse4.2")))
#define SYNCLINE_FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))
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

#if defined(SYNCLINE_FOLD_TARGET)

// x^n modulo the polynomial, in the order of bits that carry-less products of reflected numbers want.
std::uint64_t power(int n) {
    std::uint32_t rest = 1;
    for (int i = 0; i < n; ++i) rest = (rest << 1) ^ ((rest >> 31) != 0 ? 0x1edc6f41u : 0u);
    std::uint64_t mirrored = 0;
    for (int bit = 0; bit < 32; ++bit) mirrored |= static_cast<std::uint64_t>((rest >> bit) & 1u) << (63 - bit);
    return mirrored;
}

// Sixteen bytes carried `distance` bits further: its halves times what they are worth there.
struct Carry {
    std::uint64_t low, high;
    explicit Carry(int distance) : low(power(distance + 63)), high(power(distance - 1)) {}
};

SYNCLINE_FOLD_TARGET inline __m512i carried(__m512i from, __m512i by, __m512i to) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(from, by, 0x00), _mm512_clmulepi64_epi128(from, by, 0x11),
                                     to, 0x96);
}

SYNCLINE_FOLD_TARGET inline __m128i carried(__m128i from, const Carry& by, __m128i to) {
    const __m128i factor = _mm_set_epi64x(static_cast<long long>(by.high), static_cast<long long>(by.low));
    return _mm_xor_si128(to, _mm_xor_si128(_mm_clmulepi64_si128(from, factor, 0x00),
                                           _mm_clmulepi64_si128(from, factor, 0x11)));
}

SYNCLINE_FOLD_TARGET inline __m512i spread(const Carry& by) {
    const auto low = static_cast<long long>(by.low), high = static_cast<long long>(by.high);
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

// The CRC of a multiple of 256 bytes: four registers of four parts each are carried along, then into one another.
SYNCLINE_FOLD_TARGET std::uint32_t by_folding(std::uint32_t crc, const unsigned char* at, std::size_t size) {
    static const Carry distant(2048), near(512);
    static const Carry lanes[3] = {Carry(384), Carry(256), Carry(128)};
    const __m512i by = spread(distant), one = spread(near);
    __m512i sum[4];
    for (int k = 0; k < 4; ++k) sum[k] = _mm512_loadu_si512(at + 64 * k);
    sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
    for (at += 256, size -= 256; size >= 256; at += 256, size -= 256) {
        for (int k = 0; k < 4; ++k) sum[k] = carried(sum[k], by, _mm512_loadu_si512(at + 64 * k));
    }
    for (int k = 0; k < 3; ++k) sum[k + 1] = carried(sum[k], one, sum[k + 1]);
    __m128i last = _mm512_extracti32x4_epi32(sum[3], 3);
    last = carried(_mm512_extracti32x4_epi32(sum[3], 0), lanes[0], last);
    last = carried(_mm512_extracti32x4_epi32(sum[3], 1), lanes[1], last);
    last = carried(_mm512_extracti32x4_epi32(sum[3], 2), lanes[2], last);
    const std::uint64_t half = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(last)));
    const auto other = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(last, last)));
    return static_cast<std::uint32_t>(_mm_crc32_u64(half, other));
}

bool can_fold() {
    static const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    return can;
}

#endif

SYNCLINE_CRC_TARGET std::uint32_t by_hardware(std::uint32_t crc, const unsigned char* at, std::size_t size) {
    static const Shift shift;
#if defined(SYNCLINE_FOLD_TARGET)
    if (size >= 1024 && can_fold()) {
        const std::size_t whole = size & ~std::size_t{255};
        crc = by_folding(crc, at, whole);
        at += whole;
        size -= whole;
    }
#endif
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

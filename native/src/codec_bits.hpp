// What every codec kernel shares. Included once by each variant's file, so everything is in an unnamed namespace and
// nothing of the standard library with code of its own is used: a function compiled for AVX-512 must never be the one
// that the linker keeps for all.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "syncline/codec.hpp"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian and written as they lie");

namespace syncline::codec {
namespace {

constexpr std::uint32_t kInfBits = 0x7f800000;
constexpr std::uint32_t kNanBits = 0x7fc00000;
constexpr std::uint32_t kHugeBits = 254u << 23;  // 2^127: a rounded scale might overflow from here on
constexpr std::uint32_t kTinyBits = 27u << 23;  // 2^-100
constexpr std::uint32_t kMagnitude = 0x7fffffff;

inline std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
inline float float_of(std::uint32_t x) { return __builtin_bit_cast(float, x); }
inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

inline float load_float(const std::uint8_t* from) {
    float x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
inline void clear(void* from, std::int64_t num_bytes) {
    if (num_bytes > 0) std::memset(from, 0, static_cast<std::size_t>(num_bytes));
}
inline void store_float(std::uint8_t* to, float x) { std::memcpy(to, &x, sizeof x); }

template <bool kResidual>
inline float input(const float* values, const float* residual, std::int64_t i) {
    return kResidual ? values[i] + residual[i] : values[i];
}

// The bits of the largest magnitude; a NaN or Inf anywhere gives at least kInfBits.
template <bool kResidual>
std::uint32_t top_bits(const float* __restrict values, const float* __restrict residual, std::int64_t n) {
    std::int32_t top = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const auto magnitude = static_cast<std::int32_t>(bits_of(input<kResidual>(values, residual, i)) & kMagnitude);
        top = magnitude > top ? magnitude : top;
    }
    return static_cast<std::uint32_t>(top);
}

// Scale of a block (a bfloat16, rounded up) and what takes an element to code units: NaN and 0 when poisoned, 0 and 0
// when tiny.
struct Scale {
    float value;
    float inverse;
    bool poisoned;
};
inline Scale scale_of(std::uint32_t top, float inverse_of_levels) {
    if (top >= kHugeBits) return {float_of(kNanBits), 0.0f, true};
    if (top < kTinyBits) return {0.0f, 0.0f, false};
    const float value = float_of((bits_of(float_of(top) * inverse_of_levels) + 0xffffu) & 0xffff0000u);
    return {value, 1.0f / value, false};
}

// Scales are written as their upper halves, and zeros up to a multiple of 4 bytes.
inline std::int64_t scale_bytes(std::int64_t num_blocks) { return 4 * ((num_blocks + 1) / 2); }
inline void store_scale(std::uint8_t* payload, std::int64_t place, std::int64_t num_blocks, float scale) {
    const auto half = static_cast<std::uint16_t>(bits_of(scale) >> 16);
    std::memcpy(payload + 2 * place, &half, sizeof half);
    if (place + 1 == num_blocks && num_blocks % 2) std::memset(payload + 2 * num_blocks, 0, 2);
}
inline float load_scale(const std::uint8_t* payload, std::int64_t place) {
    std::uint16_t half;
    std::memcpy(&half, payload + 2 * place, sizeof half);
    return float_of(static_cast<std::uint32_t>(half) << 16);
}

// A block that decodes to NaN sends nothing: what was owed stays owed, unless it is itself not finite.
inline void heal(float* residual, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        residual[i] = (bits_of(residual[i]) & kMagnitude) >= kInfBits ? 0.0f : residual[i];
    }
}

// A stretch of elements that starts and, but for the last one, ends at a block.
struct Span {
    std::int64_t from;
    std::int64_t to;
};
inline std::int64_t blocks_in(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

template <bool kAdd>
inline void give(float* out, std::int64_t i, float decoded, float scale) {
    const float scaled = decoded * scale;
    out[i] = kAdd ? out[i] + scaled : scaled;
}

constexpr std::int64_t kChunk = 2048;  // elements that a reduction takes at a time: all it touches stays in cache

inline void multiply(float* values, std::int64_t n, float factor) {
    for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
}

// encode(Input, payload, Span) -> finite; decode(payload, Output, Span).
template <typename Encode, typename Decode>
bool reduce_chunks(const Reduction& all, std::int64_t block, Encode encode, Decode decode) {
    const std::int64_t chunk = block > kChunk ? block : kChunk;
    bool finite = true;
    for (std::int64_t from = 0; from < all.size; from += chunk) {
        const Span part{from, least(from + chunk, all.size)};
        for (std::int64_t k = 0; k < all.num_payloads; ++k) {
            decode(all.payloads[k], Output{all.own, all.size, true, 1.0f}, part);
        }
        if (all.before != 1.0f) multiply(all.own + part.from, part.to - part.from, all.before);
        if (!all.payload) continue;
        finite &= encode(Input{all.own, all.residual, all.size}, all.payload, part);
        decode(all.payload, Output{all.own, all.size, false, all.after}, part);
    }
    return finite;
}

}  // namespace
}  // namespace syncline::codec

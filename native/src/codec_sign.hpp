// One bit an element and the mean magnitude of each block. The mean is summed in fixed point, so its bits do not depend
// on how many lanes sum it.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

constexpr std::uint32_t kSignBit = 0x80000000u;

template <bool kResidual>
std::int32_t fixed_sum(const float* __restrict values, const float* __restrict residual, std::int64_t n, float up) {
    constexpr float kWhole = 8388608.0f;  // 2^23: below it, adding it leaves a whole number in the low bits
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const float magnitude = float_of(bits_of(input<kResidual>(values, residual, i)) & kMagnitude);
        sum += static_cast<std::int32_t>(bits_of(magnitude * up + kWhole) - bits_of(kWhole));
    }
    return sum;
}

template <bool kResidual>
Scale mean_magnitude(const float* values, const float* residual, std::int64_t n, std::int64_t block) {
    const std::uint32_t top = top_bits<kResidual>(values, residual, n);
    if (top >= kInfBits) return {float_of(kNanBits), 0.0f, true};
    if (top < kTinyBits) return {0.0f, 0.0f, false};
    int log2_block = 0;
    while ((std::int64_t{1} << log2_block) < block) ++log2_block;
    const int room = 30 - log2_block < 22 ? 30 - log2_block : 22;
    const int shift = room - (static_cast<int>(top >> 23) - 126);
    const float up = float_of(static_cast<std::uint32_t>(127 + shift) << 23);
    const float down = float_of(static_cast<std::uint32_t>(127 - shift) << 23);
    const std::int32_t sum = fixed_sum<kResidual>(values, residual, n, up);
    return {(static_cast<float>(sum) / static_cast<float>(n)) * down, 0.0f, false};
}

// Sixteen elements: their sign bits, and what is left of them.
template <bool kResidual>
inline std::uint16_t signs_of_16(const float* values, float* residual, float scale) {
#if defined(__AVX512F__)
    const __m512 a = kResidual ? _mm512_add_ps(_mm512_loadu_ps(values), _mm512_loadu_ps(residual))
                               : _mm512_loadu_ps(values);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(a));
    if (kResidual) {
        const __m512 plus = _mm512_set1_ps(scale);
        const __m512 decoded = _mm512_mask_blend_ps(negative, plus, _mm512_set1_ps(-scale));
        _mm512_storeu_ps(residual, _mm512_sub_ps(a, decoded));
    }
    return negative;
#elif defined(__AVX2__)
    int negative = 0;
    for (int half = 0; half < 2; ++half) {
        __m256 a = _mm256_loadu_ps(values + 8 * half);
        if (kResidual) a = _mm256_add_ps(a, _mm256_loadu_ps(residual + 8 * half));
        negative |= _mm256_movemask_ps(a) << (8 * half);
        if (kResidual) {
            const __m256 sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f));
            _mm256_storeu_ps(residual + 8 * half, _mm256_sub_ps(a, _mm256_or_ps(sign, _mm256_set1_ps(scale))));
        }
    }
    return static_cast<std::uint16_t>(negative);
#else
    std::uint8_t sign[16];
    for (int i = 0; i < 16; ++i) {
        const float a = input<kResidual>(values, residual, i);
        sign[i] = static_cast<std::uint8_t>(bits_of(a) >> 31);
        if (kResidual) residual[i] = a - float_of(bits_of(scale) | (bits_of(a) & kSignBit));
    }
    std::uint64_t low, high;
    std::memcpy(&low, sign, sizeof low);
    std::memcpy(&high, sign + 8, sizeof high);
    // Bytes of 0 or 1 to bits, the first byte to the lowest bit.
    constexpr std::uint64_t kGather = 0x0102040810204080u;
    return static_cast<std::uint16_t>(((low * kGather) >> 56) | (((high * kGather) >> 56) << 8));
#endif
}

template <bool kResidual>
void sign_encode_all(Input in, std::int64_t block, std::uint8_t* payload) {
    const std::int64_t num_blocks = (in.size + block - 1) / block;
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        const std::int64_t start = b * block;
        const std::int64_t n = least(block, in.size - start);
        const float* values = in.values + start;
        float* residual = kResidual ? in.residual + start : nullptr;
        const Scale scale = mean_magnitude<kResidual>(values, residual, n, block);
        store_float(payload + 4 * b, scale.value);
        std::uint8_t* const target = payload + 4 * num_blocks + start / 8;
        if (scale.poisoned) {
            clear(target, (n + 7) / 8);
            if (kResidual) heal(residual, n);
            continue;
        }
        std::int64_t i = 0;
        for (; i + 16 <= n; i += 16) {
            const std::uint16_t signs = signs_of_16<kResidual>(values + i, kResidual ? residual + i : nullptr, scale.value);
            std::memcpy(target + i / 8, &signs, sizeof signs);
        }
        for (std::int64_t byte = i; byte < n; byte += 8) target[byte / 8] = 0;
        for (; i < n; ++i) {
            const float a = input<kResidual>(values, residual, i);
            target[i / 8] = static_cast<std::uint8_t>(target[i / 8] | ((bits_of(a) >> 31) << (i % 8)));
            if (kResidual) residual[i] = a - float_of(bits_of(scale.value) | (bits_of(a) & kSignBit));
        }
    }
}

void sign_encode(Input in, std::int64_t block, std::uint8_t* payload) {
    in.residual ? sign_encode_all<true>(in, block, payload) : sign_encode_all<false>(in, block, payload);
}

// Eight elements of one byte: the scale, its sign flipped where the bit is set.
template <bool kAdd>
inline void signed_8(std::uint8_t byte, float scale, float factor, float* out) {
#if defined(__AVX2__)
    const __m256i place = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(byte), place), place);
    const __m256 flip = _mm256_and_ps(_mm256_castsi256_ps(set), _mm256_set1_ps(-0.0f));
    const __m256 scaled = _mm256_mul_ps(_mm256_xor_ps(_mm256_set1_ps(scale), flip), _mm256_set1_ps(factor));
    _mm256_storeu_ps(out, kAdd ? _mm256_add_ps(_mm256_loadu_ps(out), scaled) : scaled);
#else
    for (int i = 0; i < 8; ++i) {
        const std::uint32_t flip = (static_cast<std::uint32_t>(byte) << (31 - i)) & kSignBit;
        give<kAdd>(out, i, float_of(bits_of(scale) ^ flip), factor);
    }
#endif
}

template <bool kAdd>
void sign_decode_all(const std::uint8_t* payload, std::int64_t block, Output out) {
    const std::int64_t num_blocks = (out.size + block - 1) / block;
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        const float scale = load_float(payload + 4 * b);
        const std::int64_t start = b * block;
        const std::int64_t n = least(block, out.size - start);
        const std::uint8_t* const source = payload + 4 * num_blocks + start / 8;
        float* const target = out.values + start;
        std::int64_t i = 0;
        for (; i + 8 <= n; i += 8) signed_8<kAdd>(source[i / 8], scale, out.scale, target + i);
        for (; i < n; ++i) {
            const std::uint32_t flip = (static_cast<std::uint32_t>(source[i / 8]) << (31 - i % 8)) & kSignBit;
            give<kAdd>(target, i, float_of(bits_of(scale) ^ flip), out.scale);
        }
    }
}

void sign_decode(const std::uint8_t* payload, std::int64_t block, Output out) {
    out.add ? sign_decode_all<true>(payload, block, out) : sign_decode_all<false>(payload, block, out);
}

}  // namespace
}  // namespace syncline::codec

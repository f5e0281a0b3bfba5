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
bool sign_encode_all(Input in, std::int64_t block, std::uint8_t* payload, Span part) {
    const std::int64_t num_blocks = blocks_in(in.size, block);
    bool finite = true;
    for (std::int64_t start = part.from; start < part.to; start += block) {
        const std::int64_t n = least(block, in.size - start);
        const float* values = in.values + start;
        float* residual = kResidual ? in.residual + start : nullptr;
        const Scale scale = mean_magnitude<kResidual>(values, residual, n, block);
        store_float(payload + 4 * (start / block), scale.value);
        std::uint8_t* const target = payload + 4 * num_blocks + start / 8;
        if (scale.poisoned) {
            finite = false;
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
    return finite;
}

bool sign_encode_span(Input in, std::int64_t block, std::uint8_t* payload, Span part) {
    return in.residual ? sign_encode_all<true>(in, block, payload, part)
                       : sign_encode_all<false>(in, block, payload, part);
}

bool sign_encode(Input in, std::int64_t block, std::uint8_t* payload) {
    return sign_encode_span(in, block, payload, {0, in.size});
}

// Sixteen elements of two bytes: the scale, its sign flipped where the bit is set.
template <bool kAdd>
inline void signed_16(const std::uint8_t* source, float scale, float* out) {
#if defined(__AVX512F__)
    std::uint16_t negative;
    std::memcpy(&negative, source, sizeof negative);
    const __m512 decoded = _mm512_mask_blend_ps(negative, _mm512_set1_ps(scale), _mm512_set1_ps(-scale));
    _mm512_storeu_ps(out, kAdd ? _mm512_add_ps(_mm512_loadu_ps(out), decoded) : decoded);
#elif defined(__AVX2__)
    const __m256i place = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (int half = 0; half < 2; ++half) {
        const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(source[half]), place), place);
        const __m256 flip = _mm256_and_ps(_mm256_castsi256_ps(set), _mm256_set1_ps(-0.0f));
        const __m256 decoded = _mm256_xor_ps(_mm256_set1_ps(scale), flip);
        _mm256_storeu_ps(out + 8 * half, kAdd ? _mm256_add_ps(_mm256_loadu_ps(out + 8 * half), decoded) : decoded);
    }
#else
    for (int i = 0; i < 16; ++i) {
        const std::uint32_t flip = (static_cast<std::uint32_t>(source[i / 8]) << (31 - i % 8)) & kSignBit;
        const float decoded = float_of(bits_of(scale) ^ flip);
        out[i] = kAdd ? out[i] + decoded : decoded;
    }
#endif
}

template <bool kAdd>
void sign_decode_all(const std::uint8_t* payload, std::int64_t block, Output out, Span part) {
    const std::int64_t num_blocks = blocks_in(out.size, block);
    for (std::int64_t start = part.from; start < part.to; start += block) {
        const float scale = load_float(payload + 4 * (start / block)) * out.scale;
        const std::int64_t n = least(block, out.size - start);
        const std::uint8_t* const source = payload + 4 * num_blocks + start / 8;
        float* const target = out.values + start;
        std::int64_t i = 0;
        for (; i + 16 <= n; i += 16) signed_16<kAdd>(source + i / 8, scale, target + i);
        for (; i < n; ++i) {
            const std::uint32_t flip = (static_cast<std::uint32_t>(source[i / 8]) << (31 - i % 8)) & kSignBit;
            const float decoded = float_of(bits_of(scale) ^ flip);
            target[i] = kAdd ? target[i] + decoded : decoded;
        }
    }
}

void sign_decode_span(const std::uint8_t* payload, std::int64_t block, Output out, Span part) {
    out.add ? sign_decode_all<true>(payload, block, out, part) : sign_decode_all<false>(payload, block, out, part);
}

void sign_decode(const std::uint8_t* payload, std::int64_t block, Output out) {
    sign_decode_span(payload, block, out, {0, out.size});
}

bool sign_reduce(const Reduction& all, std::int64_t block) {
    return reduce_chunks(
        all, block,
        [block](Input in, std::uint8_t* payload, Span part) { return sign_encode_span(in, block, payload, part); },
        [block](const std::uint8_t* payload, Output out, Span part) { sign_decode_span(payload, block, out, part); });
}

}  // namespace
}  // namespace syncline::codec

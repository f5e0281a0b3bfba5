// Shorter floats: fp16 and bf16 element by element. Integer arithmetic without branches, so that every
// compiler can use the lanes it has and all give the same bits.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

inline std::uint16_t to_fp16(float x) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t size = bits & kMagnitude;
    // Subnormal: 0.5 has the unit of the smallest fp16 number in its last place, so the addition rounds.
    const std::uint32_t below = bits_of(float_of(size) + 0.5f) - 0x3f000000u;
    const std::uint32_t normal = (size + 0xfffu + ((size >> 13) & 1u) - (112u << 23)) >> 13;
    std::uint32_t code = size < 0x38800000u ? below : normal;
    code = size >= 0x47800000u ? 0x7c00u : code;
    return static_cast<std::uint16_t>(size > kInfBits ? 0x7e00u : (sign | code));
}
inline float from_fp16(std::uint16_t code) {
    const std::uint32_t size = static_cast<std::uint32_t>(code & 0x7fffu) << 13;
    const std::uint32_t exponent = size & 0x0f800000u;
    std::uint32_t bits = size + (112u << 23);
    bits = exponent == 0x0f800000u ? bits + (112u << 23) : bits;
    const float below = float_of(bits + (1u << 23)) - float_of(113u << 23);
    bits = exponent == 0 ? bits_of(below) : bits;
    return float_of(bits | (static_cast<std::uint32_t>(code & 0x8000u) << 16));
}
inline std::uint16_t to_bf16(float x) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t code = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<std::uint16_t>((bits & kMagnitude) > kInfBits ? 0x7fc0u : code);
}
inline float from_bf16(std::uint16_t code) { return float_of(static_cast<std::uint32_t>(code) << 16); }

template <bool kHalf>
inline std::uint16_t to_short(float x) {
    return kHalf ? to_fp16(x) : to_bf16(x);
}
template <bool kHalf>
inline float from_short(std::uint16_t code) {
    return kHalf ? from_fp16(code) : from_bf16(code);
}

// As many elements of fp16 with residual as the hardware's own conversion takes in whole vectors.
inline std::int64_t half_lines(const float* values, float* residual, std::int64_t n, std::uint8_t* payload,
                               bool& finite) {
    std::int64_t i = 0;
#if defined(__AVX512F__)
    const __m512i magnitude = _mm512_set1_epi32(static_cast<int>(kMagnitude));
    const __m512i inf = _mm512_set1_epi32(static_cast<int>(kInfBits));
    __mmask16 bad = 0;
    constexpr __mmask16 kAll = 0xffff;  // masked forms: the plain ones make GCC warn about its own headers
    for (; i + 16 <= n; i += 16) {
        const __m512 owed = _mm512_loadu_ps(residual + i);
        const __m512 a = _mm512_add_ps(_mm512_loadu_ps(values + i), owed);
        bad |= _mm512_cmpge_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a), magnitude), inf);
        __m256i code = _mm512_maskz_cvtps_ph(kAll, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        code = _mm256_mask_mov_epi16(code, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), _mm256_set1_epi16(0x7e00));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(payload + 2 * i), code);
        const __m512 decoded = _mm512_maskz_cvtph_ps(kAll, code);
        const __mmask16 seen = _mm512_cmplt_epi32_mask(_mm512_and_si512(_mm512_castps_si512(decoded), magnitude), inf);
        const __mmask16 sound = _mm512_cmplt_epi32_mask(_mm512_and_si512(_mm512_castps_si512(owed), magnitude), inf);
        const __m512 left = _mm512_maskz_mov_ps(sound, owed);
        _mm512_storeu_ps(residual + i, _mm512_mask_sub_ps(left, seen, a, decoded));
    }
    finite = bad == 0;
#elif defined(__F16C__)
    const __m256i magnitude = _mm256_set1_epi32(static_cast<int>(kMagnitude));
    const __m256i inf = _mm256_set1_epi32(static_cast<int>(kInfBits));
    __m256i good = _mm256_set1_epi32(-1);
    for (; i + 8 <= n; i += 8) {
        const __m256 owed = _mm256_loadu_ps(residual + i);
        const __m256 a = _mm256_add_ps(_mm256_loadu_ps(values + i), owed);
        good = _mm256_and_si256(good, _mm256_cmpgt_epi32(inf, _mm256_and_si256(_mm256_castps_si256(a), magnitude)));
        // The one NaN that is written: its own bits take the place of whatever NaN came.
        const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kNanBits)));
        const __m256 clean = _mm256_blendv_ps(a, nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
        const __m128i code = _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(payload + 2 * i), code);
        const __m256 decoded = _mm256_cvtph_ps(code);
        const __m256i seen = _mm256_cmpgt_epi32(inf, _mm256_and_si256(_mm256_castps_si256(decoded), magnitude));
        const __m256i sound = _mm256_cmpgt_epi32(inf, _mm256_and_si256(_mm256_castps_si256(owed), magnitude));
        const __m256 left = _mm256_and_ps(owed, _mm256_castsi256_ps(sound));
        _mm256_storeu_ps(residual + i, _mm256_blendv_ps(left, _mm256_sub_ps(a, decoded), _mm256_castsi256_ps(seen)));
    }
    finite = _mm256_movemask_epi8(good) == -1;
#endif
    (void)values, (void)residual, (void)n, (void)payload, (void)finite;
    return i;
}

template <bool kHalf>
bool short_encode(Input in, std::uint8_t* __restrict payload) {
    const float* __restrict values = in.values;
    float* __restrict residual = in.residual;
    std::int32_t top = 0;
    if (!residual) {
        for (std::int64_t i = 0; i < in.size; ++i) {
            const std::uint16_t code = to_short<kHalf>(values[i]);
            std::memcpy(payload + 2 * i, &code, sizeof code);
            const auto size = static_cast<std::int32_t>(bits_of(values[i]) & kMagnitude);
            top = size > top ? size : top;
        }
        return static_cast<std::uint32_t>(top) < kInfBits;
    }
    bool finite = true;
    for (std::int64_t i = kHalf ? half_lines(values, residual, in.size, payload, finite) : 0; i < in.size; ++i) {
        const float owed = residual[i];
        const float a = values[i] + owed;
        const auto size = static_cast<std::int32_t>(bits_of(a) & kMagnitude);
        top = size > top ? size : top;
        const std::uint16_t code = to_short<kHalf>(a);
        std::memcpy(payload + 2 * i, &code, sizeof code);
        const float decoded = from_short<kHalf>(code);
        const float kept = (bits_of(owed) & kMagnitude) >= kInfBits ? 0.0f : owed;
        residual[i] = (bits_of(decoded) & kMagnitude) >= kInfBits ? kept : a - decoded;
    }
    return finite && static_cast<std::uint32_t>(top) < kInfBits;
}

template <bool kHalf, bool kAdd>
void short_decode(const std::uint8_t* __restrict payload, Output out) {
    float* __restrict target = out.values;
    for (std::int64_t i = 0; i < out.size; ++i) {
        std::uint16_t code;
        std::memcpy(&code, payload + 2 * i, sizeof code);
        give<kAdd>(target, i, from_short<kHalf>(code), out.scale);
    }
}

template <bool kResidual>
bool copy_encode(Input in, std::uint8_t* __restrict payload) {
    const float* __restrict values = in.values;
    float* __restrict residual = in.residual;
    std::int32_t top = 0;
    for (std::int64_t i = 0; i < in.size; ++i) {
        const float a = input<kResidual>(values, residual, i);
        const auto size = static_cast<std::int32_t>(bits_of(a) & kMagnitude);
        top = size > top ? size : top;
        store_float(payload + 4 * i, a);
        if (kResidual) residual[i] = 0.0f;
    }
    return static_cast<std::uint32_t>(top) < kInfBits;
}

template <bool kAdd>
void copy_decode(const std::uint8_t* __restrict payload, Output out) {
    float* __restrict target = out.values;
    for (std::int64_t i = 0; i < out.size; ++i) give<kAdd>(target, i, load_float(payload + 4 * i), out.scale);
}

bool cast_encode(Input in, Short kind, std::uint8_t* payload) {
    switch (kind) {
        case Short::fp16: return short_encode<true>(in, payload);
        case Short::bf16: return short_encode<false>(in, payload);
        case Short::fp32: break;
    }
    return in.residual ? copy_encode<true>(in, payload) : copy_encode<false>(in, payload);
}

void cast_decode(const std::uint8_t* payload, Short kind, Output out) {
    switch (kind) {
        case Short::fp16: return out.add ? short_decode<true, true>(payload, out) : short_decode<true, false>(payload, out);
        case Short::bf16: return out.add ? short_decode<false, true>(payload, out) : short_decode<false, false>(payload, out);
        case Short::fp32: return out.add ? copy_decode<true>(payload, out) : copy_decode<false>(payload, out);
    }
}

bool is_finite(const float* values, std::int64_t size) {
    // Every processor compares for equality in one step; the largest of unsigned numbers takes some several.
    std::uint32_t bad = 0;
    for (std::int64_t i = 0; i < size; ++i) bad |= (bits_of(values[i]) & kInfBits) == kInfBits ? ~0u : 0u;
    return bad == 0;
}

// Plain sums that stay where they are: the last addition and the multiplication in one pass over the memory.
void plain_reduce(const Reduction& all) {
    for (std::int64_t from = 0; from < all.size; from += kChunk) {
        const std::int64_t count = least(kChunk, all.size - from);
        float* __restrict own = all.own + from;
        for (std::int64_t k = 0; k < all.num_payloads; ++k) {
            const std::uint8_t* payload = all.payloads[k] + 4 * from;
            if (k + 1 < all.num_payloads || all.before == 1.0f) {
                for (std::int64_t i = 0; i < count; ++i) own[i] += load_float(payload + 4 * i);
            } else {
                for (std::int64_t i = 0; i < count; ++i) own[i] = (own[i] + load_float(payload + 4 * i)) * all.before;
            }
        }
        if (all.num_payloads == 0 && all.before != 1.0f) multiply(own, count, all.before);
    }
}

bool cast_reduce(const Reduction& all, Short kind) {
    if (kind == Short::fp32 && !all.payload) {
        plain_reduce(all);
        return true;
    }
    const std::int64_t width = kind == Short::fp32 ? 4 : 2;
    return reduce_chunks(
        all, 1,
        [=](Input in, std::uint8_t* payload, Span part) {
            float* const residual = in.residual ? in.residual + part.from : nullptr;
            return cast_encode({in.values + part.from, residual, part.to - part.from}, kind, payload + width * part.from);
        },
        [=](const std::uint8_t* payload, Output out, Span part) {
            cast_decode(payload + width * part.from, kind,
                        {out.values + part.from, part.to - part.from, out.add, out.scale});
        });
}

}  // namespace
}  // namespace syncline::codec

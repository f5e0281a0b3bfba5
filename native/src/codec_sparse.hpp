// Few elements: a threshold by histogram, what reaches it, and places drawn by a key.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

constexpr std::int64_t kLine = 16;  // elements of a cache line: samples come by the line

// The highest bin such that it and those above hold at least `wanted`; `above` is what lies above it.
struct Bin {
    std::uint32_t place;
    std::int64_t above;
};
inline Bin bin_reached(const std::uint32_t* counts, std::uint32_t num_bins, std::int64_t wanted) {
    std::int64_t above = 0;
    for (std::uint32_t place = num_bins - 1; place > 0; --place) {
        if (above + counts[place] >= wanted) return {place, above};
        above += counts[place];
    }
    return {0, above};
}

template <bool kResidual>
Threshold sampled_threshold(Input in, Sample how) {
    std::memset(how.histogram, 0, static_cast<std::size_t>(kHistogram) * sizeof(std::uint32_t));
    const std::int64_t num_lines = in.size / kLine;
    std::int64_t seen = 0;
    for (std::int64_t line = how.offset; line < num_lines; line += how.stride) {
        const std::int64_t at = line * kLine;
        // Lines this far apart are not foreseen by the hardware.
        const std::int64_t ahead = least(at + 24 * how.stride * kLine, in.size - 1);
        __builtin_prefetch(in.values + ahead);
        if (kResidual) __builtin_prefetch(in.residual + ahead);
        std::uint32_t bin[kLine];
        for (std::int64_t i = 0; i < kLine; ++i) {
            bin[i] = (bits_of(input<kResidual>(in.values + at, in.residual + (kResidual ? at : 0), i)) & kMagnitude) >> 16;
        }
        for (std::int64_t i = 0; i < kLine; ++i) ++how.histogram[bin[i]];
        seen += kLine;
    }
    if (seen == 0) return {1, in.size};
    std::int64_t wanted = how.wanted * seen / in.size;
    wanted = wanted < 1 ? 1 : wanted;
    const Bin bin = bin_reached(how.histogram, kHistogram, wanted);
    // Within the bin as if its elements lay evenly: error feedback crowds them just below the threshold.
    const auto count = static_cast<std::int64_t>(how.histogram[bin.place]);
    const std::int64_t below = count > wanted - bin.above ? count - (wanted - bin.above) : 0;
    const auto inside = static_cast<std::uint32_t>(count ? (below << 16) / count : 0);
    const std::uint32_t edge = (bin.place << 16) + inside;
    return {edge ? edge : 1u, in.size};
}

// Radix selection: 11, 10 and 10 bits of the magnitude of rank `wanted`, each by one histogram of those still in doubt.
template <bool kResidual>
Threshold exact_threshold(Input in, Sample how) {
    std::uint32_t found = 0;
    std::int64_t wanted = how.wanted;
    int shift = 20;
    constexpr int kWidths[] = {11, 10, 10};
    for (const int width : kWidths) {
        const std::uint32_t num_bins = 1u << width;
        std::memset(how.histogram, 0, num_bins * sizeof(std::uint32_t));
        for (std::int64_t i = 0; i < in.size; ++i) {
            const std::uint32_t size = bits_of(input<kResidual>(in.values, in.residual, i)) & kMagnitude;
            if (((size ^ found) >> shift) >> width == 0) ++how.histogram[(size >> shift) & (num_bins - 1)];
        }
        const Bin bin = bin_reached(how.histogram, num_bins, wanted);
        found |= bin.place << shift;
        wanted -= bin.above;
        shift -= 10;
    }
    // What is left of `wanted` is the rank within those that equal the threshold; a zero is never kept.
    return found ? Threshold{found, wanted} : Threshold{1, in.size};
}

Threshold threshold(Input in, Sample how) {
    if (how.stride > 1) return in.residual ? sampled_threshold<true>(in, how) : sampled_threshold<false>(in, how);
    return in.residual ? exact_threshold<true>(in, how) : exact_threshold<false>(in, how);
}

inline void put(Places to, std::int64_t place, std::int64_t index, float value) {
    const auto short_index = static_cast<std::uint32_t>(index);
    std::memcpy(to.index + 4 * place, &short_index, sizeof short_index);
    store_float(to.value + 4 * place, value);
}

// One element at a time, as many as fit: tails, and lines that may fill the last places.
template <bool kResidual>
inline void select_few(Input in, std::int64_t start, std::int64_t n, Threshold& edge, Places to, Kept& kept) {
    for (std::int64_t i = start; i < start + n; ++i) {
        const float a = input<kResidual>(in.values, in.residual, i);
        const std::uint32_t size = bits_of(a) & kMagnitude;
        float left = a;
        if (size >= kInfBits) {
            kept.poisoned = true;
            left = 0.0f;
        } else if (size >= edge.bits && kept.count < to.room && (size > edge.bits || edge.ties > 0)) {
            edge.ties -= size == edge.bits;
            put(to, kept.count++, i, a);
            left = 0.0f;
        }
        if (kResidual) in.residual[i] = left;
    }
}

#if defined(__AVX512F__)
template <bool kResidual>
inline void select_line(Input in, std::int64_t at, Threshold& edge, Places to, Kept& kept) {
    const __m512 value = _mm512_loadu_ps(in.values + at);
    const __m512 a = kResidual ? _mm512_add_ps(value, _mm512_loadu_ps(in.residual + at)) : value;
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(static_cast<int>(kMagnitude)));
    const __mmask16 reach = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(static_cast<int>(edge.bits)));
    if (reach == 0) {
        if (kResidual) _mm512_storeu_ps(in.residual + at, a);
        return;
    }
    const __mmask16 bad = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(static_cast<int>(kInfBits)));
    const __mmask16 tie = _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(static_cast<int>(edge.bits)));
    if ((bad | tie) != 0 || kept.count + kLine > to.room) {
        select_few<kResidual>(in, at, kLine, edge, to, kept);
        return;
    }
    // Whole vectors are written: the places after the kept ones are filled by the next line, or cleared at the end.
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int>(at)));
    _mm512_storeu_si512(to.index + 4 * kept.count, _mm512_maskz_compress_epi32(reach, index));
    _mm512_storeu_ps(to.value + 4 * kept.count, _mm512_maskz_compress_ps(reach, a));
    kept.count += __builtin_popcount(reach);
    if (kResidual) _mm512_storeu_ps(in.residual + at, _mm512_maskz_mov_ps(static_cast<__mmask16>(~reach), a));
}
#elif defined(__AVX2__)
template <bool kResidual>
inline void select_line(Input in, std::int64_t at, Threshold& edge, Places to, Kept& kept) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(kMagnitude));
    const __m256i below = _mm256_set1_epi32(static_cast<int>(edge.bits) - 1);
    __m256 a[2];
    int reach = 0;
    for (int half = 0; half < 2; ++half) {
        a[half] = _mm256_loadu_ps(in.values + at + 8 * half);
        if (kResidual) a[half] = _mm256_add_ps(a[half], _mm256_loadu_ps(in.residual + at + 8 * half));
        const __m256i size = _mm256_and_si256(_mm256_castps_si256(a[half]), mask);
        reach |= _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(size, below))) << (8 * half);
    }
    if (reach != 0) {
        select_few<kResidual>(in, at, kLine, edge, to, kept);
    } else if (kResidual) {
        _mm256_storeu_ps(in.residual + at, a[0]);
        _mm256_storeu_ps(in.residual + at + 8, a[1]);
    }
}
#else
template <bool kResidual>
inline void select_line(Input in, std::int64_t at, Threshold& edge, Places to, Kept& kept) {
    float a[kLine];
    std::int32_t reach = 0;
    for (std::int64_t i = 0; i < kLine; ++i) {
        a[i] = input<kResidual>(in.values, in.residual, at + i);
        reach |= static_cast<std::int32_t>(bits_of(a[i]) & kMagnitude) >= static_cast<std::int32_t>(edge.bits);
    }
    if (reach != 0) {
        select_few<kResidual>(in, at, kLine, edge, to, kept);
    } else if (kResidual) {
        std::memcpy(in.residual + at, a, sizeof a);
    }
}
#endif

template <bool kResidual>
Kept select_all(Input in, Threshold edge, Places to) {
    Kept kept{0, false};
    std::int64_t at = 0;
    for (; at + kLine <= in.size; at += kLine) select_line<kResidual>(in, at, edge, to, kept);
    select_few<kResidual>(in, at, in.size - at, edge, to, kept);
    if (kept.poisoned) {
        // Nothing is sent: what was taken out is owed again.
        for (std::int64_t i = 0; kResidual && i < kept.count; ++i) {
            std::uint32_t index;
            std::memcpy(&index, to.index + 4 * i, sizeof index);
            in.residual[index] = load_float(to.value + 4 * i);
        }
        kept.count = 0;
    }
    clear(to.index + 4 * kept.count, 4 * (to.room - kept.count));
    clear(to.value + 4 * kept.count, 4 * (to.room - kept.count));
    return kept;
}

Kept select(Input in, Threshold edge, Places to) {
    return in.residual ? select_all<true>(in, edge, to) : select_all<false>(in, edge, to);
}

}  // namespace
}  // namespace syncline::codec

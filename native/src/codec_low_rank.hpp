// The thin products of PowerSGD, each one pass over the matrix for every four columns of the factors. Sums are in
// floating point: variants agree to rounding.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

constexpr std::int64_t kTile = 2048;  // columns at a time: four columns of a factor are 32 KB
constexpr std::int64_t kLanes = 16;

// Sixteen floats in whatever registers the variant has; loaded and stored at any address.
typedef float Lanes __attribute__((vector_size(64)));
#define SYNCLINE_LOAD(name, from) \
    Lanes name;                   \
    std::memcpy(&name, from, sizeof name)
#define SYNCLINE_STORE(to, name) std::memcpy(to, &name, sizeof name)

// Columns first .. first + kRanks of a factor, from row `start` on, turned on their side.
template <int kRanks>
void turn(const float* factor, std::int64_t rank, std::int64_t first, std::int64_t start, std::int64_t n, float* tile) {
    for (int r = 0; r < kRanks; ++r) {
        for (std::int64_t i = 0; i < n; ++i) tile[r * kTile + i] = factor[(start + i) * rank + first + r];
    }
}

// residual += values in the first pass; p[r] += residual . tile[r]
template <int kRanks, bool kFirst>
void begin_row(const float* values, float* residual, std::int64_t n, const float* tile, float* p) {
    Lanes sum[kRanks] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        SYNCLINE_LOAD(a, residual + i);
        if (kFirst) {
            SYNCLINE_LOAD(value, values + i);
            a = value + a;
            SYNCLINE_STORE(residual + i, a);
        }
        for (int r = 0; r < kRanks; ++r) {
            SYNCLINE_LOAD(q, tile + r * kTile + i);
            sum[r] += a * q;
        }
    }
    for (int r = 0; r < kRanks; ++r) {
        for (int k = 0; k < kLanes; ++k) p[r] += sum[r][k];
    }
    for (; i < n; ++i) {
        const float a = kFirst ? values[i] + residual[i] : residual[i];
        residual[i] = a;
        for (int r = 0; r < kRanks; ++r) p[r] += a * tile[r * kTile + i];
    }
}

template <int kRanks>
void begin_columns(Input in, Shape shape, std::int64_t first, const float* q, float* p) {
    float tile[kRanks * kTile];
    for (std::int64_t start = 0; start < shape.cols; start += kTile) {
        const std::int64_t n = least(kTile, shape.cols - start);
        turn<kRanks>(q, shape.rank, first, start, n, tile);
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const std::int64_t at = row * shape.cols + start;
            float* const sums = p + row * shape.rank + first;
            if (first == 0) {
                begin_row<kRanks, true>(in.values + at, in.residual + at, n, tile, sums);
            } else {
                begin_row<kRanks, false>(nullptr, in.residual + at, n, tile, sums);
            }
        }
    }
}

// tile[r] += sum over kRows rows of weight[row][r] * row
template <int kRanks, int kRows>
void middle_rows(const float* part, std::int64_t stride, std::int64_t n, const float* weight, std::int64_t rank,
                 float* tile) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Lanes m[kRows];
        for (int k = 0; k < kRows; ++k) std::memcpy(&m[k], part + k * stride + i, sizeof m[k]);
        for (int r = 0; r < kRanks; ++r) {
            SYNCLINE_LOAD(sum, tile + r * kTile + i);
            for (int k = 0; k < kRows; ++k) sum += weight[k * rank + r] * m[k];
            SYNCLINE_STORE(tile + r * kTile + i, sum);
        }
    }
    for (; i < n; ++i) {
        for (int r = 0; r < kRanks; ++r) {
            for (int k = 0; k < kRows; ++k) tile[r * kTile + i] += weight[k * rank + r] * part[k * stride + i];
        }
    }
}

template <int kRanks>
void middle_columns(const float* matrix, Shape shape, std::int64_t first, const float* p, float* q) {
    float tile[kRanks * kTile];
    for (std::int64_t start = 0; start < shape.cols; start += kTile) {
        const std::int64_t n = least(kTile, shape.cols - start);
        std::memset(tile, 0, sizeof tile);
        std::int64_t row = 0;
        for (; row + 4 <= shape.rows; row += 4) {
            middle_rows<kRanks, 4>(matrix + row * shape.cols + start, shape.cols, n, p + row * shape.rank + first,
                                   shape.rank, tile);
        }
        for (; row < shape.rows; ++row) {
            middle_rows<kRanks, 1>(matrix + row * shape.cols + start, shape.cols, n, p + row * shape.rank + first,
                                   shape.rank, tile);
        }
        for (int r = 0; r < kRanks; ++r) {
            for (std::int64_t i = 0; i < n; ++i) q[(start + i) * shape.rank + first + r] = tile[r * kTile + i];
        }
    }
}

// part -= weight . own; target = (or +=, after the first pass) weight . mean
template <int kRanks, bool kFirst>
void finish_row(float* part, float* target, std::int64_t n, const float* weight, const float* own, const float* mean) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        SYNCLINE_LOAD(left, part + i);
        Lanes sum = {};
        if (!kFirst) std::memcpy(&sum, target + i, sizeof sum);
        for (int r = 0; r < kRanks; ++r) {
            SYNCLINE_LOAD(mine, own + r * kTile + i);
            SYNCLINE_LOAD(all, mean + r * kTile + i);
            left -= weight[r] * mine;
            sum += weight[r] * all;
        }
        SYNCLINE_STORE(part + i, left);
        SYNCLINE_STORE(target + i, sum);
    }
    for (; i < n; ++i) {
        float sum = kFirst ? 0.0f : target[i];
        for (int r = 0; r < kRanks; ++r) {
            part[i] -= weight[r] * own[r * kTile + i];
            sum += weight[r] * mean[r * kTile + i];
        }
        target[i] = sum;
    }
}

template <int kRanks>
void finish_columns(float* matrix, Shape shape, std::int64_t first, const float* p, const float* own, const float* q,
                    float* out) {
    float own_tile[kRanks * kTile], tile[kRanks * kTile];
    for (std::int64_t start = 0; start < shape.cols; start += kTile) {
        const std::int64_t n = least(kTile, shape.cols - start);
        turn<kRanks>(own, shape.rank, first, start, n, own_tile);
        turn<kRanks>(q, shape.rank, first, start, n, tile);
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const std::int64_t at = row * shape.cols + start;
            const float* const weight = p + row * shape.rank + first;
            if (first == 0) {
                finish_row<kRanks, true>(matrix + at, out + at, n, weight, own_tile, tile);
            } else {
                finish_row<kRanks, false>(matrix + at, out + at, n, weight, own_tile, tile);
            }
        }
    }
}

// Four columns of the factors at a time, then what is left.
void low_rank_begin(Input in, Shape shape, const float* q, float* p) {
    clear(p, 4 * shape.rows * shape.rank);
    std::int64_t first = 0;
    for (; first + 4 <= shape.rank; first += 4) begin_columns<4>(in, shape, first, q, p);
    for (; first + 2 <= shape.rank; first += 2) begin_columns<2>(in, shape, first, q, p);
    if (first < shape.rank) begin_columns<1>(in, shape, first, q, p);
}

void low_rank_middle(const float* matrix, Shape shape, const float* p, float* q) {
    std::int64_t first = 0;
    for (; first + 4 <= shape.rank; first += 4) middle_columns<4>(matrix, shape, first, p, q);
    for (; first + 2 <= shape.rank; first += 2) middle_columns<2>(matrix, shape, first, p, q);
    if (first < shape.rank) middle_columns<1>(matrix, shape, first, p, q);
}

void low_rank_finish(float* matrix, Shape shape, const float* p, const float* own, const float* q, float* out) {
    std::int64_t first = 0;
    for (; first + 4 <= shape.rank; first += 4) finish_columns<4>(matrix, shape, first, p, own, q, out);
    for (; first + 2 <= shape.rank; first += 2) finish_columns<2>(matrix, shape, first, p, own, q, out);
    if (first < shape.rank) finish_columns<1>(matrix, shape, first, p, own, q, out);
}

#undef SYNCLINE_LOAD
#undef SYNCLINE_STORE

}  // namespace
}  // namespace syncline::codec

// The thin products of PowerSGD, each one pass over the matrix. Sums are in floating point: variants agree to rounding.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

constexpr std::int64_t kTile = 1024;  // columns at a time: a tile of Q of rank 8 is 32 KB
constexpr std::int64_t kRanks = 8;    // columns of the factors at a time

// The factors are turned on their side a tile at a time, so that inner loops run along contiguous columns.
inline void turn(const float* factor, std::int64_t rank, std::int64_t first, std::int64_t num_ranks, std::int64_t start,
                 std::int64_t n, float* tile) {
    for (std::int64_t r = 0; r < num_ranks; ++r) {
        for (std::int64_t i = 0; i < n; ++i) tile[r * kTile + i] = factor[(start + i) * rank + first + r];
    }
}

constexpr int kLanes = 32;

inline float sum_of(const float* __restrict a, const float* __restrict b, std::int64_t n) {
    float lane[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int k = 0; k < kLanes; ++k) lane[k] += a[i + k] * b[i + k];
    }
    for (int k = 0; i < n; ++i, ++k) lane[k] += a[i] * b[i];
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
    }
    return lane[0];
}

void low_rank_begin(Input in, Shape shape, const float* q, float* p) {
    clear(p, 4 * shape.rows * shape.rank);
    float tile[kRanks * kTile];
    for (std::int64_t first = 0; first < shape.rank; first += kRanks) {
        const std::int64_t num_ranks = least(kRanks, shape.rank - first);
        for (std::int64_t start = 0; start < shape.cols; start += kTile) {
            const std::int64_t n = least(kTile, shape.cols - start);
            turn(q, shape.rank, first, num_ranks, start, n, tile);
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                const float* __restrict values = in.values + row * shape.cols + start;
                float* __restrict residual = in.residual + row * shape.cols + start;
                if (first == 0) {
                    for (std::int64_t i = 0; i < n; ++i) residual[i] = values[i] + residual[i];
                }
                for (std::int64_t r = 0; r < num_ranks; ++r) {
                    p[row * shape.rank + first + r] += sum_of(residual, tile + r * kTile, n);
                }
            }
        }
    }
}

void low_rank_middle(const float* matrix, Shape shape, const float* p, float* q) {
    float tile[kRanks * kTile];
    for (std::int64_t first = 0; first < shape.rank; first += kRanks) {
        const std::int64_t num_ranks = least(kRanks, shape.rank - first);
        for (std::int64_t start = 0; start < shape.cols; start += kTile) {
            const std::int64_t n = least(kTile, shape.cols - start);
            std::memset(tile, 0, sizeof tile);
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                const float* __restrict part = matrix + row * shape.cols + start;
                for (std::int64_t r = 0; r < num_ranks; ++r) {
                    const float weight = p[row * shape.rank + first + r];
                    float* __restrict sum = tile + r * kTile;
                    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * part[i];
                }
            }
            for (std::int64_t r = 0; r < num_ranks; ++r) {
                for (std::int64_t i = 0; i < n; ++i) q[(start + i) * shape.rank + first + r] = tile[r * kTile + i];
            }
        }
    }
}

void low_rank_finish(float* matrix, Shape shape, const float* p, const float* own, const float* q, float* out) {
    float own_tile[kRanks * kTile], tile[kRanks * kTile];
    for (std::int64_t first = 0; first < shape.rank; first += kRanks) {
        const std::int64_t num_ranks = least(kRanks, shape.rank - first);
        for (std::int64_t start = 0; start < shape.cols; start += kTile) {
            const std::int64_t n = least(kTile, shape.cols - start);
            turn(own, shape.rank, first, num_ranks, start, n, own_tile);
            turn(q, shape.rank, first, num_ranks, start, n, tile);
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                float* __restrict part = matrix + row * shape.cols + start;
                float* __restrict target = out + row * shape.cols + start;
                if (first == 0) clear(target, 4 * n);
                for (std::int64_t r = 0; r < num_ranks; ++r) {
                    const float weight = p[row * shape.rank + first + r];
                    const float* __restrict mine = own_tile + r * kTile;
                    const float* __restrict mean = tile + r * kTile;
                    for (std::int64_t i = 0; i < n; ++i) {
                        part[i] -= weight * mine[i];
                        target[i] += weight * mean[i];
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace syncline::codec

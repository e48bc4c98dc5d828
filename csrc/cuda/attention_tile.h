// Attention of 16 query rows by one warp: tiles of 32 positions, gathered into partitions of 512.
//
// A row's sums run over the tiles of a partition in order, and over the partitions in order, whatever shares the batch,
// the chunk or the block; the partitions may be computed by one thread block or by many.
#pragma once

#include "matrix.h"

namespace octavo::cuda {

constexpr int kRowsPerWarp = 16;
constexpr int kTilePositions = 32;
constexpr int kTilesPerPartition = 16;
constexpr int kPartitionPositions = kTilePositions * kTilesPerPartition;

// Rows of 16-byte chunks, an odd number of them apart: eight rows lie in different banks.
template <class T, int kHeadSize> struct Rows {
    static constexpr int kStride = kHeadSize + Pack<T>::kSize;
    static constexpr int kChunks = kHeadSize / Pack<T>::kSize;
    static_assert(kHeadSize % 16 == 0, "a row is whole steps of a matrix product");
    static_assert(kChunks * Pack<T>::kSize == kHeadSize && kStride / Pack<T>::kSize % 2 == 1);
};

// A lane's share of a partition: rows g and g + 8 of the warp's 16.
template <int kHeadSize> struct Partial {
    float largest[2];             // scaled score
    float weights[2];             // sum of the exponentials; of this lane's positions until finish()
    float sums[kHeadSize / 8][4]; // of weighted values
};

using Scores = float[kTilePositions / 8][4];

template <int kHeadSize> __device__ inline void clear(Partial<kHeadSize> &partial) {
    partial.largest[0] = partial.largest[1] = -INFINITY;
    partial.weights[0] = partial.weights[1] = 0;
#pragma unroll
    for (auto &sums : partial.sums)
#pragma unroll
        for (float &sum : sums) sum = 0;
}

// ---------------------------------------------------------------- query · key

template <class T, int kHeadSize> struct Products {
    static constexpr int kStride = Rows<T, kHeadSize>::kStride;

    __device__ static void score(Scores &scores, const T *query, const T *keys) {
#pragma unroll kHeadSize> 128 ? 2 : 8 // addresses known beforehand cost registers
        for (int channel = 0; channel < kHeadSize; channel += 16) {
            const LeftOperand left = load_left(query + channel, kStride);
#pragma unroll
            for (int i = 0; i < kTilePositions / 8; ++i)
                multiply_add<T>(scores[i], left, load_right_columns(keys + 8 * i * kStride + channel, kStride));
        }
    }

    // The weights' place in a result is their place in a left operand: no lane needs another's.
    __device__ static void add_values(Partial<kHeadSize> &partial, const Scores &weights, const T *values, float *) {
#pragma unroll
        for (int step = 0; step < kTilePositions / 16; ++step) {
            const auto &low = weights[2 * step], &high = weights[2 * step + 1];
            const LeftOperand left = {{pack_pair<T>(low[0], low[1]), pack_pair<T>(low[2], low[3]),
                                       pack_pair<T>(high[0], high[1]), pack_pair<T>(high[2], high[3])}};
#pragma unroll
            for (int i = 0; i < kHeadSize / 8; ++i)
                multiply_add<T>(partial.sums[i], left, load_right_rows(values + 16 * step * kStride + 8 * i, kStride));
        }
    }
};

// Tensor cores would cut float32 short: fused multiply-adds, with the same share of the result in each lane.
template <int kHeadSize> struct Products<float, kHeadSize> {
    static constexpr int kStride = Rows<float, kHeadSize>::kStride;

    __device__ static float dot(const Pack<float> &a, const Pack<float> &b, float sum) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum = fmaf(a.values[i], b.values[i], sum);
        return sum;
    }

    __device__ static void score(Scores &scores, const float *query, const float *keys) {
        const float *first = query + row_of_lane() * kStride, *second = first + 8 * kStride;
#pragma unroll 2
        for (int channel = 0; channel < kHeadSize; channel += 4) {
            const Pack<float> a = load(first + channel), b = load(second + channel);
#pragma unroll
            for (int i = 0; i < kTilePositions / 8; ++i)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    const Pack<float> key = load(keys + (8 * i + column_of_lane() + column) * kStride + channel);
                    scores[i][column] = dot(a, key, scores[i][column]);
                    scores[i][2 + column] = dot(b, key, scores[i][2 + column]);
                }
        }
    }

    // `scratch`: [16][32] of this warp.
    __device__ static void add_values(Partial<kHeadSize> &partial, const Scores &weights, const float *values,
                                      float *scratch) {
        float *first = scratch + row_of_lane() * kTilePositions, *second = first + 8 * kTilePositions;
#pragma unroll
        for (int i = 0; i < kTilePositions / 8; ++i)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                first[8 * i + column_of_lane() + column] = weights[i][column];
                second[8 * i + column_of_lane() + column] = weights[i][2 + column];
            }
        __syncwarp();
        for (int position = 0; position < kTilePositions; ++position) {
            const float *row = values + position * kStride + column_of_lane();
#pragma unroll
            for (int i = 0; i < kHeadSize / 8; ++i)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    partial.sums[i][column] = fmaf(first[position], row[8 * i + column], partial.sums[i][column]);
                    partial.sums[i][2 + column] =
                        fmaf(second[position], row[8 * i + column], partial.sums[i][2 + column]);
                }
        }
        __syncwarp(); // the next tile's weights come to the same place
    }
};

// ---------------------------------------------------------------- softmax

// Scales to powers of two and hides what lies past a row's own position. `first`: position of the tile.
__device__ inline void scale_visible(Scores &scores, float scale, int first, const int (&visible)[2]) {
#pragma unroll
    for (int i = 0; i < kTilePositions / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            scores[i][j] = first + 8 * i + column_of_lane() + j % 2 < visible[j / 2] ? scores[i][j] * scale : -INFINITY;
}

__device__ inline float largest_of_row(const Scores &scores, int which) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kTilePositions / 8; ++i)
        largest = fmaxf(largest, fmaxf(scores[i][2 * which], scores[i][2 * which + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    return fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
}

// 0 for a hidden score even where all are hidden.
__device__ inline float weight_of(float score, float largest) {
    return score == -INFINITY ? 0.0f : exp2f(score - largest);
}

// Turns scores into weights and scales what the partition holds to the new largest score.
template <int kHeadSize> __device__ inline void weigh(Scores &scores, Partial<kHeadSize> &partial) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
        const float largest = fmaxf(partial.largest[which], largest_of_row(scores, which));
        const float shrink = weight_of(partial.largest[which], largest);
        partial.largest[which] = largest;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kTilePositions / 8; ++i)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                float &score = scores[i][2 * which + column];
                score = weight_of(score, largest);
                sum += score;
            }
        partial.weights[which] = fmaf(partial.weights[which], shrink, sum);
#pragma unroll
        for (int i = 0; i < kHeadSize / 8; ++i) {
            partial.sums[i][2 * which] *= shrink;
            partial.sums[i][2 * which + 1] *= shrink;
        }
    }
}

template <int kHeadSize> __device__ inline void finish(Partial<kHeadSize> &partial) {
#pragma unroll
    for (float &weights : partial.weights) {
        weights += __shfl_xor_sync(0xFFFFFFFFu, weights, 1);
        weights += __shfl_xor_sync(0xFFFFFFFFu, weights, 2);
    }
}

// ---------------------------------------------------------------- partitions into rows

// The factors of an earlier total and of the next partition; the same instructions wherever they meet.
struct Merge {
    float largest, earlier, next;

    __device__ Merge(float earlier_largest, float next_largest)
        : largest(fmaxf(earlier_largest, next_largest)), earlier(weight_of(earlier_largest, largest)),
          next(weight_of(next_largest, largest)) {}

    __device__ float operator()(float earlier_sum, float next_sum) const {
        return fmaf(next_sum, next, earlier_sum * earlier);
    }
};

} // namespace octavo::cuda

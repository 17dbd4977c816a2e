// What products of small matrices by one thread share, whatever their numbers are: sizes, and how words are turned.

#pragma once

#include "../runtime/bf16.h"

#if defined(__AVX512F__)
#include <immintrin.h>

namespace {

constexpr int64_t TILE = 16;    // rows of a tile, and words of its rows
constexpr int64_t SQUARE = 32;  // what rows and columns of a product are multiples of, and what it sums over

// From row to row of a matrix of words: an odd number of cache lines, so that rows of a tile lie in lines of their own.
constexpr int64_t apart_words(int64_t columns) { return (columns + 15) / 16 / 2 * 32 + 16; }

// [16 x 16] words with their rows as columns.
inline void turn_square(__m512i *rows) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int step = 1; step < TILE; step *= 2) {
        const __m512i by = _mm512_set1_epi32(step);
        const __mmask16 upper = _mm512_test_epi32_mask(lane, by);
        const __m512i to_first = _mm512_mask_add_epi32(lane, upper, lane, _mm512_set1_epi32(TILE - step));
        const __m512i to_second =
            _mm512_mask_add_epi32(_mm512_add_epi32(lane, by), upper, lane, _mm512_set1_epi32(TILE));
        for (int i = 0; i < TILE; i++) {
            if (i & step) continue;
            const __m512i a = rows[i], b = rows[i | step];
            rows[i] = _mm512_permutex2var_epi32(a, to_first, b);
            rows[i | step] = _mm512_permutex2var_epi32(a, to_second, b);
        }
    }
}

// Words [rows, columns] -> [columns, rows]; both are multiples of 16.
__attribute__((noinline)) void turn(const uint32_t *from, int64_t of_from, int64_t rows, int64_t columns, uint32_t *to,
                                    int64_t of_to) {
    for (int64_t i = 0; i < rows; i += TILE) {
        for (int64_t j = 0; j < columns; j += TILE) {
            __m512i square[TILE];
            for (int64_t r = 0; r < TILE; r++) square[r] = _mm512_loadu_si512(from + (i + r) * of_from + j);
            turn_square(square);
            for (int64_t r = 0; r < TILE; r++) _mm512_storeu_si512(to + (j + r) * of_to + i, square[r]);
        }
    }
}

}  // namespace

#endif

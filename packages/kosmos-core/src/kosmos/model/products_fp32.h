// Products of small matrices in fp32, by one thread, by the vectors of AVX-512.
//
// As `products_bf16.h` has them, but that a word is a number: a right side is a matrix as it is.

#pragma once

#include "products.h"

#if defined(__AVX512F__)
#define HAS_PRODUCTS

namespace {

using Number = float;
using Word = float;
constexpr int64_t PER_WORD = 1;

__attribute__((noinline)) void multiply(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t of_a,
                                        const float *b, int64_t of_b, float *c, int64_t of_c, bool adds) {
    constexpr int64_t HEIGHT = 8;
    for (int64_t j = 0; j < columns; j += SQUARE) {
        for (int64_t i = 0; i < rows; i += HEIGHT) {
            __m512 sums[HEIGHT][2];
            float *to = c + i * of_c + j;
            for (int64_t r = 0; r < HEIGHT; r++) {
                sums[r][0] = adds ? _mm512_loadu_ps(to + r * of_c) : _mm512_setzero_ps();
                sums[r][1] = adds ? _mm512_loadu_ps(to + r * of_c + TILE) : _mm512_setzero_ps();
            }
            const float *left = a + i * of_a, *right = b + j;
            for (int64_t k = 0; k < depth; k++, right += of_b) {
                const __m512 first = _mm512_loadu_ps(right), second = _mm512_loadu_ps(right + TILE);
                for (int64_t r = 0; r < HEIGHT; r++) {
                    const __m512 both = _mm512_set1_ps(left[r * of_a + k]);
                    sums[r][0] = _mm512_fmadd_ps(both, first, sums[r][0]);
                    sums[r][1] = _mm512_fmadd_ps(both, second, sums[r][1]);
                }
            }
            for (int64_t r = 0; r < HEIGHT; r++) {
                _mm512_storeu_ps(to + r * of_c, sums[r][0]);
                _mm512_storeu_ps(to + r * of_c + TILE, sums[r][1]);
            }
        }
    }
}

inline void begin_products() {}
inline void end_products() {}

}  // namespace

#endif

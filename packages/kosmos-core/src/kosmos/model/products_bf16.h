// Products of small matrices in bf16, summed in fp32, by one thread: AMX where the processor and the kernel have it,
// else the dot products of AVX-512.
//
// A product takes its left side by rows and its right side by pairs of rows: number c of row r and of row r + 1 are one
// word, the first in its lower half.

#pragma once

#include "products.h"

#if defined(__AVX512BF16__) && defined(__linux__)
#define HAS_PRODUCTS

#include <sys/syscall.h>
#include <unistd.h>

namespace {

using Number = uint16_t;
using Word = uint32_t;
constexpr int64_t PER_WORD = 2;  // numbers, of as many rows

#ifdef __AMX_BF16__

struct alignas(64) Tiles {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Whether Linux lets this process use the tiles. It is asked once.
inline bool has_tiles() {
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;
    static const bool given = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    return given;
}

// Compilers do not know that tiles read and write memory.
inline void finish_writes() { asm volatile("" ::: "memory"); }

__attribute__((noinline)) void by_tiles(int64_t rows, int64_t columns, int64_t depth, const uint16_t *a, int64_t of_a,
                                        const uint32_t *b, int64_t of_b, float *c, int64_t of_c, bool adds) {
    finish_writes();
    for (int64_t j = 0; j < columns; j += SQUARE) {
        for (int64_t i = 0; i < rows; i += SQUARE) {
            float *to = c + i * of_c + j, *below = to + TILE * of_c;
            if (adds) {
                _tile_loadd(0, to, of_c * 4);
                _tile_loadd(1, to + TILE, of_c * 4);
                _tile_loadd(2, below, of_c * 4);
                _tile_loadd(3, below + TILE, of_c * 4);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            for (int64_t k = 0; k < depth; k += SQUARE) {
                const uint16_t *left = a + i * of_a + k;
                const uint32_t *right = b + k / 2 * of_b + j;
                _tile_loadd(4, left, of_a * 2);
                _tile_loadd(6, right, of_b * 4);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, right + TILE, of_b * 4);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, left + TILE * of_a, of_a * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, to, of_c * 4);
            _tile_stored(1, to + TILE, of_c * 4);
            _tile_stored(2, below, of_c * 4);
            _tile_stored(3, below + TILE, of_c * 4);
        }
    }
    finish_writes();
}

#else

inline bool has_tiles() { return false; }

#endif

__attribute__((noinline)) void by_vectors(int64_t rows, int64_t columns, int64_t depth, const uint16_t *a, int64_t of_a,
                                          const uint32_t *b, int64_t of_b, float *c, int64_t of_c, bool adds) {
    constexpr int64_t HEIGHT = 8;
    for (int64_t j = 0; j < columns; j += SQUARE) {
        for (int64_t i = 0; i < rows; i += HEIGHT) {
            __m512 sums[HEIGHT][2];
            float *to = c + i * of_c + j;
            for (int64_t r = 0; r < HEIGHT; r++) {
                sums[r][0] = adds ? _mm512_loadu_ps(to + r * of_c) : _mm512_setzero_ps();
                sums[r][1] = adds ? _mm512_loadu_ps(to + r * of_c + TILE) : _mm512_setzero_ps();
            }
            const uint16_t *left = a + i * of_a;
            const uint32_t *right = b + j;
            for (int64_t k = 0; k < depth; k += 2, right += of_b) {
                const __m512bh first = (__m512bh)_mm512_loadu_si512(right);
                const __m512bh second = (__m512bh)_mm512_loadu_si512(right + TILE);
                for (int64_t r = 0; r < HEIGHT; r++) {
                    int32_t pair;
                    std::memcpy(&pair, left + r * of_a + k, sizeof pair);
                    const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
                    sums[r][0] = _mm512_dpbf16_ps(sums[r][0], both, first);
                    sums[r][1] = _mm512_dpbf16_ps(sums[r][1], both, second);
                }
            }
            for (int64_t r = 0; r < HEIGHT; r++) {
                _mm512_storeu_ps(to + r * of_c, sums[r][0]);
                _mm512_storeu_ps(to + r * of_c + TILE, sums[r][1]);
            }
        }
    }
}

// c [rows, columns] = a [rows, depth] b [depth, columns], or c + it where it `adds`; all three sizes are multiples of
// SQUARE, and `of_` each are numbers, or words of b, from row to row. A thread calls begin_products before the first
// and end_products after the last.
inline void multiply(int64_t rows, int64_t columns, int64_t depth, const uint16_t *a, int64_t of_a, const uint32_t *b,
                     int64_t of_b, float *c, int64_t of_c, bool adds) {
#ifdef __AMX_BF16__
    if (has_tiles()) return by_tiles(rows, columns, depth, a, of_a, b, of_b, c, of_c, adds);
#endif
    by_vectors(rows, columns, depth, a, of_a, b, of_b, c, of_c, adds);
}

inline void begin_products() {
#ifdef __AMX_BF16__
    static constexpr Tiles tiles{};  // in memory before: compilers know of eight bytes that are read, not of 64
    if (has_tiles()) _tile_loadconfig(&tiles);
#endif
}

inline void end_products() {
#ifdef __AMX_BF16__
    if (has_tiles()) _tile_release();
#endif
}

// Two rows of bf16 numbers as words, `count` a multiple of 16.
__attribute__((noinline)) void pair(const uint16_t *first, const uint16_t *second, uint32_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += TILE) {
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(first + i)));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(second + i)));
        _mm512_storeu_si512(to + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

}  // namespace

#endif

// Numbers of C++ that is compiled at run time: fp32, and bf16 as its bits.

#pragma once

#include <cstdint>
#include <cstring>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace {

constexpr int64_t LANES = 16;  // numbers of the longest vector
constexpr int64_t BLOCK = 32;  // that are rounded at once

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float number_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float widen(float value) { return value; }
inline float widen(uint16_t bf16) { return number_of(uint32_t(bf16) << 16); }

// To nearest, ties to even. A NaN stays one as long as its low bits are 0: they are, where it comes from bf16 numbers or
// from arithmetic.
inline uint16_t nearest(float value) {
    const uint32_t bits = bits_of(value);
    return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline void narrow(float value, float &to) { to = value; }
// As the processor does for whole vectors, where it can: any NaN stays one, and below fp32's normal numbers is 0 there.
inline void narrow(float value, uint16_t &to) {
#ifdef __AVX512BF16__
    const uint32_t bits = bits_of(value);
    value = number_of(bits & 0x7F800000 ? bits : bits & 0x80000000);
#endif
    to = value == value ? nearest(value) : uint16_t(0x7FC0);
}

#ifdef __AVX512BF16__
// Round whole vectors, as no compiler makes it of a loop.
inline void round_all(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i));
        std::memcpy(to + i, &rounded, sizeof rounded);
    }
}
#endif

// Write `value(i)` of each i.
template <class F>
inline void write(float *to, int64_t count, F value) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = value(i);
}
template <class F>
inline void write(uint16_t *to, int64_t count, F value) {
    int64_t i = 0;
#ifdef __AVX512BF16__
    for (; i + BLOCK <= count; i += BLOCK) {
        float found[BLOCK];
#pragma omp simd
        for (int64_t j = 0; j < BLOCK; j++) found[j] = value(i + j);
        round_all(found, to + i, BLOCK);
    }
#endif
#pragma omp simd
    for (int64_t j = i; j < count; j++) narrow(value(j), to[j]);
}

}  // namespace

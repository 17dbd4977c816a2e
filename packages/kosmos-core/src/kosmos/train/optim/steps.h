// What steps of optimizers in C++ share: how weights are kept, and how elements are shared out over threads.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "../../runtime/bf16.h"

namespace {

constexpr int64_t CHUNK = 1 << 16;  // fewest elements of a chunk, but for the last of a parameter

inline void keep(float value, float &to) { to = value; }
inline void keep(float value, uint16_t &to) { to = nearest(value); }

// As `noise.random_bits`.
inline uint32_t random_bits(int64_t place, uint32_t key) {
    uint32_t x = uint32_t(place) * 0x9E3779B1u + key;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x >> 16;
}

// Weights as they are kept; as `masters.load` and `masters.store`.
template <class T>
struct Plain {
    T *weight;
    float load(int64_t i) const { return widen(weight[i]); }
    void store(int64_t i, float value) const { keep(value, weight[i]); }
};

struct Stochastic {
    uint16_t *weight;
    uint32_t key;
    float load(int64_t i) const { return widen(weight[i]); }
    void store(int64_t i, float value) const { weight[i] = uint16_t((bits_of(value) + random_bits(i, key)) >> 16); }
};

template <class Low>
struct Extended {
    static constexpr int UNIT = 16 - 8 * int(sizeof(Low));
    uint16_t *weight;
    Low *low;
    float load(int64_t i) const {
        return number_of((uint32_t(weight[i]) << 16) + (uint32_t(int32_t(low[i])) << UNIT));
    }
    void store(int64_t i, float value) const {
        uint32_t bits = bits_of(value);
        if (UNIT) bits = ((bits + ((1u << UNIT) >> 1)) >> UNIT) << UNIT;
        const uint32_t high = (bits + 0x8000) >> 16;
        weight[i] = uint16_t(high);
        low[i] = Low(int32_t(bits - (high << 16)) >> UNIT);
    }
};

// Call `take` with the bf16 weights of a parameter.
template <class Parameter, class F>
inline void with_bf16(const Parameter &own, F take) {
    auto *weight = static_cast<uint16_t *>(own.weight);
    if (own.low_bytes == 1)
        take(Extended<int8_t>{weight, static_cast<int8_t *>(own.low)});
    else if (own.low_bytes == 2)
        take(Extended<int16_t>{weight, static_cast<int16_t *>(own.low)});
    else if (own.is_stochastic)
        take(Stochastic{weight, own.weight_key});
    else
        take(Plain<uint16_t>{weight});
}

template <class Parameter>
struct Chunk {
    const Parameter *parameter;
    int64_t start, stop, before;  // `before`: elements of all chunks before it
};

// Call what `open()` returns on each thread with each chunk of that thread. A chunk has whole `block(parameter)`s.
template <class Parameter, class Block, class Open>
void share_out(const Parameter *parameters, int64_t count, int threads, Block block, Open open) {
    std::vector<Chunk<Parameter>> chunks;
    int64_t total = 0;
    for (const Parameter *own = parameters; own < parameters + count; own++) {
        const int64_t whole = block(*own), length = (CHUNK + whole - 1) / whole * whole;
        for (int64_t start = 0; start < own->elements; start += length) {
            const int64_t stop = std::min(start + length, own->elements);
            chunks.push_back({own, start, stop, total});
            total += stop - start;
        }
    }
    // Each thread has consecutive chunks: another thread's part of memory is left alone.
#pragma omp parallel num_threads(threads)
    {
        int64_t thread = 0, of_all = 1;
#ifdef _OPENMP
        thread = omp_get_thread_num(), of_all = omp_get_num_threads();
#endif
        auto take = open();
        for (const Chunk<Parameter> &chunk : chunks)
            if (chunk.before * of_all / total == thread) take(chunk);
    }
}

}  // namespace

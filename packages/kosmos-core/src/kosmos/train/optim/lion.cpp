// One step of Lion for many parameters on a CPU: memory is read and written once, and nothing else waits for it.
//
// Steps are those of `passes.py` but for rounding. What is rounded once is written so (std::fma) and no more is joined
// (-ffp-contract=off): a result does not depend on where a thread or a vector begins. Compiled by `compiled.py`.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "../../runtime/bf16.h"

namespace {

constexpr int64_t CHUNK = 1 << 16;  // fewest elements of a chunk, but for the last of a parameter

struct Numbers {
    float rate, decay, beta1, rest1, beta2, rest2;
    float scale;  // of gradients
};

struct Parameter {
    void *weight;
    const void *gradient;
    void *momentum;   // int8 where there are scales, else of the weight's type
    float *scales;    // of a block each, or null
    void *low;        // bits of the weight below those of bf16, or null
    int64_t elements;
    int64_t block;    // 1 without scales
    uint32_t weight_key, code_key;  // of the random bits
    int32_t is_bf16, low_bytes, is_stochastic;
};

struct Chunk {
    const Parameter *parameter;
    int64_t start, stop, before;  // `before`: elements of all chunks before it
};

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

// Exact where one share is 0.
inline float mixed(float mean, float beta, float slope, float rest) { return std::fma(mean, beta, slope * rest); }

inline float moved(float weight, float mean, float slope, const Numbers &by) {
    const float update = mixed(mean, by.beta1, slope, by.rest1);
    const float sign = update > 0 ? 1.0f : update < 0 ? -1.0f : 0.0f;
    return std::fma(-by.rate, std::fma(by.decay, weight, sign), weight);
}

template <class Weights, class T>
void step_plain(Weights weights, const T *gradient, T *momentum, const Chunk &of, const Numbers &by) {
#pragma omp simd
    for (int64_t i = of.start; i < of.stop; i++) {
        const float mean = widen(momentum[i]), slope = widen(gradient[i]) * by.scale;
        weights.store(i, moved(weights.load(i), mean, slope, by));
        keep(mixed(mean, by.beta2, slope, by.rest2), momentum[i]);
    }
}

// As `blocks.decode` and `blocks.encode`, a block at a time, which stays in the nearest cache.
template <class Weights, class T>
void step_coded(Weights weights, const T *gradient, int8_t *codes, const Chunk &of, const Numbers &by, float *mean) {
    const int64_t block = of.parameter->block;
    const uint32_t key = of.parameter->code_key;
    for (int64_t start = of.start; start < of.stop; start += block) {
        float &scale = of.parameter->scales[start / block];
        const float unit = scale;
        uint32_t peak = 0;  // magnitudes of fp32 are in the order of their bits
#pragma omp simd reduction(max : peak)
        for (int64_t j = 0; j < block; j++) {
            const int64_t i = start + j;
            const float code = codes[i], old = code / (254 - std::fabs(code)) * unit;
            const float slope = widen(gradient[i]) * by.scale;
            weights.store(i, moved(weights.load(i), old, slope, by));
            mean[j] = mixed(old, by.beta2, slope, by.rest2);
            peak = std::max(peak, bits_of(mean[j]) & 0x7FFFFFFFu);
        }
        scale = number_of(peak);
        const float inverse = scale > 1e-30f ? 1 / scale : 0;  // blocks.TINY
#pragma omp simd
        for (int64_t j = 0; j < block; j++) {
            float share = mean[j] * inverse;
            share = share == share ? share : 0;  // NaN has no code
            const float code = share / (1 + std::fabs(share)) * 254;
            const float noise = float(int32_t(random_bits(start + j, key))) * (1.0f / 65536);
            codes[start + j] = int8_t(int32_t(std::floor(code + noise)));
        }
    }
}

template <class Weights, class T>
void step_of(Weights weights, const Chunk &of, const Numbers &by, float *room) {
    const T *gradient = static_cast<const T *>(of.parameter->gradient);
    if (of.parameter->scales)
        step_coded<Weights, T>(weights, gradient, static_cast<int8_t *>(of.parameter->momentum), of, by, room);
    else
        step_plain<Weights, T>(weights, gradient, static_cast<T *>(of.parameter->momentum), of, by);
}

void step(const Chunk &of, const Numbers &by, float *room) {
    const Parameter &own = *of.parameter;
    auto *bf16 = static_cast<uint16_t *>(own.weight);
    if (!own.is_bf16)
        step_of<Plain<float>, float>({static_cast<float *>(own.weight)}, of, by, room);
    else if (own.low_bytes == 1)
        step_of<Extended<int8_t>, uint16_t>({bf16, static_cast<int8_t *>(own.low)}, of, by, room);
    else if (own.low_bytes == 2)
        step_of<Extended<int16_t>, uint16_t>({bf16, static_cast<int16_t *>(own.low)}, of, by, room);
    else if (own.is_stochastic)
        step_of<Stochastic, uint16_t>({bf16, own.weight_key}, of, by, room);
    else
        step_of<Plain<uint16_t>, uint16_t>({bf16}, of, by, room);
}

}  // namespace

extern "C" int64_t size_of_parameter() { return sizeof(Parameter); }

extern "C" void lion(const Parameter *parameters, int64_t count, const Numbers *by, int threads) {
    std::vector<Chunk> chunks;
    int64_t total = 0, widest = 1;
    for (const Parameter *own = parameters; own < parameters + count; own++) {
        const int64_t length = (CHUNK + own->block - 1) / own->block * own->block;
        for (int64_t start = 0; start < own->elements; start += length) {
            const int64_t stop = std::min(start + length, own->elements);
            chunks.push_back({own, start, stop, total});
            total += stop - start;
        }
        widest = std::max(widest, own->block);
    }
    // Each thread has consecutive chunks: another thread's part of memory is left alone.
#pragma omp parallel num_threads(threads)
    {
        int64_t thread = 0, of_all = 1;
#ifdef _OPENMP
        thread = omp_get_thread_num(), of_all = omp_get_num_threads();
#endif
        std::vector<float> room(widest);
        for (const Chunk &chunk : chunks)
            if (chunk.before * of_all / total == thread) step(chunk, *by, room.data());
    }
}

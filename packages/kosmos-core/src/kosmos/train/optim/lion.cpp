// One step of Lion for many parameters on a CPU: memory is read and written once, and nothing else waits for it.
//
// Steps are those of `passes.py` but for rounding. What is rounded once is written so (std::fma) and no more is joined
// (-ffp-contract=off): a result does not depend on where a thread or a vector begins. Compiled by `lion_compiled.py`.

#include <cmath>

#include "steps.h"

namespace {

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

// Exact where one share is 0.
inline float mixed(float mean, float beta, float slope, float rest) { return std::fma(mean, beta, slope * rest); }

inline float moved(float weight, float mean, float slope, const Numbers &by) {
    const float update = mixed(mean, by.beta1, slope, by.rest1);
    const float sign = update > 0 ? 1.0f : update < 0 ? -1.0f : 0.0f;
    return std::fma(-by.rate, std::fma(by.decay, weight, sign), weight);
}

template <class Weights, class T>
void step_plain(Weights weights, const T *gradient, T *momentum, const Chunk<Parameter> &of, const Numbers &by) {
#pragma omp simd
    for (int64_t i = of.start; i < of.stop; i++) {
        const float mean = widen(momentum[i]), slope = widen(gradient[i]) * by.scale;
        weights.store(i, moved(weights.load(i), mean, slope, by));
        keep(mixed(mean, by.beta2, slope, by.rest2), momentum[i]);
    }
}

// As `blocks.decode` and `blocks.encode`, a block at a time, which stays in the nearest cache.
template <class Weights, class T>
void step_coded(Weights weights, const T *gradient, int8_t *codes, const Chunk<Parameter> &of, const Numbers &by, float *mean) {
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

template <class T, class Weights>
void step_of(Weights weights, const Chunk<Parameter> &of, const Numbers &by, float *room) {
    const T *gradient = static_cast<const T *>(of.parameter->gradient);
    if (of.parameter->scales)
        step_coded(weights, gradient, static_cast<int8_t *>(of.parameter->momentum), of, by, room);
    else
        step_plain(weights, gradient, static_cast<T *>(of.parameter->momentum), of, by);
}

void step(const Chunk<Parameter> &of, const Numbers &by, float *room) {
    const Parameter &own = *of.parameter;
    if (own.is_bf16)
        with_bf16(own, [&](auto weights) { step_of<uint16_t>(weights, of, by, room); });
    else
        step_of<float>(Plain<float>{static_cast<float *>(own.weight)}, of, by, room);
}

}  // namespace

extern "C" int64_t size_of_parameter() { return sizeof(Parameter); }

extern "C" void lion(const Parameter *parameters, int64_t count, const Numbers *by, int threads) {
    int64_t widest = 1;
    for (const Parameter *own = parameters; own < parameters + count; own++) widest = std::max(widest, own->block);
    share_out(
        parameters, count, threads, [](const Parameter &own) { return own.block; },
        [&] {
            return [by, room = std::vector<float>(widest)](const Chunk<Parameter> &chunk) mutable {
                step(chunk, *by, room.data());
            };
        });
}

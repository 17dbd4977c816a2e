// One step of AdamW for many bf16 parameters on a CPU, whose means are fp32: memory is read and written once.
//
// Steps are those of PyTorch's fused AdamW but for rounding. What is rounded once is written so (std::fma) and no more is
// joined (-ffp-contract=off): a result does not depend on where a thread or a vector begins. Compiled by
// `adamw_compiled.py`.

#include <cmath>

#include "steps.h"

namespace {

struct Numbers {
    float decay;  // of a weight that a step takes
    float beta1, rest1, beta2, rest2, eps;
    float scale;  // of gradients
};

struct Parameter {
    void *weight;
    const uint16_t *gradient;
    float *mean, *square;
    void *low;  // bits of the weight below those of bf16, or null
    int64_t elements;
    float rate, unbias;  // of this step: the mean over its bias, and 1 over the root of the square's
    uint32_t weight_key;  // of the random bits
    int32_t low_bytes, is_stochastic;
};

template <class Weights>
void step_of(Weights weights, const Chunk<Parameter> &of, const Numbers &by) {
    const uint16_t *gradient = of.parameter->gradient;
    float *means = of.parameter->mean, *squares = of.parameter->square;
    const float rate = of.parameter->rate, unbias = of.parameter->unbias;
#pragma omp simd
    for (int64_t i = of.start; i < of.stop; i++) {
        const float slope = widen(gradient[i]) * by.scale;
        const float mean = std::fma(means[i], by.beta1, slope * by.rest1);
        const float square = std::fma(squares[i], by.beta2, slope * slope * by.rest2);
        means[i] = mean;
        squares[i] = square;
        const float weight = weights.load(i), kept = std::fma(-by.decay, weight, weight);
        weights.store(i, kept - rate * mean / std::fma(std::sqrt(square), unbias, by.eps));
    }
}

}  // namespace

extern "C" int64_t size_of_parameter() { return sizeof(Parameter); }

extern "C" void adamw(const Parameter *parameters, int64_t count, const Numbers *by, int threads) {
    share_out(
        parameters, count, threads, [](const Parameter &) { return int64_t(1); },
        [by] {
            return [by](const Chunk<Parameter> &chunk) {
                with_bf16(*chunk.parameter, [&](auto weights) { step_of(weights, chunk, *by); });
            };
        });
}

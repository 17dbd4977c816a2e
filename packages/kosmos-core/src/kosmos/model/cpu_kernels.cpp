// What a model in training computes between its products, on a CPU: each number is read and written once.
//
// Compiled by `cpu_kernels.py`. Sums are in fp32. What is rounded once is written so (std::fma), and no more is joined
// (-ffp-contract=off): a result does not depend on where a thread begins, but for the gradient of a norm's weight, which
// the threads sum each for itself.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "../runtime/bf16.h"

namespace {

constexpr int64_t SERIAL = 1 << 14;  // so many numbers or fewer are not worth a second thread
constexpr int64_t LINES = 16;        // of a softmax that a thread takes at a time: behind a causal mask they grow
constexpr int64_t CHUNK = 1 << 11;   // that a thread takes at a time
constexpr float NEVER = -std::numeric_limits<float>::infinity();

// exp(x) for x in [-87, 88], by the polynomial of Cephes (expf). A NaN stays one.
inline float power(float x) {
    const float whole = std::nearbyint(x * 1.44269504f);
    float rest = std::fma(whole, -0.693359375f, x);
    rest = std::fma(whole, 2.12194440e-4f, rest);
    float sum = std::fma(1.9875691500e-4f, rest, 1.3981999507e-3f);
    sum = std::fma(sum, rest, 8.3334519073e-3f);
    sum = std::fma(sum, rest, 4.1665795894e-2f);
    sum = std::fma(sum, rest, 1.6666665459e-1f);
    sum = std::fma(sum, rest, 5.0000001201e-1f);
    sum = std::fma(sum, rest * rest, rest + 1.0f);
    return sum * number_of(uint32_t(int32_t(whole) + 127) << 23);
}

// 1 / (1 + exp(-x)), to two units of the last place.
inline float sigmoid(float x) {
    return 1.0f / (power(std::min(std::max(-x, -87.0f), 88.0f)) + 1.0f);  // a NaN passes
}

// exp(x) for x <= 0: nothing where fp32 has no normal number for it.
inline float share(float x) {
    const float found = power(std::max(x, -87.0f));
    return x < -87.0f ? 0.0f : found;
}

// exp(x - most) of each, and their sum.
template <class T>
float shares(const T *x, float most, float *out, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        const float found = share(widen(x[i]) - most);
        out[i] = found;
        sum += found;
    }
    return sum;
}

template <class T>
void rotate(const T *x, int64_t token, int64_t head, const float *cos, const float *sin, float sign, T *out,
            int64_t tokens, int64_t heads, int64_t half, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * heads * half > SERIAL)
    for (int64_t t = 0; t < tokens; t++) {
        const float *c = cos + t * half, *s = sin + t * half;
        for (int64_t h = 0; h < heads; h++) {
            const T *a = x + t * token + h * head, *b = a + half;
            T *first = out + (t * heads + h) * 2 * half, *second = first + half;
            write(first, half, [=](int64_t i) { return std::fma(widen(a[i]), c[i], -(widen(b[i]) * (sign * s[i]))); });
            write(second, half, [=](int64_t i) { return std::fma(widen(b[i]), c[i], widen(a[i]) * (sign * s[i])); });
        }
    }
}

template <class T>
void norm(const float *x, const float *weight, float eps, T *out, float *scales, int64_t rows, int64_t width,
          int threads) {
#pragma omp parallel for num_threads(threads) if (rows * width > SERIAL)
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * width;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; i++) sum += row[i] * row[i];
        const float scale = 1.0f / std::sqrt(sum / float(width) + eps);
        scales[r] = scale;
        T *to = out + r * width;
        write(to, width, [=](int64_t i) { return row[i] * scale * weight[i]; });
    }
}

template <class T>
void norm_backward(const T *upstream, const float *x, const float *weight, const float *scales, float *of_x,
                   float *of_weight, int64_t rows, int64_t width, int threads) {
    const int64_t turns = rows * width > SERIAL ? std::min<int64_t>(threads, rows) : 1;
    std::vector<float> sums(turns * width);
#pragma omp parallel for num_threads(int(turns)) schedule(static)
    for (int64_t turn = 0; turn < turns; turn++) {
        float *own = sums.data() + turn * width;
        for (int64_t r = rows * turn / turns; r < rows * (turn + 1) / turns; r++) {
            const float *row = x + r * width, scale = scales[r];
            const T *given = upstream + r * width;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < width; i++) {
                const float product = widen(given[i]) * row[i];
                sum += product * weight[i];
                own[i] = std::fma(product, scale, own[i]);
            }
            const float share = -sum * scale * scale * scale / float(width);
            float *to = of_x + r * width;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) to[i] = std::fma(row[i], share, widen(given[i]) * weight[i] * scale);
        }
    }
    for (int64_t i = 0; i < width; i++) {
        float sum = 0;
        for (int64_t turn = 0; turn < turns; turn++) sum += sums[turn * width + i];
        of_weight[i] = sum;
    }
}

// `out` may be `x`.
template <class T>
void add(const float *x, const T *y, float *out, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) if (count > SERIAL)
    for (int64_t start = 0; start < count; start += CHUNK) {
        const float *a = x + start;
        const T *b = y + start;
        write(out + start, std::min(CHUNK, count - start), [=](int64_t i) { return a[i] + widen(b[i]); });
    }
}

template <class T>
void swiglu(const T *gate, const T *inner, T *out, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) if (count > SERIAL)
    for (int64_t start = 0; start < count; start += CHUNK) {
        const T *x = gate + start, *y = inner + start;
        write(out + start, std::min(CHUNK, count - start),
              [=](int64_t i) { return widen(x[i]) * sigmoid(widen(x[i])) * widen(y[i]); });
    }
}

template <class T>
void swiglu_backward(const T *upstream, const T *gate, const T *inner, T *of_gate, T *of_inner, int64_t count,
                     int threads) {
#pragma omp parallel for num_threads(threads) if (count > SERIAL)
    for (int64_t start = 0; start < count; start += CHUNK) {
        const int64_t length = std::min(CHUNK, count - start);
        const T *given = upstream + start, *x = gate + start, *y = inner + start;
        float shares[CHUNK];
        write(shares, length, [=](int64_t i) { return sigmoid(widen(x[i])); });
        const float *share = shares;
        write(of_inner + start, length, [=](int64_t i) { return widen(given[i]) * widen(x[i]) * share[i]; });
        write(of_gate + start, length, [=](int64_t i) {
            return widen(given[i]) * widen(y[i]) * share[i] * std::fma(widen(x[i]), 1.0f - share[i], 1.0f);
        });
    }
}

// Softmax of logits [matrices, rows, keys] times `scale`. Of row r the first `first` + r + 1 keys are seen, or all
// where `first` is negative; `bias` [matrices, keys], or null, is added to each row.
template <class T>
void softmax(const T *logits, const T *bias, float scale, int64_t first, T *out, int64_t matrices, int64_t rows,
             int64_t keys, int threads) {
#pragma omp parallel num_threads(threads) if (matrices * rows * keys > SERIAL)
    {
        std::vector<float> room(keys);
        float *own = room.data();
#pragma omp for collapse(2) schedule(static, LINES)
        for (int64_t m = 0; m < matrices; m++) {
            for (int64_t r = 0; r < rows; r++) {
                const T *given = logits + (m * rows + r) * keys;
                T *to = out + (m * rows + r) * keys;
                const int64_t seen = first < 0 ? keys : std::min(keys, first + r + 1);
                const int64_t read = std::min(keys, (seen + LANES - 1) / LANES * LANES);  // whole vectors
                float most = NEVER;
                if (bias) {
#pragma omp simd reduction(max : most)
                    for (int64_t i = 0; i < read; i++) {
                        const float value = std::fma(widen(given[i]), scale, widen(bias[m * keys + i]));
                        own[i] = value;
                        most = std::max(most, value);
                    }
                } else {
#pragma omp simd reduction(max : most)
                    for (int64_t i = 0; i < read; i++) {
                        const float scaled = widen(given[i]) * scale, value = i < seen ? scaled : NEVER;
                        own[i] = value;
                        most = std::max(most, value);
                    }
                }
                const float part = 1.0f / shares(own, most, own, read);
                write(to, read, [=](int64_t i) { return own[i] * part; });
                std::fill(to + read, to + keys, T(0));
            }
        }
    }
}

// `changes` of the shares of such a softmax become those of its logits before they were multiplied by `scale`.
template <class T>
void softmax_backward(const T *shares, T *changes, float scale, int64_t first, int64_t matrices, int64_t rows,
                      int64_t keys, int threads) {
#pragma omp parallel for collapse(2) schedule(static, LINES) num_threads(threads) if (matrices * rows * keys > SERIAL)
    for (int64_t m = 0; m < matrices; m++) {
        for (int64_t r = 0; r < rows; r++) {
            const T *share = shares + (m * rows + r) * keys;
            T *change = changes + (m * rows + r) * keys;
            const int64_t seen = first < 0 ? keys : std::min(keys, first + r + 1);
            const int64_t read = std::min(keys, (seen + LANES - 1) / LANES * LANES);
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < read; i++) sum += i < seen ? widen(share[i]) * widen(change[i]) : 0.0f;
            write(change, read, [=](int64_t i) {
                return i < seen ? widen(share[i]) * (widen(change[i]) - sum) * scale : 0.0f;
            });
            std::fill(change + read, change + keys, T(0));
        }
    }
}

// Cross entropies of `count` rows of logits, which become their gradients; `rows` - `count` more are padding, whose
// gradients are zero. `added` takes `z` times the square of each logsumexp, or is null.
template <class T>
void cross_entropy(T *logits, const int64_t *targets, float z, float *losses, float *added, int64_t count, int64_t rows,
                   int64_t width, int threads) {
#pragma omp parallel num_threads(threads) if (rows * width > SERIAL)
    {
        std::vector<float> room(width);
        float *own = room.data();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            T *row = logits + r * width;
            if (r >= count) {
                std::fill(row, row + width, T(0));
                continue;
            }
            float most = NEVER;
#pragma omp simd reduction(max : most)
            for (int64_t i = 0; i < width; i++) most = std::max(most, widen(row[i]));
            const float sum = shares(row, most, own, width), rest = std::log(sum), logsumexp = most + rest;
            T &target = row[targets[r]];
            losses[r] = rest - (widen(target) - most);  // what all logits have in common cancels unrounded
            if (added) added[r] = z * logsumexp * logsumexp;
            const float part = (1.0f + 2.0f * z * logsumexp) / sum;
            write(row, width, [=](int64_t i) { return own[i] * part; });
            narrow(std::fma(own[targets[r]], part, -1.0f), target);
        }
    }
}

}  // namespace

// Each function once for fp32 and once for bf16.
#define FOR(NAME, T)                                                                                                  \
    void rotate_##NAME(const T *x, int64_t token, int64_t head, const float *cos, const float *sin, float sign,       \
                       T *out, int64_t tokens, int64_t heads, int64_t half, int threads) {                            \
        rotate(x, token, head, cos, sin, sign, out, tokens, heads, half, threads);                                    \
    }                                                                                                                 \
    void norm_##NAME(const float *x, const float *weight, float eps, T *out, float *scales, int64_t rows,             \
                     int64_t width, int threads) {                                                                    \
        norm(x, weight, eps, out, scales, rows, width, threads);                                                      \
    }                                                                                                                 \
    void norm_backward_##NAME(const T *upstream, const float *x, const float *weight, const float *scales,            \
                              float *of_x, float *of_weight, int64_t rows, int64_t width, int threads) {              \
        norm_backward(upstream, x, weight, scales, of_x, of_weight, rows, width, threads);                            \
    }                                                                                                                 \
    void add_##NAME(const float *x, const T *y, float *out, int64_t count, int threads) {                             \
        add(x, y, out, count, threads);                                                                               \
    }                                                                                                                 \
    void swiglu_##NAME(const T *gate, const T *inner, T *out, int64_t count, int threads) {                           \
        swiglu(gate, inner, out, count, threads);                                                                     \
    }                                                                                                                 \
    void swiglu_backward_##NAME(const T *upstream, const T *gate, const T *inner, T *of_gate, T *of_inner,            \
                                int64_t count, int threads) {                                                         \
        swiglu_backward(upstream, gate, inner, of_gate, of_inner, count, threads);                                    \
    }                                                                                                                 \
    void softmax_##NAME(const T *logits, const T *bias, float scale, int64_t first, T *out, int64_t matrices,         \
                        int64_t rows, int64_t keys, int threads) {                                                    \
        softmax(logits, bias, scale, first, out, matrices, rows, keys, threads);                                      \
    }                                                                                                                 \
    void softmax_backward_##NAME(const T *shares, T *changes, float scale, int64_t first, int64_t matrices,           \
                                 int64_t rows, int64_t keys, int threads) {                                           \
        softmax_backward(shares, changes, scale, first, matrices, rows, keys, threads);                               \
    }                                                                                                                 \
    void cross_entropy_##NAME(T *logits, const int64_t *targets, float z, float *losses, float *added, int64_t count, \
                              int64_t rows, int64_t width, int threads) {                                             \
        cross_entropy(logits, targets, z, losses, added, count, rows, width, threads);                                \
    }

extern "C" {
FOR(fp32, float)
FOR(bf16, uint16_t)
}

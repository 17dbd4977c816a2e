// What queries pay to keys, by vectors: softmax of their logits, and its gradients.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention_documents.h"

#ifdef HAS_PRODUCTS

namespace {

constexpr float TO_TWO = 1.44269504f;                              // exp(x) is 2 to the power of x times it
constexpr float HIDDEN = -std::numeric_limits<float>::infinity();  // the logit of a key that is not seen

// 2^x for x up to 127, 2.4e-7 off at most, relative to it. A NaN stays one.
inline __m512 power_of_two(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);  // below, it is 0, and a NaN is taken from x
    const __m512 whole = _mm512_roundscale_ps(x, 0), rest = _mm512_sub_ps(x, whole);
    __m512 sum = _mm512_set1_ps(1.3276470126584172e-3f);
    for (float next :
         {9.675540961325169e-3f, 5.550713464617729e-2f, 2.4022120237350464e-1f, 6.931469440460205e-1f, 1.0f})
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(next));
    return _mm512_scalef_ps(sum, whole);
}

inline void put_vector(__m512 value, Number *to) {
#ifdef IN_FP32
    _mm512_storeu_ps(to, value);
#else
    const __m256bh rounded = _mm512_cvtneps_pbh(value);
    std::memcpy(to, &rounded, sizeof rounded);
#endif
}

// Which of the 16 keys from `i` on are among the first `seen`.
inline __mmask16 among(int64_t i, int64_t seen) {
    return __mmask16(_bzhi_u32(0xFFFF, std::clamp<int64_t>(seen - i, 0, LANES)));
}

inline void clear(Number *begin, Number *end) {
    if (begin < end) std::memset(begin, 0, (end - begin) * sizeof *begin);
}

// Shares of the first `seen` of `read` keys by their logits, before they are divided by their `sum`; zeros behind.
// Gives the logsumexp.
inline float share_out(const float *logits, float scale, int64_t seen, int64_t read, Number *to, float &sum) {
    const int64_t whole = round_up(seen, LANES);
    __m512 most = _mm512_set1_ps(HIDDEN), total = _mm512_setzero_ps();
    for (int64_t i = 0; i < whole; i += LANES)
        most = _mm512_mask_max_ps(most, among(i, seen), most, _mm512_loadu_ps(logits + i));
    const float highest = _mm512_reduce_max_ps(most) * scale;
    const __m512 by = _mm512_set1_ps(scale * TO_TWO), less = _mm512_set1_ps(highest * TO_TWO);
    for (int64_t i = 0; i < whole; i += LANES) {
        const __m512 apart = _mm512_fmsub_ps(_mm512_loadu_ps(logits + i), by, less);
        const __m512 share = _mm512_maskz_mov_ps(among(i, seen), power_of_two(apart));
        total = _mm512_add_ps(total, share);
        put_vector(share, to + i);
    }
    clear(to + whole, to + read);
    sum = _mm512_reduce_add_ps(total);
    return highest + std::log(sum);
}

// What the backward pass knows of a query: of its logits, and of the gradients of its shares.
struct Query {
    const float *logits, *changes;
    float logsumexp, paid;
    int64_t seen;
};

struct Shares {
    __m512 shares, changes;
};

// The 16 shares from key `i` on, and the gradients of their logits.
inline Shares shares_again(const Query &query, int64_t i, float scale, __mmask16 own) {
    const __m512 apart = _mm512_fmsub_ps(_mm512_loadu_ps(query.logits + i), _mm512_set1_ps(scale * TO_TWO),
                                         _mm512_set1_ps(query.logsumexp * TO_TWO));
    const __m512 share = _mm512_maskz_mov_ps(own, power_of_two(apart));
    const __m512 change = _mm512_sub_ps(_mm512_maskz_loadu_ps(own, query.changes + i), _mm512_set1_ps(query.paid));
    return {share, _mm512_maskz_mul_ps(own, _mm512_mul_ps(share, _mm512_set1_ps(scale)), change)};
}

#ifdef IN_FP32

// Of a query its shares and the gradients of their logits. Zeros up to `read`.
inline void share_backward(const Query &query, float scale, int64_t read, float *shares, float *changes) {
    const int64_t most = round_up(query.seen, LANES);
    for (int64_t i = 0; i < most; i += LANES) {
        const Shares found = shares_again(query, i, scale, among(i, query.seen));
        _mm512_storeu_ps(shares + i, found.shares);
        _mm512_storeu_ps(changes + i, found.changes);
    }
    for (float *row : {shares, changes}) clear(row + most, row + read);
}

#else

// 16 numbers of each, one behind the other.
inline __m512i rounded(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

// The same as words: of the first 16 in their lower half, of the second in their upper half.
inline __m512i in_pairs(__m512i both) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i order = _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16));
    return _mm512_permutexvar_epi16(order, both);
}

// Of two queries: their shares as pairs, and the gradients of their logits, as rows and as pairs. Zeros up to `read`.
inline void share_backward(const Query &first, const Query &second, float scale, int64_t read, Word *share_words,
                           Number *changes, int64_t of_changes, Word *change_words) {
    const int64_t most = round_up(std::max(first.seen, second.seen), LANES);
    for (int64_t i = 0; i < most; i += LANES) {
        const Shares a = shares_again(first, i, scale, among(i, first.seen));
        const Shares b = shares_again(second, i, scale, among(i, second.seen));
        const __m512i shares = rounded(a.shares, b.shares), both = rounded(a.changes, b.changes);
        _mm512_storeu_si512(share_words + i, in_pairs(shares));
        _mm512_storeu_si512(change_words + i, in_pairs(both));
        _mm256_storeu_si256((__m256i *)(changes + i), _mm512_castsi512_si256(both));
        _mm256_storeu_si256((__m256i *)(changes + of_changes + i), _mm512_extracti64x4_epi64(both, 1));
    }
    clear(changes + most, changes + read);
    clear(changes + of_changes + most, changes + of_changes + read);
    for (uint32_t *pairs : {share_words, change_words}) std::fill(pairs + most, pairs + read, 0u);
}

#endif

}  // namespace

#endif

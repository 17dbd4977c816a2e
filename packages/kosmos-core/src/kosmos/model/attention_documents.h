// Documents of a packed row: how their heads are shared out to threads, taken from the row and put back.
//
// Letters: T = tokens of the row, H = heads, L = tokens of a document, d = width of a head, D = d rounded up to a
// multiple of SQUARE.

#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#ifdef IN_FP32
#include "products_fp32.h"
#else
#include "products_bf16.h"
#endif

#ifdef HAS_PRODUCTS

namespace {

inline int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// From row to row of a matrix of numbers that is a left side, as `apart_words` has it.
constexpr int64_t apart_numbers(int64_t columns) { return PER_WORD * apart_words((columns + PER_WORD - 1) / PER_WORD); }

// [T, H, d], whose last dimension is contiguous.
struct Heads {
    const Number *first;
    int64_t token, head;
    const Number *at(int64_t t, int64_t h) const { return first + t * token + h * head; }
};

struct Row {
    const int32_t *bounds;  // where documents begin, and where the last one ends
    int64_t documents, heads, width;
    bool causal;
    float scale;
    int64_t wide() const { return round_up(width, SQUARE); }
    int64_t length(int64_t n) const { return bounds[n + 1] - bounds[n]; }
    int64_t place(int64_t t, int64_t h) const { return t * heads + h; }
};

// Queries or keys of a head of a document, from `begin` to `end`; `split` is which of its document's tasks it is.
struct Task {
    int64_t document, head, begin, end, split;
};

// All tasks of a row, of which each document has one for each `size(length)` of its tokens.
template <class F>
std::vector<Task> tasks_of(const Row &row, F size) {
    std::vector<int64_t> order(row.documents);
    std::iota(order.begin(), order.end(), 0);
    // The longest first, so that threads end together: the last queries see most keys.
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row.length(a) > row.length(b); });
    std::vector<Task> found;
    for (int64_t n : order) {
        const int64_t step = size(row.length(n));
        for (int64_t end = row.length(n), split = 0; end > 0; end -= step, split++)
            for (int64_t h = 0; h < row.heads; h++)
                found.push_back({n, h, std::max<int64_t>(0, end - step), end, split});
    }
    return found;
}

// Bytes that this thread's rooms hold.
inline int64_t &held() {
    thread_local int64_t bytes = 0;
    return bytes;
}

// Memory of a thread, which is there again for its next task: fresh pages would take longer. What is in it is anything;
// its first number lies at a multiple of 64 bytes.
template <class T>
struct Room {
    std::unique_ptr<T[]> kept;
    int64_t size = 0;
    T *of(int64_t count) {
        if (size < count + 64) {
            kept.reset();
            kept.reset(new T[count + 64]);
            held() += (count + 64 - size) * sizeof(T);
            size = count + 64;
        }
        return (T *)((uintptr_t(kept.get()) + 63) / 64 * 64);
    }
};

// Tokens `begin` to `end` of a head, with zeros behind: [`rows`, D].
inline void take(const Heads &x, const Row &row, const Task &task, int64_t begin, int64_t end, int64_t rows,
                 Number *to) {
    const int64_t first = row.bounds[task.document], wide = row.wide();
    for (int64_t i = begin; i < begin + rows; i++, to += wide) {
        const int64_t own = i < end ? row.width : 0;
        if (own) std::memcpy(to, x.at(first + i, task.head), own * sizeof *to);
        if (own < wide) std::memset(to + own, 0, (wide - own) * sizeof *to);
    }
}

// Numbers of a row as words, or a right side's words as numbers.
inline const uint32_t *bits(const void *numbers) { return (const uint32_t *)numbers; }
inline uint32_t *bits(void *numbers) { return (uint32_t *)numbers; }

// The same numbers as the right side of a product that sums over D: words [D / PER_WORD, rows].
inline void take_turned(const Number *from, int64_t rows, int64_t wide, Word *to, int64_t of_to) {
    turn(bits(from), wide / PER_WORD, rows, wide / PER_WORD, bits(to), of_to);
}

// And of one that sums over the rows: words [rows / PER_WORD, D].
inline void take_words(const Number *from, int64_t rows, int64_t wide, Word *to, int64_t of_to) {
#ifdef IN_FP32
    for (int64_t i = 0; i < rows; i++) std::memcpy(to + i * of_to, from + i * wide, wide * sizeof *to);
#else
    for (int64_t i = 0; i < rows; i += 2) pair(from + i * wide, from + (i + 1) * wide, to + i / 2 * of_to, wide);
#endif
}

// And as the left side of one that sums over the rows: [D, rows]. `words` has room for [rows / PER_WORD, D].
inline void take_columns(const Number *from, int64_t rows, int64_t wide, [[maybe_unused]] Word *words, Number *to,
                         int64_t of_to) {
#ifdef IN_FP32
    turn(bits(from), wide, rows, wide, bits(to), of_to);
#else
    take_words(from, rows, wide, words, wide);
    turn(words, wide, rows / 2, wide, bits(to), of_to / 2);
#endif
}

// fp32 numbers of a token of a head to where it lies in [T, H, d].
template <class F>
void put(Number *to, const Row &row, const Task &task, int64_t t, F value) {
    write(to + row.place(row.bounds[task.document] + t, task.head) * row.width, row.width, value);
}

}  // namespace

#endif

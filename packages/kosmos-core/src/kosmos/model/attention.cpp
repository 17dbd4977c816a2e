// Attention within the documents of a packed row, in bf16 on a processor that multiplies it, or with IN_FP32 in fp32.
// Logits and sums are fp32, and documents are taken from the row as they lie: none is padded, brought to a length or
// put back.
//
// A head of a document is the work of one thread, a long one's that of several. What is computed does not depend on how
// many threads there are.
//
// Compiled by `attention_compiled.py`. Letters: L = tokens of a document, d = width of a head, D = d rounded up to a
// multiple of SQUARE.

#include <algorithm>
#include <utility>
#include <vector>

#include "attention_documents.h"
#include "attention_shares.h"

#ifdef HAS_PRODUCTS

namespace {

constexpr int64_t ROWS = 64;       // queries that are taken at once
constexpr int64_t PART = 512;      // queries of a task, forward; keys whose gradients are summed at once, backward
constexpr int64_t SPLITS = 4;      // tasks at most that the keys of a document are, backward
constexpr int64_t KEPT = 1 << 25;  // bytes that a thread keeps for the next call

struct Rooms {
    Room<Number> rows, upstream, shares, changes, queries_turned, upstream_turned;
    Room<Word> keys, values, key_words, share_words, change_words, words;
    Room<float> logits, slopes, out, paid, keys_sum, values_sum, turned;
};

inline Rooms &rooms() {
    thread_local Rooms own;
    return own;
}

// At the end of a call: long documents leave nothing behind.
inline void leave_rooms() {
    if (held() <= KEPT) return;
    rooms() = Rooms();
    held() = 0;
}

// Queries `task.begin` to `task.end`, and the logsumexp of each.
inline void attend_queries(const Row &row, const Task &task, const Heads &q, const Heads &k, const Heads &v,
                           Number *out, float *sums) {
    Rooms &room = rooms();
    const int64_t D = row.wide(), apart_D = apart_words(D), length = row.length(task.document);
    const int64_t seen_by_all = row.causal ? task.end : length, keys = round_up(seen_by_all, SQUARE),
                  apart = apart_words(keys), of_shares = apart_numbers(keys);
    Number *taken = room.rows.of(std::max(keys, ROWS) * D), *shares = room.shares.of(ROWS * of_shares);
    Word *k_turned = room.keys.of(D / PER_WORD * apart), *v_words = room.values.of(keys / PER_WORD * apart_D);
    float *logits = room.logits.of(ROWS * apart), *found = room.out.of(ROWS * D);
    take(k, row, task, 0, seen_by_all, keys, taken);
    take_turned(taken, keys, D, k_turned, apart);
    take(v, row, task, 0, seen_by_all, keys, taken);
    take_words(taken, keys, D, v_words, apart_D);
    for (int64_t begin = task.begin; begin < task.end; begin += ROWS) {
        const int64_t count = std::min(ROWS, task.end - begin), rows = round_up(count, SQUARE);
        const int64_t read = row.causal ? std::min(keys, round_up(begin + count, SQUARE)) : keys;
        float totals[ROWS];
        take(q, row, task, begin, begin + count, rows, taken);
        multiply(rows, read, D, taken, D, k_turned, apart, logits, apart, false);
        for (int64_t r = 0; r < rows; r++) {
            Number *to = shares + r * of_shares;
            if (r >= count) {
                clear(to, to + read);
                continue;
            }
            const int64_t seen = row.causal ? begin + r + 1 : length;
            sums[row.place(row.bounds[task.document] + begin + r, task.head)] =
                share_out(logits + r * apart, row.scale, seen, read, to, totals[r]);
        }
        multiply(rows, D, read, shares, of_shares, v_words, apart_D, found, D, false);
        for (int64_t r = 0; r < count; r++) {
            const float *own = found + r * D, part = 1.0f / totals[r];
            put(out, row, task, begin + r, [=](int64_t i) { return own[i] * part; });
        }
    }
}

// What the backward pass is given: the gradients of what came out, what came out, and the logsumexps.
struct Upstream {
    Heads gradients;
    const Number *out;
    const float *sums;
};

// Of each query its upstream gradients times what came out.
inline void products_with_out(const Row &row, const Task &task, const Upstream &given, float *to) {
    const int64_t first = row.bounds[task.document];
    for (int64_t t = 0; t < row.length(task.document); t++) {
        const Number *x = given.gradients.at(first + t, task.head);
        const Number *y = given.out + row.place(first + t, task.head) * row.width;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < row.width; i++) sum += widen(x[i]) * widen(y[i]);
        to[t] = sum;
    }
}

// Gradients of the keys and values of a task, and in `queries` [L + ROWS, D] what they add to those of all queries.
inline void attend_keys_backward(const Row &row, const Task &task, const Upstream &given, const Heads &q,
                                 const Heads &k, const Heads &v, float *queries, Number *of_k, Number *of_v) {
    Rooms &room = rooms();
    const int64_t D = row.wide(), apart_D = apart_words(D), first = row.bounds[task.document];
    const int64_t length = row.length(task.document);
    const int64_t most = round_up(std::min(PART, task.end - task.begin), SQUARE), apart = apart_words(most);
    constexpr int64_t TURNED = apart_numbers(ROWS);
    Number *taken = room.rows.of(std::max(most, ROWS) * D), *upstream = room.upstream.of(ROWS * D);
    const int64_t of_changes = apart_numbers(most);
    Number *changes = room.changes.of(ROWS * of_changes);
    Number *q_turned = room.queries_turned.of(D * TURNED), *up_turned = room.upstream_turned.of(D * TURNED);
    Word *k_turned = room.keys.of(D / PER_WORD * apart), *v_turned = room.values.of(D / PER_WORD * apart);
    Word *k_words = room.key_words.of(most / PER_WORD * apart_D), *words = room.words.of(ROWS / PER_WORD * D);
    Word *share_words = room.share_words.of(ROWS / PER_WORD * apart);
#ifdef IN_FP32
    Word *change_words = changes;
#else
    Word *change_words = room.change_words.of(ROWS / PER_WORD * apart);
#endif
    float *logits = room.logits.of(ROWS * apart), *slopes = room.slopes.of(ROWS * apart);
    float *keys_sum = room.keys_sum.of(D * apart), *values_sum = room.values_sum.of(D * apart);
    float *paid = room.paid.of(length), *turned = room.turned.of(most * D);
    products_with_out(row, task, given, paid);
    if (row.causal) std::fill(queries, queries + task.begin * D, 0.0f);
    for (int64_t low = task.begin; low < task.end; low += PART) {
        const int64_t high = std::min(low + PART, task.end), keys = round_up(high - low, SQUARE);
        take(v, row, task, low, high, keys, taken);
        take_turned(taken, keys, D, v_turned, apart);
        take(k, row, task, low, high, keys, taken);
        take_turned(taken, keys, D, k_turned, apart);
        take_words(taken, keys, D, k_words, apart_D);
        const int64_t from = row.causal ? low : 0, last = from + (length - from - 1) / ROWS * ROWS;
        for (int64_t begin = last; begin >= from; begin -= ROWS) {  // the last see all of these keys
            const int64_t count = std::min(ROWS, length - begin), rows = round_up(count, SQUARE);
            const int64_t read = row.causal ? std::min(keys, round_up(begin + count - low, SQUARE)) : keys;
            take(given.gradients, row, task, begin, begin + count, rows, upstream);
            take_columns(upstream, rows, D, words, up_turned, TURNED);
            take(q, row, task, begin, begin + count, rows, taken);
            take_columns(taken, rows, D, words, q_turned, TURNED);
            multiply(rows, read, D, taken, D, k_turned, apart, logits, apart, false);
            multiply(rows, read, D, upstream, D, v_turned, apart, slopes, apart, false);
            const auto query = [&](int64_t r) {
                const int64_t own = std::min(begin + r, length - 1);
                const int64_t seen = r >= count ? 0 : row.causal ? std::min(high, begin + r + 1) - low : high - low;
                return Query{logits + r * apart, slopes + r * apart, given.sums[row.place(first + own, task.head)],
                             paid[own], seen};
            };
#ifdef IN_FP32
            for (int64_t r = 0; r < rows; r++)
                share_backward(query(r), row.scale, read, share_words + r * apart, changes + r * of_changes);
#else
            for (int64_t r = 0; r < rows; r += 2)
                share_backward(query(r), query(r + 1), row.scale, read, share_words + r / 2 * apart,
                               changes + r * of_changes, of_changes, change_words + r / 2 * apart);
#endif
            multiply(rows, D, read, changes, of_changes, k_words, apart_D, queries + begin * D, D, low > task.begin);
            multiply(D, read, rows, up_turned, TURNED, share_words, apart, values_sum, apart, begin < last);
            multiply(D, read, rows, q_turned, TURNED, change_words, apart, keys_sum, apart, begin < last);
        }
        for (auto [sum, to] : {std::pair(keys_sum, of_k), std::pair(values_sum, of_v)}) {
            turn(bits(sum), apart, D, keys, bits(turned), D);
            for (int64_t t = low; t < high; t++) {
                const float *own = turned + (t - low) * D;
                put(to, row, task, t, [=](int64_t i) { return own[i]; });
            }
        }
    }
}

inline void put_queries(const Row &row, const Task &task, const float *from, Number *to) {
    for (int64_t t = 0; t < row.length(task.document); t++, from += row.wide())
        put(to, row, task, t, [=](int64_t i) { return from[i]; });
}

inline void attend_all(const Row &row, const Heads &q, const Heads &k, const Heads &v, Number *out, float *sums,
                       int threads) {
    const std::vector<Task> tasks = tasks_of(row, [](int64_t) { return PART; });
    if (tasks.empty()) return;
#pragma omp parallel num_threads(std::min(threads, int(tasks.size())))
    {
        begin_products();
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks.size(); i++) attend_queries(row, tasks[i], q, k, v, out, sums);
        end_products();
        leave_rooms();
    }
}

// How many keys of a document of that length are a task.
inline int64_t keys_of(int64_t length) { return std::max(PART, round_up((length + SPLITS - 1) / SPLITS, ROWS)); }

// Gradients of the queries of documents whose keys are several tasks: one sum for each, so that they are added in one
// order whichever thread is first.
struct Split {
    const Row &row;
    std::vector<int64_t> begins;  // of each document's numbers
    float *first;

    explicit Split(const Row &row) : row(row), begins(row.documents + 1) {
        for (int64_t n = 0; n < row.documents; n++)
            begins[n + 1] = begins[n] + (parts(n) > 1 ? parts(n) * row.heads * size(n) : 0);
        first = room().of(begins.back());
    }
    ~Split() {
        if (room().size * int64_t(sizeof(float)) > KEPT) room() = {};
    }
    static Room<float> &room() {
        thread_local Room<float> own;  // not of `rooms`: other threads write here
        return own;
    }
    int64_t parts(int64_t n) const { return (row.length(n) + keys_of(row.length(n)) - 1) / keys_of(row.length(n)); }
    int64_t size(int64_t n) const { return (row.length(n) + ROWS) * row.wide(); }
    float *at(const Task &task, int64_t split) const {
        return first + begins[task.document] + (split * row.heads + task.head) * size(task.document);
    }
    // The sum of all tasks of that head, in the place of the first.
    float *sum(const Task &task) const {
        float *to = at(task, 0);
        for (int64_t split = 1; split < parts(task.document); split++) {
            const float *other = at(task, split);
#pragma omp simd
            for (int64_t i = 0; i < row.length(task.document) * row.wide(); i++) to[i] += other[i];
        }
        return to;
    }
};

inline void attend_all_backward(const Row &row, const Upstream &given, const Heads &q, const Heads &k, const Heads &v,
                                Number *of_q, Number *of_k, Number *of_v, int threads) {
    const std::vector<Task> tasks = tasks_of(row, keys_of);
    if (tasks.empty()) return;
    const Split split(row);
#pragma omp parallel num_threads(std::min(threads, int(tasks.size())))
    {
        begin_products();
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks.size(); i++) {
            const Task &task = tasks[i];
            const bool whole = split.parts(task.document) == 1;
            float *queries = whole ? rooms().out.of(split.size(task.document)) : split.at(task, task.split);
            attend_keys_backward(row, task, given, q, k, v, queries, of_k, of_v);
            if (whole) put_queries(row, task, queries, of_q);
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks.size(); i++)
            if (tasks[i].split == 0 && split.parts(tasks[i].document) > 1)
                put_queries(row, tasks[i], split.sum(tasks[i]), of_q);
        end_products();
        leave_rooms();
    }
}

}  // namespace

#endif

extern "C" {
// Whether the rest is here.
int attends() {
#ifdef HAS_PRODUCTS
    return 1;
#else
    return 0;
#endif
}

#ifdef HAS_PRODUCTS
void attend(const int32_t *bounds, int64_t documents, int64_t heads, int64_t width, int causal, float scale,
            const Number *q, int64_t q_token, int64_t q_head, const Number *k, int64_t k_token, int64_t k_head,
            const Number *v, int64_t v_token, int64_t v_head, Number *out, float *sums, int threads) {
    const Row row{bounds, documents, heads, width, causal != 0, scale};
    attend_all(row, {q, q_token, q_head}, {k, k_token, k_head}, {v, v_token, v_head}, out, sums, threads);
}

void attend_backward(const int32_t *bounds, int64_t documents, int64_t heads, int64_t width, int causal, float scale,
                     const Number *q, int64_t q_token, int64_t q_head, const Number *k, int64_t k_token, int64_t k_head,
                     const Number *v, int64_t v_token, int64_t v_head, const Number *upstream, int64_t up_token,
                     int64_t up_head, const Number *out, const float *sums, Number *of_q, Number *of_k, Number *of_v,
                     int threads) {
    const Row row{bounds, documents, heads, width, causal != 0, scale};
    attend_all_backward(row, {{upstream, up_token, up_head}, out, sums}, {q, q_token, q_head}, {k, k_token, k_head},
                        {v, v_token, v_head}, of_q, of_k, of_v, threads);
}
#endif
}

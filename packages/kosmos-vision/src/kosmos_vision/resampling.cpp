// Bicubic resampling of a picture of three colours, across and then down: the bytes that Pillow's comes to, which takes
// one value at a time. Weights are whole numbers of 2^-22, so that sums are exact in whatever order they are taken.
//
// Across, 64 rows are taken at once: they are turned to columns first, so that values which are weighed alike lie side
// by side, as they do of themselves on the way down.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

constexpr int BITS = 22;
constexpr int32_t HALF = 1 << (BITS - 1);
constexpr int COLOURS = 3;
constexpr int AT_ONCE = 64;
constexpr double SUPPORT = 2.0;

double cubic(double x) {
    x = std::fabs(x);
    if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * -0.5;
    return 0.0;
}

// Which values along one side each new one is made of.
struct Taps {
    int64_t most;                 // of one
    std::vector<int64_t> first;   // [wanted]
    std::vector<int64_t> count;   // [wanted]
    std::vector<int32_t> weight;  // [wanted, most]

    Taps(int64_t size, float begin, float end, int64_t wanted) : first(wanted), count(wanted) {
        const double scale = double(end - begin) / wanted;
        const double stretch = scale < 1.0 ? 1.0 : scale, support = SUPPORT * stretch;
        most = int64_t(std::ceil(support)) * 2 + 1;
        weight.assign(wanted * most, 0);
        std::vector<double> share(most);
        for (int64_t i = 0; i < wanted; i++) {
            const double centre = begin + (i + 0.5) * scale, rate = 1.0 / stretch;
            const int64_t low = int64_t(centre - support + 0.5), high = int64_t(centre + support + 0.5);
            first[i] = low < 0 ? 0 : low;
            count[i] = (high > size ? size : high) - first[i];
            double sum = 0.0;
            for (int64_t j = 0; j < count[i]; j++) sum += share[j] = cubic((j + first[i] - centre + 0.5) * rate);
            for (int64_t j = 0; j < count[i]; j++) {
                const double part = sum != 0.0 ? share[j] / sum : share[j];
                weight[i * most + j] = int32_t((part < 0 ? -0.5 : 0.5) + part * (1 << BITS));
            }
        }
    }
};

inline uint8_t to_byte(int32_t sum) {
    sum >>= BITS;
    return uint8_t(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

// to[i] = sum of from[j * stride + i] * weight[j] over j, for i < n, a multiple of AT_ONCE.
void weigh(const uint8_t* __restrict from, int64_t stride, const int32_t* __restrict weight, int64_t count, int64_t n,
           uint8_t* __restrict to) {
    for (int64_t at = 0; at < n; at += AT_ONCE) {
        int32_t sums[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) sums[i] = HALF;
        for (int64_t j = 0; j < count; j++)
            for (int i = 0; i < AT_ONCE; i++) sums[i] += from[j * stride + at + i] * weight[j];
        for (int i = 0; i < AT_ONCE; i++) to[at + i] = to_byte(sums[i]);
    }
}

// [AT_ONCE, length] to [length, AT_ONCE] and back: halves are put into each other, or taken apart, six times, after
// which the result lies in x again.
static_assert(AT_ONCE == 1 << 6, "an even number of times");

void to_columns(uint8_t* x, uint8_t* spare, int64_t length) {
    for (int64_t half = AT_ONCE / 2; half; half /= 2, length *= 2, std::swap(x, spare))
        for (int64_t row = 0; row < half; row++) {
            const uint8_t *__restrict a = x + row * length, *__restrict b = x + (row + half) * length;
            uint8_t* __restrict both = spare + 2 * row * length;
            for (int64_t i = 0; i < length; i++) both[2 * i] = a[i], both[2 * i + 1] = b[i];
        }
}

void to_rows(uint8_t* x, uint8_t* spare, int64_t length) {
    length *= AT_ONCE / 2;
    for (int64_t half = 1; half < AT_ONCE; half *= 2, length /= 2, std::swap(x, spare))
        for (int64_t row = 0; row < half; row++) {
            const uint8_t* __restrict both = x + 2 * row * length;
            uint8_t *__restrict a = spare + row * length, *__restrict b = spare + (row + half) * length;
            for (int64_t i = 0; i < length; i++) a[i] = both[2 * i], b[i] = both[2 * i + 1];
        }
}

// [rows, width, colours] to [rows, stride], of which the first are [colours, wanted].
void across(const uint8_t* source, int64_t rows, int64_t width, const Taps& taps, int64_t wanted, uint8_t* out,
            int64_t stride) {
    const int64_t line = width * COLOURS;
    std::vector<uint8_t> columns(line * AT_ONCE), done(stride * AT_ONCE), spare(std::max(line, stride) * AT_ONCE);
    for (int64_t y = 0; y < rows; y += AT_ONCE) {
        const int64_t some = std::min<int64_t>(rows - y, AT_ONCE);  // the others are of before, and are not kept
        std::memcpy(columns.data(), source + y * line, some * line);
        to_columns(columns.data(), spare.data(), line);
        for (int colour = 0; colour < COLOURS; colour++)
            for (int64_t x = 0; x < wanted; x++)
                weigh(&columns[(taps.first[x] * COLOURS + colour) * AT_ONCE], COLOURS * AT_ONCE,
                      &taps.weight[x * taps.most], taps.count[x], AT_ONCE, &done[(colour * wanted + x) * AT_ONCE]);
        to_rows(done.data(), spare.data(), stride);
        std::memcpy(out + y * stride, done.data(), some * stride);
    }
}

// Rows from ``first`` on, [.., stride], to [colours, wanted, width].
void down(const uint8_t* source, int64_t first, int64_t stride, const Taps& taps, int64_t wanted, int64_t width,
          uint8_t* out) {
    std::vector<uint8_t> line(stride);
    for (int64_t y = 0; y < wanted; y++) {
        weigh(source + (taps.first[y] - first) * stride, stride, &taps.weight[y * taps.most], taps.count[y], stride,
              line.data());
        for (int colour = 0; colour < COLOURS; colour++)
            std::memcpy(out + (colour * wanted + y) * width, &line[colour * width], width);
    }
}

}  // namespace

// source [height, width, 3], box (left, top, right, bottom) -> out [3, rows, columns]. Other than 0: no memory is left.
extern "C" int resample(const uint8_t* source, int64_t height, int64_t width, const float* box, uint8_t* out,
                        int64_t rows, int64_t columns) try {
    const Taps along(width, box[0], box[2], columns), below(height, box[1], box[3], rows);
    const int64_t first = below.first[0], end = below.first[rows - 1] + below.count[rows - 1];
    const int64_t stride = (columns * COLOURS + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
    std::vector<uint8_t> between((end - first) * stride);
    across(source + first * width * COLOURS, end - first, width, along, columns, between.data(), stride);
    down(between.data(), first, stride, below, rows, columns, out);
    return 0;
} catch (...) {  // of want of memory
    return 1;
}

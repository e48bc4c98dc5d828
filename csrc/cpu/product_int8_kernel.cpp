// y = x W^T with packed blocks of a quantized file and activations rounded to signed bytes: dot products of integers.
//
// Each 32 inputs of a row share a scale, their largest magnitude / 127, and are rounded to nearest, ties to even. Their
// products with a group's fields are added up exactly, as integers; then, one group after the other from 0 on,
//
//   y += (scale of weights * scale of x) * dots  [+ minimum of weights * (scale of x * sum of x)]
//
// each a fused multiply-add (or, on a set without them, a product and a sum), so a row's bits do not depend on how many
// others there are. A vector's lanes are outputs; a group's words are unpacked once for kRows rows.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table, OCTAVO_ISA the set.
#include "dots.h"
#include "panel_sums.h"
#include "product.h"
#include "weights.h"

namespace octavo {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 8; // of 32 registers, and enough independent sums for the latency
#elif defined(__AVX2__)
constexpr int kRows = 4; // 8 of 16 registers are sums, two to a vector
#else
constexpr int kRows = 1;
#endif

constexpr int64_t kRowBlock = 64; // rows whose sums are kept at a time

// 32 inputs of a row. Word w holds the inputs w, 8 + w, 16 + w and 24 + w, as packed words hold their weights.
struct Activations {
    int32_t words[8];
    float scale;
    float scaled_sum;  // scale * sum
    int32_t sum;       // of the 32 bytes
    int32_t half_sums; // of the first 16 in the low half, of the others in the high one
};

// The same 32 inputs of R rows, or the prepared rows of a call.
struct Rows {
    const char *first;
    int64_t stride; // bytes
    int64_t count;

    const Activations &at(int64_t row) const { return *reinterpret_cast<const Activations *>(first + row * stride); }
};

// ---------------------------------------------------------------- activations

// A scale below this has no inverse; whatever is so small counts as 0.
constexpr float kSmallest = 1e-30f;

inline Floats16 magnitudes(Floats16 x) { return maximum(subtract(broadcast(0.0f), x), x); }

// Both are NaN where an input is not finite, so that all sums of the row are.
inline void put_scale(float scale, Activations &to) {
    to.scale = scale;
    to.scaled_sum = scale * static_cast<float>(to.sum);
}

void quantize(const float *x, Activations &to) {
    const Floats16 low = load(x), high = load(x + kLanes), zero = broadcast(0.0f);
    const float most = largest(maximum(magnitudes(low), magnitudes(high)));
    const float not_finite = sum(add(multiply(low, zero), multiply(high, zero))); // 0, or NaN
    to = Activations{};
    if (!(most >= kSmallest) || not_finite != 0.0f) return put_scale(not_finite, to);
    alignas(64) float rounded[2 * kLanes];
    const Floats16 inverse = broadcast(127.0f / most);
    store(rounded, round_to_nearest(multiply(low, inverse)));
    store(rounded + kLanes, round_to_nearest(multiply(high, inverse)));
    int8_t bytes[32];
    int32_t sums[2] = {};
    for (int i = 0; i < 32; ++i) {
        const auto value = static_cast<int32_t>(rounded[i]);
        bytes[i % 8 * 4 + i / 8] = static_cast<int8_t>(value);
        sums[i / 16] += value;
    }
    __builtin_memcpy(to.words, bytes, sizeof bytes);
    to.sum = sums[0] + sums[1];
    to.half_sums =
        static_cast<int32_t>((static_cast<uint32_t>(sums[0]) & 0xffffu) | static_cast<uint32_t>(sums[1]) << 16);
    put_scale(most / 127.0f, to);
}

// ---------------------------------------------------------------- dots

// A vector of outputs for each of R rows.
template <int R> struct Dots {
    Words16 at[R];
};

template <int R, class Of> inline Dots<R> for_rows(Of of) {
    Dots<R> dots;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dots.at[r] = of(r);
    return dots;
}

constexpr uint32_t kNibbles = 0x0f0f0f0f, kPairsOfBits = 0x03030303;

template <int R> inline void add_word(Dots<R> &dots, Words16 weights, const Rows &x, int word) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dots.at[r] = add_small_dots(dots.at[r], weights, broadcast_word(x.at(r).words[word]));
}

template <int R> inline Dots<R> totals(const Dots<R> &small) {
    return for_rows<R>([&](int r) { return total(small.at[r]); });
}

template <int R> inline Dots<R> zeros() {
    return for_rows<R>([](int) { return broadcast_word(0); });
}

// Of the four rows of nibbles: field f of row t is input f * 4 + t.
template <int R> inline Dots<R> nibble_dots(const uint8_t *words, const Rows &x) {
    Dots<R> dots = zeros<R>();
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
        const Words16 weights = load_words(words + t * kWordsBytes);
        add_word(dots, keep_bits(weights, kNibbles), x, t);
        add_word(dots, keep_bits(shift_right(weights, 4), kNibbles), x, t + 4);
    }
    return totals(dots);
}

// Of the eight rows of bytes: field f of row t is input f * 8 + t. `shift` chooses the bytes' low or high four bits.
template <int R> inline Dots<R> half_byte_dots(const uint8_t *words, int shift, const Rows &x) {
    Dots<R> dots = zeros<R>();
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t)
        add_word(dots, keep_bits(shift_right(load_words(words + t * kWordsBytes), shift), kNibbles), x, t);
    return totals(dots);
}

// `words` is where the words of one vector of outputs begin, `outputs` counts the outputs before it.

template <int R> inline Dots<R> dots_of(Q8_0Group group, const uint8_t *at, int outputs, const Rows &x) {
    const uint8_t *words = at + group.kWords + 4 * outputs;
#if defined(__AVX512VNNI__)
    Dots<R> dots = zeros<R>();
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t) add_word(dots, load_words(words + t * kWordsBytes), x, t);
#else
    const Dots<R> high = half_byte_dots<R>(words, 4, x), low = half_byte_dots<R>(words, 0, x);
    const Dots<R> dots = for_rows<R>([&](int r) { return add_words(low.at[r], shift_left(high.at[r], 4)); });
#endif
    return for_rows<R>([&](int r) { return subtract_words(dots.at[r], broadcast_word(128 * x.at(r).sum)); });
}

template <int R> inline Dots<R> dots_of(Q4_0Group group, const uint8_t *at, int outputs, const Rows &x) {
    const Dots<R> dots = nibble_dots<R>(at + group.kWords + 4 * outputs, x);
    return for_rows<R>([&](int r) { return subtract_words(dots.at[r], broadcast_word(8 * x.at(r).sum)); });
}

template <int R> inline Dots<R> dots_of(Q4_1Group group, const uint8_t *at, int outputs, const Rows &x) {
    return nibble_dots<R>(at + group.kWords + 4 * outputs, x);
}

template <int R> inline Dots<R> dots_of(Q4_KGroup group, const uint8_t *at, int outputs, const Rows &x) {
    return nibble_dots<R>(at + group.kWords + 4 * outputs, x);
}

// The low half of a word's pairs is of the first 16 inputs, the high half of the others, each with a scale of its own.
template <int R> inline Dots<R> dots_of(Q6_KGroup group, const uint8_t *at, int outputs, const Rows &x) {
    const auto *first = reinterpret_cast<const int8_t *>(at + group.kScales + outputs);
    const Words16 scales = load_pairs(first, first + kPanel);
    Dots<R> dots = for_rows<R>([&](int r) {
        const Words16 sums = multiply_pairs(scales, broadcast_word(x.at(r).half_sums));
        return subtract_words(broadcast_word(0), shift_left(sums, 5)); // fields are 32 above their value
    });
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
        const Words16 low = load_words(at + group.kWords + t * kWordsBytes + 4 * outputs);
        const Words16 pairs = load_words(at + group.kPairs + t / 2 * kWordsBytes + 4 * outputs);
        const auto field = [&](int shift) {
            const Words16 high = keep_bits(shift_right(pairs, shift + t % 2 * 2), kPairsOfBits);
            return either_bits(keep_bits(shift_right(low, shift), kNibbles), shift_left(high, 4));
        };
        const Words16 even = field(0), odd = field(4);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Words16 sums = add_pairs(byte_pairs(even, broadcast_word(x.at(r).words[t])),
                                           byte_pairs(odd, broadcast_word(x.at(r).words[t + 4])));
            dots.at[r] = add_words(dots.at[r], multiply_pairs(sums, scales));
        }
    }
    return dots;
}

// ---------------------------------------------------------------- sums

// What a group's dots are multiplied with, and what is added for each input whatever its field.
struct Terms {
    Floats16 scale, minimum;
};

template <class Element> inline Floats16 load_at(const uint8_t *from, int output) {
    return load(reinterpret_cast<const Element *>(from) + output);
}

template <class Group> constexpr bool has_minimum = false;
template <> constexpr bool has_minimum<Q4_1Group> = true;
template <> constexpr bool has_minimum<Q4_KGroup> = true;

template <class Group> inline Terms terms_of(Group group, const uint8_t *, const uint8_t *at, int outputs) {
    return {load_at<float16>(at + group.kScales, outputs), broadcast(0.0f)};
}

inline Terms terms_of(Q4_1Group group, const uint8_t *, const uint8_t *at, int outputs) {
    return {load_at<float16>(at + group.kScales, outputs), load_at<float16>(at + group.kMinima, outputs)};
}

inline Terms terms_of(Q4_KGroup group, const uint8_t *block, const uint8_t *at, int outputs) {
    const Floats16 minimum =
        multiply(load_at<float16>(block + group.kBlockMinima, outputs), load_at<int8_t>(at + group.kMinima, outputs));
    return {
        multiply(load_at<float16>(block + group.kBlockScales, outputs), load_at<int8_t>(at + group.kScales, outputs)),
        subtract(broadcast(0.0f), minimum)};
}

inline Terms terms_of(Q6_KGroup group, const uint8_t *block, const uint8_t *, int outputs) {
    return {load_at<float16>(block + group.kBlockScales, outputs), broadcast(0.0f)};
}

// sums[r * kPanel + ..] += the group's part
template <class Group, int R>
inline void add_group(const uint8_t *block, const uint8_t *group, const Rows &x, float *sums) {
#pragma GCC unroll 1
    for (int outputs = 0; outputs < kPanel; outputs += kLanes) {
        const Dots<R> dots = dots_of<R>(Group{}, group, outputs, x);
        const Terms terms = terms_of(Group{}, block, group, outputs);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            float *to = sums + r * kPanel + outputs;
            const Floats16 scale = multiply(terms.scale, broadcast(x.at(r).scale));
            Floats16 total = multiply_add(scale, to_floats(dots.at[r]), load(to));
            if constexpr (has_minimum<Group>) total = multiply_add(terms.minimum, broadcast(x.at(r).scaled_sum), total);
            store(to, total);
        }
    }
}

// add_group of `x.count` rows, at most R
template <class Group, int R>
inline void add_few(const uint8_t *block, const uint8_t *group, const Rows &x, float *sums) {
    if (x.count >= R) return add_group<Group, R>(block, group, x, sums);
    if constexpr (R > 1) add_few<Group, R - 1>(block, group, x, sums);
}

template <class Group>
__attribute__((noinline)) void multiply_panel(const uint8_t *panel, int64_t num_inputs, Rows rows, float *sums) {
    for (int64_t i = 0; i < rows.count * kPanel; i += kLanes) store(sums + i, broadcast(0.0f));
    for (int64_t index = 0; index < num_inputs / Group::kInputs; ++index) {
        const uint8_t *block = panel + index / Group::kPerBlock * block_bytes<Group>();
        const uint8_t *group = block + Group::kBlockHeader + index % Group::kPerBlock * Group::kBytes;
        prefetch_ahead<Group>(group);
        const char *x = rows.first + index * static_cast<int64_t>(sizeof(Activations));
        for (int64_t row = 0; row < rows.count; row += kRows)
            add_few<Group, kRows>(block, group, {x + row * rows.stride, rows.stride, rows.count - row},
                                  sums + row * kPanel);
    }
}

// ---------------------------------------------------------------- the table

int64_t activation_bytes(int64_t num_inputs) {
    return (num_inputs / 32 * static_cast<int64_t>(sizeof(Activations)) + 63) / 64 * 64;
}

void prepare(const float *row, int64_t num_inputs, void *prepared) {
    auto *to = static_cast<Activations *>(prepared);
    for (int64_t k = 0; k < num_inputs; k += 32) quantize(row + k, to[k / 32]);
}

int64_t scratch_bytes(int64_t) { return kRowBlock * kPanel * static_cast<int64_t>(sizeof(float)); }

template <class Group>
void multiply_panels(const PackedMatrix &weights, Rows rows, int64_t first, int64_t last, float *y, int64_t y_stride,
                     float *sums) {
    for (int64_t panel = first; panel < last; ++panel) {
        const uint8_t *data =
            static_cast<const uint8_t *>(weights.data) + panel * panel_bytes<Group>(weights.num_inputs);
        for (int64_t row = 0; row < rows.count; row += kRowBlock) {
            const int64_t left = rows.count - row, count = left < kRowBlock ? left : kRowBlock;
            multiply_panel<Group>(data, weights.num_inputs, {rows.first + row * rows.stride, rows.stride, count}, sums);
            write_sums(sums, count, outputs_of_panel(weights.num_outputs, panel), y + row * y_stride + panel * kPanel,
                       y_stride);
        }
    }
}

void multiply_matrix(const PackedMatrix &weights, const void *prepared, int64_t num_rows, int64_t first_panel,
                     int64_t last_panel, float *y, int64_t y_stride, void *scratch) {
    const Rows rows = {static_cast<const char *>(prepared), activation_bytes(weights.num_inputs), num_rows};
    with_group<void>(weights.format, [&](auto group) {
        if constexpr (decltype(group)::kInputs == 32)
            multiply_panels<decltype(group)>(weights, rows, first_panel, last_panel, y, y_stride,
                                             static_cast<float *>(scratch));
    });
}

} // namespace

extern const ProductKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const ProductKernels OCTAVO_KERNELS = {OCTAVO_ISA, activation_bytes, prepare, scratch_bytes, multiply_matrix};

} // namespace octavo

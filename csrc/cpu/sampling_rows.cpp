// Many rows: what a caller may pass, and how they are cut among the threads.
#include <omp.h>

#include <algorithm>

#include "aligned_memory.h"
#include "requirements.h"
#include "row_kernel.h"
#include "sampling.h"

namespace octavo {
namespace {

struct Span {
    const char *name;
    int64_t start, end;
    const int64_t *token_ids;
};

void check_span(const Span &span, int64_t vocab_size) {
    if (span.start < 0 || span.end < span.start) refuse(span.name, span.end, "the end of a span from 0 or later on");
    require_pointer(span.name, span.token_ids, span.end - span.start);
    for (int64_t i = span.start; i < span.end; ++i)
        if (span.token_ids[i] < 0 || span.token_ids[i] >= vocab_size)
            require_range(at(span.name, i), span.token_ids[i], 0, vocab_size - 1);
}

void check_row(const octavo_sample_params &params, int32_t index) {
    const octavo_sampling_row &row = params.rows[index];
    const int64_t size = params.vocab_size;
    if (row.is_known && params.token_ids[index] != OCTAVO_NO_TOKEN)
        require_range(at("token_ids", index), params.token_ids[index], 0, size - 1);
    require_range(at("num_top", index), row.num_top, 0, size);
    require_pointer("top_token_ids", params.top_token_ids, row.num_top);
    require_pointer("top_logprobs", params.top_logprobs, row.num_top);
    if (row.mask_start < row.mask_end)
        require_range(at("mask bytes", index), row.mask_end - row.mask_start, (size + 7) / 8, (size + 7) / 8);
    require_pointer("masks", params.masks, row.mask_end - row.mask_start);
    check_span({"allowed_token_ids", row.allowed_start, row.allowed_end, params.allowed_token_ids}, size);
    check_span({"forbidden_token_ids", row.forbidden_start, row.forbidden_end, params.forbidden_token_ids}, size);
    check_span({"biased_token_ids", row.biased_start, row.biased_end, params.biased_token_ids}, size);
    require_pointer("biases", params.biases, row.biased_end - row.biased_start);
    check_span({"seen_token_ids", row.seen_start, row.seen_end, params.seen_token_ids}, size);
    require_pointer("output_counts", params.output_counts, row.seen_end - row.seen_start);
}

// Whose logits a row draws from.
int64_t logits_row(const octavo_sample_params &params, int32_t index) {
    return params.logits_rows == nullptr ? index : params.logits_rows[index];
}

// Float32 of a row that may be bfloat16, in `wide` if so.
const float *logits_of(const octavo_sample_params &params, int64_t row, float *wide) {
    const int64_t size = params.vocab_size;
    if (params.dtype == OCTAVO_FLOAT32) return static_cast<const float *>(params.logits) + row * size;
    const uint16_t *narrow = static_cast<const uint16_t *>(params.logits) + row * size;
    const int64_t packed = size / 8 * 8;
    row_kernels().widen(narrow, params.dtype, packed, wide);
    uint16_t rest[8] = {};
    float wide_rest[8];
    std::copy(narrow + packed, narrow + size, rest);
    row_kernels().widen(rest, params.dtype, 8, wide_rest);
    std::copy(wide_rest, wide_rest + (size - packed), wide + packed);
    return wide;
}

// What a thread needs for a row.
struct RowMemory {
    float *wide; // [vocab_size] for logits that are not float32
    char *work;  // of sample_row
};

RowMemory carve(Carver &carver, const octavo_sample_params &params) {
    return {carver.take<float>(params.dtype == OCTAVO_FLOAT32 ? 0 : params.vocab_size),
            carver.take<char>(sample_scratch_bytes(params.vocab_size))};
}

} // namespace

void check(const octavo_sample_params &params) {
    require_range("dtype", params.dtype, OCTAVO_FLOAT32, OCTAVO_BFLOAT16);
    require_range("num_rows", params.num_rows, 0, INT32_MAX);
    require_range("vocab_size", params.vocab_size, 1, OCTAVO_MAX_VOCAB_SIZE);
    require_pointer("logits", params.logits, params.num_rows);
    require_pointer("rows", params.rows, params.num_rows);
    require_pointer("token_ids", params.token_ids, params.num_rows);
    for (int32_t index = 0; index < params.num_rows; ++index) {
        require_range(at("logits_rows", index), logits_row(params, index), 0, params.num_logits - 1);
        check_row(params, index);
    }
}

void sample(const octavo_sample_params &params) {
    if (params.num_rows == 0) return;
    const int num_threads = std::min(omp_get_max_threads(), params.num_rows);
    Carver counted(nullptr);
    carve(counted, params);
    const AlignedMemory memory(num_threads * counted.taken());
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
    for (int32_t row = 0; row < params.num_rows; ++row) {
        Carver carver(memory.get() + omp_get_thread_num() * counted.taken());
        const RowMemory own = carve(carver, params);
        sample_row(params, row, logits_of(params, logits_row(params, row), own.wide), own.work);
    }
}

} // namespace octavo

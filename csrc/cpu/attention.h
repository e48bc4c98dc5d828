// Paged attention of a step, as the threads of a team carry it out. Parameters have been checked.
//
//   AttentionPlan plan(params, num_threads);                once per step
//   for each layer, every thread of the team:
//       attend(plan, layer, rows, thread, scratch);
//       if (plan.has_merges()) { barrier; merge(plan, layer, rows, scratch); }
//       barrier before anyone reads the output or attends the next layer
#pragma once

#include "attention_plan.h"
#include "octavo.h"

namespace octavo {

// The queries of a layer and where its results go; of any dtype, whatever the cache's.
struct AttentionRows {
    const void *query;    // [num_tokens][num_heads][head_size]
    void *output;         // [num_tokens][num_heads][head_size], contiguous
    int64_t query_stride; // from one token to the next, in elements
    int32_t dtype;        // octavo_dtype of both
};

// Takes items until none is left: writes the output, or parts of contexts that are split. Allocates nothing.
void attend(AttentionPlan &plan, int layer, const AttentionRows &rows, int thread, void *scratch);

// Merges the parts of contexts that were split and writes their output. Allocates nothing.
void merge(AttentionPlan &plan, int layer, const AttentionRows &rows, void *scratch);

// One call with a team of its own. Throws std::bad_alloc.
void paged_attention(const octavo_paged_attention_params &params);

} // namespace octavo

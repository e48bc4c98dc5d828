// A step as one parallel region: the threads of a team go through the model's phases together and meet at barriers.
#pragma once

#include "model.h"
#include "octavo_step.h"
#include "step_memory.h"

namespace octavo {

// What steps of one model work in.
struct StepMemory {
    GrowingMemory rows;      // of the batch, shared by the team
    GrowingMemory threads;   // of each thread
    GrowingMemory attention; // of attention's plan
};

// Writes the KV of every token, and the tokens and logits that were asked. `params` has been checked. Throws
// std::bad_alloc.
void run_step(const Model &model, const octavo_step_params &params, StepMemory &memory);

} // namespace octavo

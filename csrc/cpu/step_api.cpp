// The C entry points of octavo_step.h.
#include "guarded.h"
#include "model.h"
#include "octavo_step.h"
#include "step.h"

struct octavo_model {
    octavo::Model model;
    octavo::StepMemory memory;
};

int32_t octavo_cpu_create_model(octavo_model_params params, octavo_model **model) {
    return octavo::guarded([&] {
        octavo::check(params);
        *model = new octavo_model{octavo::Model(params), {}};
    });
}

void octavo_cpu_destroy_model(octavo_model *model) { delete model; }

int32_t octavo_cpu_step(octavo_model *model, octavo_step_params params) {
    return octavo::guarded([&] {
        octavo::check(params, model->model);
        octavo::run_step(model->model, params, model->memory);
    });
}

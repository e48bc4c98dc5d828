#include "dispatch.h"

#include <atomic>
#include <string>

#include "arguments.h"

namespace octavo {
namespace {

struct Candidate {
    const AttentionKernels *kernels;
    bool (*runs_here)();
};

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}
#endif

// Best first.
const Candidate kCandidates[] = {
#if defined(__x86_64__)
    {&kernels_avx512, has_avx512},
    {&kernels_avx2, has_avx2},
#endif
    {&kernels_portable, [] { return true; }},
};

const AttentionKernels *find(const std::string &name) {
    bool known = false;
    for (const Candidate &candidate : kCandidates) {
        const bool asked = name == "auto" || name == candidate.kernels->isa;
        if (asked && candidate.runs_here()) return candidate.kernels;
        known = known || asked;
    }
    throw ArgumentError("isa is \"" + name + "\", " +
                        (known ? "which this machine lacks" : "must be auto, avx512, avx2 or portable"));
}

std::atomic<const AttentionKernels *> selected{nullptr};

} // namespace

const AttentionKernels &kernels() {
    if (selected.load() == nullptr) selected.store(find("auto"));
    return *selected.load();
}

void select_isa(const char *name) { selected.store(find(name == nullptr ? "auto" : name)); }

} // namespace octavo

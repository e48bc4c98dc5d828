#include "dispatch.h"

#include <atomic>
#include <string>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "requirements.h"

namespace octavo {
namespace {

constexpr const char *kNames[kNumIsas] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__linux__) && defined(__x86_64__)
// Linux lets a process use tiles once it has asked, for all of its threads.
bool tiles_permitted() {
    constexpr long kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;              // XFEATURE_XTILEDATA
    static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    return permitted;
}
#else
bool tiles_permitted() { return false; }
#endif

#if defined(__x86_64__)
bool adds(Isa isa) {
    switch (isa) {
    case Isa::portable:
        return true;
    case Isa::avx2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    case Isa::avx512_bf16:
        return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    case Isa::amx:
        return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") && tiles_permitted();
    }
    return false;
}
#else
bool adds(Isa isa) { return isa == Isa::portable; }
#endif

Isa best_here() {
    Isa best = Isa::portable;
    for (int index = 0; index < kNumIsas; ++index)
        if (runs_here(static_cast<Isa>(index))) best = static_cast<Isa>(index);
    return best;
}

Isa find(const std::string &name) {
    if (name == "auto") return best_here();
    for (int index = 0; index < kNumIsas; ++index) {
        if (name != kNames[index]) continue;
        if (runs_here(static_cast<Isa>(index))) return static_cast<Isa>(index);
        throw ArgumentError("isa is \"" + name + "\", which this machine lacks");
    }
    throw ArgumentError("isa is \"" + name + "\", must be auto, amx, avx512_bf16, avx512, avx2 or portable");
}

std::atomic<Isa> &selected() {
    static std::atomic<Isa> isa{best_here()};
    return isa;
}

} // namespace

bool runs_here(Isa isa) {
    for (int index = 0; index <= static_cast<int>(isa); ++index)
        if (!adds(static_cast<Isa>(index))) return false;
    return true;
}

Isa selected_isa() { return selected().load(); }

void select_isa(const char *name) { selected().store(find(name == nullptr ? "auto" : name)); }

const char *isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

} // namespace octavo

// Which instruction set is used, and which of a family's kernel tables that means.
//
// A family is one kernel source compiled once per instruction set, each time into one table of functions. Not every
// family has a table for every set: it runs on the best that it has at or below the selected one.
#pragma once

namespace octavo {

// Each includes those before it. avx512 is F, VL, BW and DQ; avx512_bf16 adds dot products of
// bfloat16 and of bytes (VNNI), amx tiles of bfloat16.
enum class Isa { portable, avx2, avx512, avx512_bf16, amx };

constexpr int kNumIsas = 5;

// The best that this machine has, unless another was selected.
Isa selected_isa();

// "auto" or a name of isa_name. Throws ArgumentError for one that is unknown or that this machine lacks.
void select_isa(const char *name);

const char *isa_name(Isa isa);

// Whether this machine, and for amx its operating system, runs such instructions.
bool runs_here(Isa isa);

// A family's tables by instruction set, null where it has none; there is always a portable one.
template <class Kernels> using KernelTables = const Kernels *const[kNumIsas];

// The best table at or below `isa`.
template <class Kernels> const Kernels &best_of(const KernelTables<Kernels> &tables, Isa isa) {
    int index = static_cast<int>(isa);
    while (tables[index] == nullptr) --index;
    return *tables[index];
}

} // namespace octavo

// AVX-512 in emulation, with its dot products of bytes.
#pragma once

#include "emulated_avx512.h"

#undef __AVX512VNNI__
#define __AVX512VNNI__ 1

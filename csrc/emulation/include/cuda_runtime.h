// The calls of the CUDA runtime that our launchers make, on the host: memory is the process's, and all that a stream is
// given happens at once.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

using cudaStream_t = struct OctavoStream *;
using cudaEvent_t = struct OctavoEvent *;

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaEventDisableTiming = 2;

inline const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

inline cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t num_bytes, cudaMemcpyKind,
                                   cudaStream_t) {
    std::memcpy(destination, source, num_bytes);
    return cudaSuccess;
}

template <class T> cudaError_t cudaMallocAsync(T **memory, size_t num_bytes, cudaStream_t) {
    *memory = static_cast<T *>(std::malloc(num_bytes));
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void *memory, cudaStream_t) {
    std::free(memory);
    return cudaSuccess;
}

template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) { return cudaSuccess; }

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }

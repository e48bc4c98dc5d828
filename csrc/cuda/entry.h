// Around every C entry point: check the arguments, hand the work over, turn exceptions into statuses.
#pragma once

#include <stdexcept>

#include "octavo_cuda.h"
#include "runtime.h"

namespace octavo::cuda {

// A call of the CUDA runtime failed.
class DeviceError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws DeviceError, with `what` was tried, unless the runtime's call succeeded.
void require(cudaError_t status, const char *what);

// Keeps the message for octavo_last_error and returns the status of the exception being handled.
int32_t status_of_exception();

template <class Function> int32_t guarded(Function function) {
    try {
        function();
        return OCTAVO_OK;
    } catch (...) {
        return status_of_exception();
    }
}

inline cudaStream_t stream_of(octavo_cuda_stream stream) { return static_cast<cudaStream_t>(stream); }

} // namespace octavo::cuda

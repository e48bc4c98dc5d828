#include "entry.h"

#include <new>
#include <string>

#include "requirements.h"

namespace octavo::cuda {
namespace {

thread_local std::string last_error;

} // namespace

void require(cudaError_t status, const char *what) {
    if (status != cudaSuccess) throw DeviceError(std::string(what) + " failed: " + cudaGetErrorString(status));
}

int32_t status_of_exception() {
    try {
        throw;
    } catch (const ArgumentError &error) {
        last_error = error.what();
        return OCTAVO_INVALID_ARGUMENT;
    } catch (const DeviceError &error) {
        last_error = error.what();
        return OCTAVO_DEVICE_ERROR;
    } catch (const std::bad_alloc &) {
        last_error = "out of memory";
        return OCTAVO_OUT_OF_MEMORY;
    } catch (const std::exception &error) { // the emulation's faults
        last_error = error.what();
        return OCTAVO_DEVICE_ERROR;
    }
}

} // namespace octavo::cuda

int32_t octavo_abi_version(void) { return OCTAVO_ABI_VERSION; }

const char *octavo_last_error(void) { return octavo::cuda::last_error.c_str(); }

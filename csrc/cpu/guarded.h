// How C entry points turn exceptions into statuses.
#pragma once

#include <cstdint>
#include <new>
#include <string>

#include "octavo.h"
#include "requirements.h"

namespace octavo {

// What octavo_last_error answers on this thread from now on.
void set_last_error(const std::string &message);

template <class Function> int32_t guarded(Function function) {
    try {
        function();
        return OCTAVO_OK;
    } catch (const ArgumentError &error) {
        set_last_error(error.what());
        return OCTAVO_INVALID_ARGUMENT;
    } catch (const std::bad_alloc &) {
        set_last_error("out of memory");
        return OCTAVO_OUT_OF_MEMORY;
    }
}

} // namespace octavo

// Single demands on arguments; each message names the argument, its value and the limit.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo {

// Names the argument, its value and the limit.
class ArgumentError : public std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

inline std::string at(const char *name, int64_t index) { return std::string(name) + "[" + std::to_string(index) + "]"; }

[[noreturn]] inline void refuse(const std::string &name, int64_t value, const std::string &limit) {
    throw ArgumentError(name + " is " + std::to_string(value) + ", must be " + limit);
}

inline void require_range(const std::string &name, int64_t value, int64_t first, int64_t last) {
    if (value < first || value > last) refuse(name, value, "in " + std::to_string(first) + ".." + std::to_string(last));
}

inline void require_positive(const char *name, int64_t value) {
    if (value < 1) refuse(name, value, "at least 1");
}

inline void require_multiple(const char *name, int64_t value, int64_t factor) {
    if (value < 1 || value % factor != 0) refuse(name, value, "a positive multiple of " + std::to_string(factor));
}

inline void require_pointer(const char *name, const void *pointer, int64_t count) {
    if (pointer == nullptr && count > 0) throw ArgumentError(std::string(name) + " is null");
}

} // namespace octavo

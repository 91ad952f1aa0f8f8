// Writes floats as JSON text, with the fewest digits that parse back to the same 32-bit float. Pure; any thread.
#include "shim.h"

#include <charconv>

extern "C" int64_t llamad_floats_json(const float *values, int64_t n, char *out) {
    char *at = out;
    *at++ = '[';
    for (int64_t i = 0; i < n; i++) {
        if (i) *at++ = ',';
        at = std::to_chars(at, at + LLAMAD_FLOAT_CHARS, values[i]).ptr;
    }
    *at++ = ']';
    return at - out;
}

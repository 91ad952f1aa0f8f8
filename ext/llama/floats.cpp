// Numbers as JSON text: the shortest digits that give the same 32-bit float back. Pure; any thread.
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

// Keeps C++ exceptions away from callers that are not C++: a function in which llama.cpp may throw runs its body here.
#pragma once

#include "shim.h"

#include <exception>

// Runs `body` and returns its result. After an exception it returns `failed`, and llamad_last_error() has the text.
template <typename R, typename F> R guarded(R failed, F body) {
    try {
        return body();
    } catch (const std::exception &e) {
        llamad_remember_error(e.what());
    } catch (...) {
        llamad_remember_error("unknown C++ exception");
    }
    return failed;
}

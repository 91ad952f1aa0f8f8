// Keeps C++ exceptions out of callers that are not C++: every function that llama.cpp may throw in runs its body here.
#pragma once

#include "shim.h"

#include <exception>

// Runs `body`. Any exception becomes `failed`, and llamad_last_error() has its text.
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

"""Faults inside an engine process, and of the front's event loop: a small library that is loaded before llama.cpp and
does on demand what llama.cpp, a device or the system would do. The program under test is the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llamad._llama import ffi

# What to do is read from a file at every decode, and only in an engine: the front never decodes.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static int wanted(const char *what) {
    const char *path = getenv("FAULT_FILE");
    char text[64] = {0};
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void) n;
    fclose(file);
    return strncmp(text, what, strlen(what)) == 0;
}

extern void llamad_test_throw(void);

/* llama.cpp's libraries come with a Python module, out of RTLD_NEXT's sight. */
static int found(struct dl_phdr_info *info, size_t size, void *path) {
    (void) size;
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name || strncmp(name + 1, ((char **) path)[0], strlen(((char **) path)[0])) != 0) return 0;
    ((const char **) path)[1] = info->dlpi_name;
    return 1;
}

static void *symbol(const char *library, const char *name) {
    const char *path[2] = {library, NULL};
    dl_iterate_phdr(found, path);
    void *handle = path[1] ? dlopen(path[1], RTLD_NOW | RTLD_NOLOAD) : NULL;
    return handle ? dlsym(handle, name) : NULL;
}

typedef void (*abort_fn)(const char *file, int line, const char *fmt, ...);

struct batch { int32_t n_tokens; void *p[6]; };
int32_t llama_decode(void *ctx, struct batch b) {
    static int32_t (*real)(void *, struct batch);
    if (!real) real = (int32_t (*)(void *, struct batch)) symbol("libllama.so", "llama_decode");
    if (wanted("abort")) {
        abort_fn stop = (abort_fn) symbol("libggml-base.so", "ggml_abort");
        stop("device.cpp", 42, "a fault of the device");
    }
    if (wanted("throw")) llamad_test_throw();
    if (wanted("segv")) *(volatile int *) 8 = 1;
    if (wanted("hang")) for (;;) pause();
    if (wanted("lost")) return -3;
    return real(ctx, b);
}

/* A device that is lost does not come back for a new context. */
struct params { uint64_t words[PARAMS_BYTES / 8]; };
void *llama_init_from_model(void *model, struct params p) {
    static void *(*real)(void *, struct params);
    if (!real) real = (void *(*)(void *, struct params)) symbol("libllama.so", "llama_init_from_model");
    return wanted("lost") ? NULL : real(model, p);
}

/* The front's event loop stands still. Engines have none. */
int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask) {
    static int (*real)(int, struct epoll_event *, int, int, const sigset_t *);
    if (!real) real = (int (*)(int, struct epoll_event *, int, int, const sigset_t *)) dlsym(RTLD_NEXT, "epoll_pwait");
    while (wanted("stand-still")) usleep(10000);
    return real(fd, events, n, timeout, mask);
}

int memfd_create(const char *name, unsigned flags) {
    static int (*real)(const char *, unsigned);
    if (!real) real = (int (*)(const char *, unsigned)) dlsym(RTLD_NEXT, "memfd_create");
    if (wanted("no-memfd")) { errno = EMFILE; return -1; }
    return real(name, flags);
}

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
    static create_fn real;
    if (!real) real = (create_fn) dlsym(RTLD_NEXT, "pthread_create");
    if (wanted("no-threads")) return EAGAIN;
    return real(t, a, f, arg);
}
"""
THROW = r"""
#include <stdexcept>
extern "C" void llamad_test_throw(void) { throw std::runtime_error("a fault of llama.cpp"); }
"""


class Faults:
    """`set` says what the next decode does; an empty text is no fault."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("c++") or shutil.which("g++")
        if compiler is None:
            pytest.skip("there is no C++ compiler to build the faults with")
        self._file = folder / "fault"
        library = folder / "faults.so"
        (folder / "faults.c").write_text(SOURCE)
        (folder / "throw.cpp").write_text(THROW)
        n_bytes = ffi.sizeof("struct llama_context_params")
        flags = ["-fPIC", "-O1", "-fexceptions", f"-DPARAMS_BYTES={n_bytes}"]
        subprocess.run(["cc", "-c", *flags, "faults.c", "-o", "faults.o"], cwd=folder, check=True)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "faults.o", "throw.cpp", "-o", str(library), "-ldl"],
            cwd=folder,
            check=True,
        )
        self.env = {"LD_PRELOAD": str(library), "FAULT_FILE": str(self._file)}
        self.set("")

    def set(self, what: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(what)
        os.replace(new, self._file)

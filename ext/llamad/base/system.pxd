# The declarations of system.h: atomics, clock, wake-ups.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "llamad/base/system.h" nogil:
    uint64_t load_acquire(const uint64_t *p) noexcept
    void store_release(uint64_t *p, uint64_t v) noexcept
    uint32_t load_word(const uint32_t *p) noexcept
    void copy_once(void *to, const void *source, size_t n) noexcept
    int32_t load_int(const int32_t *p) noexcept
    void store_int(int32_t *p, int32_t v) noexcept
    int32_t fetch_add_int(int32_t *p, int32_t v) noexcept
    int64_t load_time(const int64_t *p) noexcept
    void store_time(int64_t *p, int64_t v) noexcept
    int32_t take_int(int32_t *p) noexcept
    int swap_int(int32_t *p, int32_t old, int32_t new) noexcept
    int64_t take_time(int64_t *p) noexcept
    int64_t now_us() noexcept
    int wake_open() noexcept
    int dup_cloexec(int fd) noexcept
    void wake_send(int fd) noexcept
    void wake_clear(int fd) noexcept
    void wake_wait(int fd, int timeout_ms) noexcept
    void futex_wait(const int32_t *p, int32_t seen, int64_t timeout_us) noexcept
    void futex_wake_all(const int32_t *p) noexcept
    void relax() noexcept
    void be_punctual() noexcept
    void be_brief() noexcept
    int sched_yield() noexcept
    void be_nice(int niceness) noexcept
    void sleep_us(int64_t us) noexcept
    int close(int fd) noexcept

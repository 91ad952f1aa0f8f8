/* Small functions that Cython cannot express: atomics, a monotonic clock, eventfd waits.
 * Owns: nothing. Any thread. */
#ifndef LLAMAD_SYSTEM_H
#define LLAMAD_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Tests map both sides of a ring in one process. ThreadSanitizer then sees two addresses and no order between them, so
 * it is told about one address that all modules know. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define TSAN_ACQUIRE() __tsan_acquire((void *) &environ)
#define TSAN_RELEASE() __tsan_release((void *) &environ)
#else
#define TSAN_ACQUIRE() ((void) 0)
#define TSAN_RELEASE() ((void) 0)
#endif

/* For a ring's cursors. */
static inline uint64_t load_acquire(const uint64_t *p) {
    const uint64_t v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    TSAN_ACQUIRE();
    return v;
}

static inline void store_release(uint64_t *p, uint64_t v) {
    TSAN_RELEASE();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Reads memory that another process may change meanwhile. It reads exactly once, so that the checked value is used. */
static inline uint32_t load_word(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void copy_once(void *to, const void *from, size_t n) {
    memcpy(to, from, n);
    __asm__ volatile("" ::: "memory"); /* otherwise the compiler may read `from` again instead of the copy */
}

static inline int32_t load_int(const int32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store_int(int32_t *p, int32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int32_t fetch_add_int(int32_t *p, int32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline int64_t load_time(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store_time(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int32_t take_int(int32_t *p) { return __atomic_exchange_n(p, 0, __ATOMIC_ACQ_REL); }
/* Makes *p `to` if it is `from`, and returns whether it was. */
static inline int swap_int(int32_t *p, int32_t from, int32_t to) {
    return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline int64_t take_time(int64_t *p) { return __atomic_exchange_n(p, 0, __ATOMIC_ACQ_REL); }

static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline int wake_open(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }

static inline int dup_cloexec(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

static inline void wake_send(int fd) {
    uint64_t one = 1;
    ssize_t done = write(fd, &one, sizeof one);
    (void) done; /* EAGAIN: it is readable already */
}

static inline void wake_clear(int fd) {
    uint64_t n;
    ssize_t done = read(fd, &n, sizeof n);
    (void) done;
}

/* Waits until fd is readable or timeout_ms has passed (-1: no limit), then clears it. */
static inline void wake_wait(int fd, int timeout_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, timeout_ms) > 0) wake_clear(fd);
}

/* Waits until *p is no longer `seen`, for a wake-up, or for timeout_us (-1: no limit). It may also return early. */
static inline void futex_wait(const int32_t *p, int32_t seen, int64_t timeout_us) {
    struct timespec t = {timeout_us / 1000000, (timeout_us % 1000000) * 1000};
    syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, seen, timeout_us < 0 ? 0 : &t, 0, 0);
}

static inline void futex_wake_all(const int32_t *p) { syscall(SYS_futex, p, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0); }

/* Pauses the processor for one round of a spinning loop. */
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Makes timed waits of the calling thread end on time, and not up to 50 µs later. */
static inline void be_punctual(void) { (void) prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); }

/* Asks for quick, short time slices: the calling thread works only for a moment each time it is woken. Linux 6.12 and
 * later then runs it before other threads of its core, without giving it more time in total; older versions ignore it.
 * Threads that it starts do not inherit the setting. */
static inline void be_brief(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER || attributes.runtime_ns == 0) return;
    attributes.flags = 1;           /* SCHED_FLAG_RESET_ON_FORK */
    attributes.runtime_ns = 100000; /* the minimum */
    (void) syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Sets the niceness of the calling thread only, which Linux allows. If the system refuses, only the priority is
 * lost. */
static inline void be_nice(int niceness) { (void) setpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid), niceness); }

static inline void sleep_us(int64_t us) {
    struct timespec t = {us / 1000000, (us % 1000000) * 1000};
    nanosleep(&t, 0);
}

#endif

/* Owns: the express lane's threads and the connections lent to them. A connection comes through a thread's inbox, is
 * served there while its requests are the known one, and goes back through the lane's outbox with whatever was read or
 * is left to write. The threads never see Python and never wait for the event loop.
 *
 * lane_lend(), lane_recall(), lane_take_back(), lane_take_log() and the counters' readers are the event loop's. */
#ifndef LLAMAD_EXPRESS_LANE_H
#define LLAMAD_EXPRESS_LANE_H

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "llamad/express/answer.h"
#include "system.h"

enum {
    LANE_THREADS_MAX = 16,
    LANE_ROUTES_MAX = 8,
    LANE_BOUNDS_MAX = 32,
    LANE_EVENTS = 64,
    LANE_LOG_BYTES = 512 * 1024,
    LANE_LOG_LINE_MAX = 1024,
    LANE_TICK_MS = 500,
    LANE_TICK_BACK = 32, /* resting ones that go back at a time: each costs the event loop some 100 µs */
};

typedef struct Lent {
    struct Lent *next;         /* in the inbox, then among the thread's, then in the outbox */
    struct Lent *previous;     /* among the thread's */
    int fd;                    /* -1: it was closed, because its client left */
    int64_t tag;               /* the event loop's own number */
    Known known;               /* its texts lie behind this struct */
    int64_t t_used_us;
    char *in;                  /* bytes of a request that is not whole, or that goes back */
    size_t n_in;
    char *unsent;              /* of an answer whose client reads too slowly */
    size_t n_unsent;
} Lent;

typedef struct Lane Lane;

/* Written by one thread, read by the event loop; every field is one aligned word. */
typedef struct Counts {
    uint64_t routes[LANE_ROUTES_MAX];
    uint64_t buckets[LANE_BOUNDS_MAX + 1];
    uint64_t total_ns;
    uint64_t n_back;
} Counts;

typedef struct LaneThread {
    Lane *lane;
    pthread_t handle;
    int epoll;
    int wake;
    pthread_mutex_t mutex;     /* inbox and log */
    Lent *inbox;
    int logging;
    char *log;                 /* access lines, each with its line end */
    char *log_spare;           /* the event loop's half of the pair */
    size_t n_log;
    Lent *first;               /* the thread's own from here on */
    Counts counts;
    Desk desk;
    char in[IN_MAX];
} LaneThread;

struct Lane {
    Source source;
    int32_t n_threads;
    int32_t recalled;          /* every connection goes back before its next request */
    int32_t stopping;
    int64_t spin_us;
    int64_t idle_us;
    double bounds[LANE_BOUNDS_MAX];
    int32_t n_bounds;
    uint32_t n_lent;
    int back_fd;               /* readable when something is in the outbox, or a log is half full */
    pthread_mutex_t mutex;     /* outbox */
    Lent *outbox;
    LaneThread *threads[LANE_THREADS_MAX];
};

static inline void count(uint64_t *p, uint64_t n) { __atomic_store_n(p, *p + n, __ATOMIC_RELAXED); }

/* Leaving. */

static inline void lent_part(LaneThread *thread, Lent *lent) {
    if (lent->previous) lent->previous->next = lent->next;
    else thread->first = lent->next;
    if (lent->next) lent->next->previous = lent->previous;
}

static inline void lane_post(Lane *lane, Lent *lent) {
    pthread_mutex_lock(&lane->mutex);
    lent->next = lane->outbox;
    lane->outbox = lent;
    pthread_mutex_unlock(&lane->mutex);
    wake_send(lane->back_fd);
}

static inline void lent_close(LaneThread *thread, Lent *lent) {
    lent_part(thread, lent);
    /* The transport that it came from may not have closed its copy yet, and epoll watches until the last one is. */
    epoll_ctl(thread->epoll, EPOLL_CTL_DEL, lent->fd, NULL);
    close(lent->fd);
    lent->fd = -1;
    lane_post(thread->lane, lent);
}

/* Back to the event loop, with bytes that it shall read first. Where no memory is left for them it is closed. */
static inline void lent_back(LaneThread *thread, Lent *lent, const char *data, size_t n) {
    char *copy = NULL;
    if (n > 0) {
        copy = (char *) malloc(n);
        if (copy == NULL) {
            lent_close(thread, lent);
            return;
        }
        memcpy(copy, data, n);
    }
    free(lent->in);
    lent->in = copy;
    lent->n_in = n;
    epoll_ctl(thread->epoll, EPOLL_CTL_DEL, lent->fd, NULL);
    lent_part(thread, lent);
    count(&thread->counts.n_back, 1);
    lane_post(thread->lane, lent);
}

static inline void lent_free(Lent *lent) {
    free(lent->in);
    free(lent->unsent);
    free(lent);
}

/* Serving. */

/* The access line of the request at the desk. 0: there is no room. */
static inline int lane_write_log(LaneThread *thread, const Known *known, int64_t ns) {
    char line[LANE_LOG_LINE_MAX], *to = line;
    const uint64_t tenths = (uint64_t) (ns + 50000) / 100000;
    const Desk *desk = &thread->desk;
    int fits, wants;
    size_t n;
    if (!thread->logging) return 1;
    to = put_text(to, known->peer.at, known->peer.n);
    *to++ = ' ';
    to = put_text(to, desk->id, desk->n_id);
    *to++ = ' ';
    to = put_text(to, known->shown.at, known->shown.n);
    to = put_text(to, " 200 ", 5);
    to = put_number(to, desk->n_body);
    *to++ = ' ';
    to = put_number(to, tenths / 10);
    *to++ = '.';
    *to++ = (char) ('0' + tenths % 10);
    to = put_text(to, "ms ", 3);
    to = put_text(to, known->key.at, known->key.n);
    *to++ = '\n';
    n = (size_t) (to - line);
    pthread_mutex_lock(&thread->mutex);
    fits = thread->n_log + n <= LANE_LOG_BYTES;
    wants = fits && thread->n_log < LANE_LOG_BYTES / 2 && thread->n_log + n >= LANE_LOG_BYTES / 2;
    if (fits) {
        memcpy(thread->log + thread->n_log, line, n);
        thread->n_log += n;
    }
    pthread_mutex_unlock(&thread->mutex);
    if (wants) wake_send(thread->lane->back_fd);
    return fits;
}

static inline int64_t lane_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Counted before it is sent, so that a client that has its answer finds it in the metrics. */
static inline void lane_count(LaneThread *thread, const Known *known, int64_t ns) {
    const Lane *lane = thread->lane;
    const double seconds = (double) ns * 1e-9;
    int32_t i = 0;
    while (i < lane->n_bounds && lane->bounds[i] < seconds) i++;
    count(&thread->counts.buckets[i], 1);
    count(&thread->counts.total_ns, (uint64_t) ns);
    count(&thread->counts.routes[known->route], 1);
}

/* One whole request. 0: the event loop is to have it, and nothing was sent. */
static inline int lent_serve(LaneThread *thread, Lent *lent, const char *body, size_t n_body, int64_t t_start) {
    size_t n = 0;
    const char *data = answer(&thread->desk, &lent->known, body, n_body, &n);
    int64_t t_end;
    ssize_t sent;
    if (data == NULL) return 0;
    t_end = lane_now_ns();
    if (!lane_write_log(thread, &lent->known, t_end - t_start)) return 0;
    lane_count(thread, &lent->known, t_end - t_start);
    lent->t_used_us = t_end / 1000;
    thread->lane->source.note(thread->lane->source.engine, lent->t_used_us);
    do sent = send(lent->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t) n) {
        free(lent->in);
        lent->in = NULL;
        lent->n_in = 0;
        return 1;
    }
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        lent_close(thread, lent);
        return 1;
    }
    sent = sent < 0 ? 0 : sent;
    lent->unsent = (char *) malloc(n - (size_t) sent);
    if (lent->unsent == NULL) {
        lent_close(thread, lent);
        return 1;
    }
    lent->n_unsent = n - (size_t) sent;
    memcpy(lent->unsent, data + sent, lent->n_unsent);
    lent_back(thread, lent, NULL, 0);
    return 1;
}

/* Keeps the beginning of a request. */
static inline int lent_keep(Lent *lent, const char *data, size_t n) {
    char *more = (char *) realloc(lent->in, n);
    if (more == NULL) return 0;
    memcpy(more, data, n);
    lent->in = more;
    lent->n_in = n;
    return 1;
}

static inline void lent_on_readable(LaneThread *thread, Lent *lent, uint32_t events) {
    Lane *lane = thread->lane;
    char *in = thread->in;
    const char *body;
    size_t n = lent->n_in, n_body;
    int64_t t_start;
    ssize_t got;
    int found;
    if (n > 0) memcpy(in, lent->in, n);
    got = recv(lent->fd, in + n, IN_MAX - n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got < 0 || (got == 0 && n == 0)) {
        lent_close(thread, lent);
        return;
    }
    t_start = lane_now_ns();
    n += (size_t) got;
    found = match(&lent->known, in, n, lane->source.body_max, &body, &n_body);
    /* A client that has closed its side, or whose request is not whole when it does, is judged by the event loop. */
    if (found == MATCH_OTHER || got == 0 || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) || load_int(&lane->recalled)) {
        lent_back(thread, lent, in, n);
    } else if (found == MATCH_MORE) {
        if (lent->n_in == 0) lent->t_used_us = t_start / 1000;
        if (!lent_keep(lent, in, n)) lent_back(thread, lent, in, n);
    } else if (!lent_serve(thread, lent, body, n_body, t_start)) {
        lent_back(thread, lent, in, n);
    }
}

/* The threads. */

static inline void thread_take_inbox(LaneThread *thread) {
    Lent *lent, *next;
    wake_clear(thread->wake);
    pthread_mutex_lock(&thread->mutex);
    lent = thread->inbox;
    thread->inbox = NULL;
    pthread_mutex_unlock(&thread->mutex);
    for (; lent != NULL; lent = next) {
        struct epoll_event event;
        event.events = EPOLLIN | EPOLLRDHUP;
        event.data.ptr = lent;
        next = lent->next;
        lent->previous = NULL;
        lent->next = thread->first;
        if (thread->first) thread->first->previous = lent;
        thread->first = lent;
        if (epoll_ctl(thread->epoll, EPOLL_CTL_ADD, lent->fd, &event) != 0) lent_back(thread, lent, NULL, 0);
    }
}

/* Those that rest, or whose request does not become whole, since before this time; so many at most. */
static inline void thread_send_back(LaneThread *thread, int64_t before_us, int32_t n_most) {
    Lent *lent, *next;
    for (lent = thread->first; lent != NULL && n_most > 0; lent = next) {
        next = lent->next;
        if (lent->t_used_us < before_us) {
            n_most--;
            char *in = lent->in;
            lent->in = NULL;
            lent_back(thread, lent, in, lent->n_in);
            free(in);
        }
    }
}

static inline void *thread_main(void *arg) {
    LaneThread *thread = (LaneThread *) arg;
    Lane *lane = thread->lane;
    struct epoll_event events[LANE_EVENTS];
    int64_t t_tick = now_us(), t_event = 0, now;
    int n, i, woken, timeout_ms;
    be_brief();
    while (!load_int(&lane->stopping)) {
        timeout_ms = thread->first == NULL ? -1 : LANE_TICK_MS;
        n = 0;
        if (lane->spin_us > 0 && thread->first != NULL) {
            /* A thread that sleeps takes its time to wake up; the next request is likely to be close. */
            while ((n = epoll_wait(thread->epoll, events, LANE_EVENTS, 0)) == 0 && now_us() - t_event < lane->spin_us)
                relax();
        }
        if (n <= 0) n = epoll_wait(thread->epoll, events, LANE_EVENTS, timeout_ms);
        woken = 0;
        for (i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) woken = 1;
            else lent_on_readable(thread, (Lent *) events[i].data.ptr, events[i].events);
        }
        if (woken) thread_take_inbox(thread);
        now = now_us();
        if (n > 0) t_event = now;
        if (load_int(&lane->recalled)) {
            thread_send_back(thread, INT64_MAX, INT32_MAX);
        } else if (now - t_tick >= LANE_TICK_MS * 1000) {
            t_tick = now;
            thread_send_back(thread, now - lane->idle_us, LANE_TICK_BACK);
        }
    }
    thread_take_inbox(thread);
    thread_send_back(thread, INT64_MAX, INT32_MAX);
    return NULL;
}

static inline void thread_free(LaneThread *thread) {
    pthread_mutex_destroy(&thread->mutex);
    if (thread->epoll >= 0) close(thread->epoll);
    if (thread->wake >= 0) close(thread->wake);
    free(thread->log);
    free(thread->log_spare);
    free(thread->desk.text);
    free(thread->desk.out);
    free(thread);
}

/* One more thread; 0 where the system has none. `prefix` begins its request ids. */
static inline int lane_add_thread(Lane *lane, const char *prefix, int logging) {
    LaneThread *thread = (LaneThread *) calloc(1, sizeof *thread);
    struct epoll_event event;
    if (thread == NULL) return 0;
    thread->lane = lane;
    thread->desk.source = &lane->source;
    memcpy(thread->desk.id, prefix, ID_PREFIX);
    pthread_mutex_init(&thread->mutex, NULL);
    thread->epoll = epoll_create1(EPOLL_CLOEXEC);
    thread->wake = wake_open();
    thread->logging = logging;
    if (logging) {
        thread->log = (char *) malloc(LANE_LOG_BYTES);
        thread->log_spare = (char *) malloc(LANE_LOG_BYTES);
    }
    event.events = EPOLLIN;
    event.data.ptr = NULL;
    if (thread->epoll < 0 || thread->wake < 0 || (logging && !(thread->log && thread->log_spare)) ||
        epoll_ctl(thread->epoll, EPOLL_CTL_ADD, thread->wake, &event) != 0 ||
        pthread_create(&thread->handle, NULL, thread_main, thread) != 0) {
        thread_free(thread);
        return 0;
    }
    lane->threads[lane->n_threads++] = thread;
    return 1;
}

/* For the event loop. */

/* Without threads; NULL where memory or descriptors are used up. */
static inline Lane *lane_open(void) {
    Lane *lane = (Lane *) calloc(1, sizeof *lane);
    if (lane == NULL) return NULL;
    lane->back_fd = wake_open();
    if (lane->back_fd < 0) {
        free(lane);
        return NULL;
    }
    pthread_mutex_init(&lane->mutex, NULL);
    return lane;
}

static inline void lane_wake_all(Lane *lane) {
    int32_t i;
    for (i = 0; i < lane->n_threads; i++) wake_send(lane->threads[i]->wake);
}

static inline void lane_recall(Lane *lane) {
    store_int(&lane->recalled, 1);
    lane_wake_all(lane);
}

/* Ends the threads. Afterwards every connection is in the outbox, and the counts and logs stay readable. */
static inline void lane_stop(Lane *lane) {
    int32_t i;
    if (load_int(&lane->stopping)) return;
    store_int(&lane->recalled, 1);
    store_int(&lane->stopping, 1);
    lane_wake_all(lane);
    for (i = 0; i < lane->n_threads; i++) pthread_join(lane->threads[i]->handle, NULL);
}

/* Gives a connection to the next thread. From here on it is that thread's. */
static inline void lane_lend(Lane *lane, Lent *lent) {
    LaneThread *thread = lane->threads[lane->n_lent++ % (uint32_t) lane->n_threads];
    lent->t_used_us = now_us();
    pthread_mutex_lock(&thread->mutex);
    lent->next = thread->inbox;
    thread->inbox = lent;
    pthread_mutex_unlock(&thread->mutex);
    wake_send(thread->wake);
}

static inline Lent *lane_take_back(Lane *lane) {
    Lent *lent;
    wake_clear(lane->back_fd);
    pthread_mutex_lock(&lane->mutex);
    lent = lane->outbox;
    lane->outbox = NULL;
    pthread_mutex_unlock(&lane->mutex);
    return lent;
}

/* A thread's access lines since the last call; they stay until the next. */
static inline const char *lane_take_log(LaneThread *thread, size_t *n) {
    char *full;
    *n = 0;
    if (!thread->logging) return NULL;
    pthread_mutex_lock(&thread->mutex);
    full = thread->log;
    *n = thread->n_log;
    thread->log = thread->log_spare;
    thread->log_spare = full;
    thread->n_log = 0;
    pthread_mutex_unlock(&thread->mutex);
    return full;
}

static inline void lane_free(Lane *lane) {
    int32_t i;
    Lent *lent, *next;
    lane_stop(lane);
    for (lent = lane->outbox; lent != NULL; lent = next) {
        next = lent->next;
        if (lent->fd >= 0) close(lent->fd);
        lent_free(lent);
    }
    for (i = 0; i < lane->n_threads; i++) thread_free(lane->threads[i]);
    close(lane->back_fd);
    pthread_mutex_destroy(&lane->mutex);
    free(lane);
}

#endif

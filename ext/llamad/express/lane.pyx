# Owns: the express lane's Python face: connections go in, come back, and what was served is told. Called by the event
# loop alone; the threads behind it are lane.h's and never see Python. docs/express.md says how the lane works.
import secrets

from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.engine.core cimport State
from llamad.engine.slots cimport SLOT_IDLE
from llamad.engine.table cimport llamad_table
from llamad.engine.vocab cimport Vocab
from llamad.engine.workers cimport workers_note_guest

cdef extern from "llamad/express/lane.h" nogil:
    """
    #define relaxed_load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
    """
    enum:
        EXPRESS_HEALTH
        EXPRESS_TOKENIZE
        EXPRESS_DETOKENIZE
        HEAD_MAX
        BODY_MAX
        ROOM
        LANE_THREADS_MAX
        LANE_ROUTES_MAX
        LANE_BOUNDS_MAX
        LANE_LOG_LINE_MAX

    ctypedef struct Piece:
        const char *at
        size_t n

    ctypedef struct Known:
        int kind
        int route
        int has_length
        Piece front
        Piece back
        Piece status
        Piece headers
        Piece peer
        Piece shown
        Piece key

    ctypedef struct Source:
        const llamad_table *table
        const void *vocab
        int32_t n_vocab
        int32_t n_slots
        const void *engine
        int32_t (*n_idle)(const void *engine) noexcept
        void (*note)(const void *engine, int64_t now_us) noexcept
        size_t body_max

    ctypedef struct Lent:
        Lent *next
        int fd
        int64_t tag
        Known known
        int64_t t_used_us
        char *in_ "in"
        size_t n_in
        char *unsent
        size_t n_unsent

    ctypedef struct Counts:
        uint64_t routes[8]
        uint64_t buckets[33]
        uint64_t total_ns
        uint64_t n_back

    ctypedef struct LaneThread:
        Counts counts

    ctypedef struct CLane "Lane":
        Source source
        int32_t n_threads
        int64_t spin_us
        int64_t idle_us
        double bounds[32]
        int32_t n_bounds
        int back_fd
        LaneThread *threads[16]

    CLane *lane_open()
    uint64_t relaxed_load(const uint64_t *p)
    int lane_add_thread(CLane *lane, const char *prefix, int logging)
    void lane_lend(CLane *lane, Lent *lent)
    void lane_recall(CLane *lane)
    void lane_stop(CLane *lane)
    void lane_free(CLane *lane)
    Lent *lane_take_back(CLane *lane)
    const char *lane_take_log(LaneThread *thread, size_t *n)
    void lent_free(Lent *lent)

HEALTH = EXPRESS_HEALTH
TOKENIZE = EXPRESS_TOKENIZE
DETOKENIZE = EXPRESS_DETOKENIZE
ROUTES_MAX = LANE_ROUTES_MAX
# Of the lines around an answer's length and id, beside what the event loop gives.
cdef enum:
    HEAD_SPARE = 128
    LINE_SPARE = 128


cdef int32_t _n_idle(const void *engine) noexcept nogil:
    """As Core.n_idle(): slots are the engine thread's, and each state is one word."""
    cdef const State *state = <const State *>engine
    cdef int32_t i, n = 0
    if state.stats.is_failed:
        return -1
    for i in range(state.slots.n):
        n += state.slots.items[i].state == SLOT_IDLE
    return n


cdef int32_t _no_engine(const void *engine) noexcept nogil:
    return -1


cdef void _note(const void *engine, int64_t now) noexcept nogil:
    """The sampler threads leave cores to the lane's while these have much to do."""
    if engine != NULL:
        workers_note_guest((<const State *>engine).workers, now)


cdef char *_put(Piece *piece, char *to, bytes text):
    cdef size_t n = <size_t>PyBytes_GET_SIZE(text)
    memcpy(to, PyBytes_AS_STRING(text), n)
    piece.at = to
    piece.n = n
    return to + n


cdef class Lane:
    """When `fd` is readable, call take_back() and take_log()."""

    cdef CLane *lane
    cdef object _held          # what the threads point into
    cdef Counts _told          # what take_counts() has told already
    cdef readonly bint is_open

    def __cinit__(self, vocab: Vocab, core, *, n_slots: int, n_threads: int, spin_us: int, idle_seconds: float,
                  body_max: int, logging: bool, bounds: tuple) -> None:
        cdef CLane *lane = lane_open()
        cdef uintptr_t engine = core.address if core is not None else 0
        cdef bytes prefix
        cdef int i
        if lane == NULL:
            raise OSError("no memory or descriptors left")
        self.lane = lane
        self._held = (vocab, core)
        lane.source.table = vocab.table
        lane.source.vocab = vocab.handle
        lane.source.n_vocab = vocab.n_vocab
        lane.source.n_slots = n_slots
        lane.source.engine = <const void *>engine
        lane.source.n_idle = _n_idle if core is not None else _no_engine
        lane.source.note = _note
        lane.source.body_max = <size_t>min(body_max, <int>BODY_MAX)
        lane.spin_us = spin_us
        lane.idle_us = <int64_t>(idle_seconds * 1e6)
        if len(bounds) > LANE_BOUNDS_MAX:
            raise ValueError("too many buckets")
        lane.n_bounds = <int32_t>len(bounds)
        for i in range(lane.n_bounds):
            lane.bounds[i] = bounds[i]
        while lane.n_threads < min(<int32_t>n_threads, <int32_t>LANE_THREADS_MAX):
            prefix = secrets.token_hex(6).encode() + b"-"
            if not lane_add_thread(lane, PyBytes_AS_STRING(prefix), logging):
                break
        if lane.n_threads == 0:
            raise OSError("no thread can be started")
        self.is_open = True

    @property
    def fd(self) -> int:
        return self.lane.back_fd

    @property
    def n_threads(self) -> int:
        return self.lane.n_threads

    def lend(self, fd: int, tag: int, kind: int, route: int, front: bytes, back: bytes | None, status: bytes,
             headers: bytes, peer: bytes, shown: bytes, key: bytes) -> bool:
        """Gives a connection to a thread, which owns the descriptor from here on. False: it cannot be taken.

        `front` and `back` are the request's head before and behind its Content-Length's digits (`back` is None where
        it has no body), `status` and `headers` the answer's before the date and from there to its length."""
        cdef Lent *lent
        cdef char *to
        cdef bytes rest = back if back is not None else b""
        cdef Py_ssize_t n_head = len(front) + len(rest), n_reply = len(status) + len(headers)
        cdef Py_ssize_t n_line = len(peer) + len(shown) + len(key)
        if not self.is_open or not front or not 0 <= <int>route < LANE_ROUTES_MAX or n_head > HEAD_MAX:
            return False
        if n_reply > ROOM - HEAD_SPARE or n_line > LANE_LOG_LINE_MAX - LINE_SPARE:
            return False
        lent = <Lent *>calloc(1, sizeof(Lent) + <size_t>(n_head + n_reply + n_line))
        if lent == NULL:
            return False
        lent.fd = fd
        lent.tag = tag
        lent.known.kind = kind
        lent.known.route = route
        lent.known.has_length = back is not None
        to = <char *>lent + sizeof(Lent)
        to = _put(&lent.known.front, to, front)
        to = _put(&lent.known.back, to, rest)
        to = _put(&lent.known.status, to, status)
        to = _put(&lent.known.headers, to, headers)
        to = _put(&lent.known.peer, to, peer)
        to = _put(&lent.known.shown, to, shown)
        _put(&lent.known.key, to, key)
        lane_lend(self.lane, lent)
        return True

    def take_back(self) -> list[tuple[int, int, bytes, bytes, float]]:
        """(descriptor, tag, bytes read, bytes left to write, when last used) of each that came back. A descriptor of -1:
        its client left, and it is closed."""
        cdef Lent *lent = lane_take_back(self.lane)
        cdef Lent *next
        out = []
        while lent != NULL:
            next = lent.next
            out.append((lent.fd, lent.tag, PyBytes_FromStringAndSize(lent.in_, <Py_ssize_t>lent.n_in),
                        PyBytes_FromStringAndSize(lent.unsent, <Py_ssize_t>lent.n_unsent), lent.t_used_us / 1e6))
            lent_free(lent)
            lent = next
        return out

    def take_log(self) -> list[str]:
        """The access lines since the last call."""
        cdef const char *text
        cdef size_t n
        cdef int i
        out = []
        for i in range(self.lane.n_threads):
            text = lane_take_log(self.lane.threads[i], &n)
            if n > 0:
                out += text[:n].decode("latin-1").splitlines()
        return out

    def take_counts(self) -> tuple[list[int], list[int], float]:
        """Answers of each route, answers in each bucket of seconds, and the seconds' sum, since the last call."""
        cdef uint64_t now
        cdef int i
        routes, buckets = [], []
        for i in range(LANE_ROUTES_MAX):
            now = self._sum(<size_t>(<char *>&self._told.routes[i] - <char *>&self._told))
            routes.append(now - self._told.routes[i])
            self._told.routes[i] = now
        for i in range(self.lane.n_bounds + 1):
            now = self._sum(<size_t>(<char *>&self._told.buckets[i] - <char *>&self._told))
            buckets.append(now - self._told.buckets[i])
            self._told.buckets[i] = now
        now = self._sum(<size_t>(<char *>&self._told.total_ns - <char *>&self._told))
        seconds = (now - self._told.total_ns) / 1e9
        self._told.total_ns = now
        return routes, buckets, seconds

    cdef uint64_t _sum(self, size_t offset):
        """A counter over all threads."""
        cdef uint64_t n = 0
        cdef int i
        for i in range(self.lane.n_threads):
            n += relaxed_load(<const uint64_t *>(<char *>&self.lane.threads[i].counts + offset))
        return n

    @property
    def n_back(self) -> int:
        """Connections that came back, ever."""
        return self._sum(<size_t>(<char *>&self._told.n_back - <char *>&self._told))

    def recall(self) -> None:
        """Answers may differ from now on: no further request is served here, and every connection comes back."""
        self.is_open = False
        lane_recall(self.lane)

    def stop(self) -> None:
        """Ends the threads; take_back() and take_log() then have the last of everything."""
        self.is_open = False
        with nogil:
            lane_stop(self.lane)

    def __dealloc__(self) -> None:
        if self.lane != NULL:
            with nogil:
                lane_free(self.lane)

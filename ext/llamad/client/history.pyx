# Owns: what a task has generated so far, as far as another engine needs it to go on: its tokens, and where its sampler and
# its text were after the last event. Made and used on the event loop. The events come from an engine that may have been
# taken over, so nothing of them is used unchecked.
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.client.text_event cimport TextEvent
from llamad.protocol.messages cimport MarkHead, ResumePoint, TokenProb

# The beginning of TextEvent.point; the draws of each xtc follow.
ctypedef struct Point:
    int32_t n_ahead
    int32_t n_kept
    int32_t n_discarded
    MarkHead mark


cdef Point _point(TextEvent event):
    """Return where another engine would go on after this event, which may be None."""
    cdef Point point
    memset(&point, 0, sizeof(Point))
    if event is not None and PyBytes_GET_SIZE(event.point) >= <Py_ssize_t>sizeof(Point):
        memcpy(&point, PyBytes_AS_STRING(event.point), sizeof(Point))
    return point


cdef bytes _sent(History history):
    return PyBytes_FromStringAndSize(<const char *>history.tokens, history.n_tokens * <Py_ssize_t>sizeof(int32_t))


cdef class History:
    def __dealloc__(self) -> None:
        free(self.tokens)

    def add(self, TextEvent event not None) -> None:
        """Add the task's next event."""
        cdef Py_ssize_t n = len(event.tokens)
        cdef void *more
        cdef int32_t token
        if self.n_tokens + n > self.n_max:
            more = realloc(self.tokens, <size_t>(2 * (self.n_tokens + n) + 64) * sizeof(int32_t))
            if more == NULL:
                raise MemoryError("no memory for the tokens of a task")
            self.tokens = <int32_t *>more
            self.n_max = 2 * (self.n_tokens + n) + 64
        for token in event.tokens:
            self.tokens[self.n_tokens] = token
            self.n_tokens += 1
        self.n_bytes += PyBytes_GET_SIZE(event.data)
        self.last = event

    @property
    def n_drawn(self) -> int:
        """How many tokens were drawn, as far as the front knows."""
        return self.n_tokens + max(0, _point(self.last).n_ahead)

    @property
    def can_go_on(self) -> bool:
        """Whether another engine can continue from here: not after the last text, whose task has only to end."""
        return _point(self.last).n_ahead >= 0

    cdef bytes fill(self, ResumePoint *resume, int32_t n_probs):
        """Set where the task goes on; it must have drawn a token. Return what its command carries for that: the tokens,
        and the probabilities of those that were held back. Raises ValueError."""
        cdef Point point = _point(self.last)
        cdef Py_ssize_t n_ahead = 4 * point.n_ahead
        cdef Py_ssize_t n_rows = point.n_ahead * (1 + n_probs) * <Py_ssize_t>sizeof(TokenProb) if n_probs else 0
        cdef Py_ssize_t n_mark = PyBytes_GET_SIZE(self.last.point) - 3 * <Py_ssize_t>sizeof(int32_t)
        if (point.n_ahead < 0 or PyBytes_GET_SIZE(self.last.ahead) != n_ahead + n_rows or point.n_kept < 0
                or point.n_discarded < 0 or n_mark > <Py_ssize_t>sizeof(resume.mark)):
            raise ValueError("the task's last event is not where it can go on")
        resume.n_bytes_sent = self.n_bytes
        resume.t_prompt_us = self.last.prompt_us
        resume.t_predict_us = self.last.predict_us
        resume.n_drawn = <int32_t>(self.n_tokens + point.n_ahead)
        resume.n_sent = <int32_t>self.n_tokens
        resume.n_cached = self.n_cached
        resume.n_drafted = <int32_t>self.last.n_drafted
        resume.n_accepted = <int32_t>self.last.n_accepted
        resume.n_kept = point.n_kept
        resume.n_discarded = point.n_discarded
        memcpy(&resume.mark, PyBytes_AS_STRING(self.last.point) + 3 * sizeof(int32_t), <size_t>n_mark)
        return _sent(self) + self.last.ahead

    cdef bytes context(self, bytes prompt):
        """Return the tokens that the next engine prefills: the prompt's and all that were drawn except the last, without
        those that shifts have discarded. Raises ValueError."""
        cdef Point point = _point(self.last)
        whole = prompt + _sent(self) + self.last.ahead[:4 * point.n_ahead]
        whole = whole[:len(whole) - 4]
        if point.n_discarded == 0:
            return whole
        n_gone = 4 * (<int64_t>point.n_kept + point.n_discarded)
        if n_gone >= len(whole):
            raise ValueError("the task's context was shifted by more than it had")
        return whole[:4 * point.n_kept] + whole[n_gone:]

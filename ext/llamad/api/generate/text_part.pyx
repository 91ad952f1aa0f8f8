# Passes a piece of text from the engine's event to the client's connection; this runs for every token of every stream.
# If the engine's events hold several texts of a stream, as with drafts, they are written with one system call.
# Runs on the event loop. The endpoint decides what its events look like; stream_event writes them.
from libc.stdint cimport int64_t

from llamad.api.generate.stream_event cimport TextFrame
from llamad.base.histogram cimport Histogram
from llamad.client.text_event cimport TextEvent
from llamad.http.exchange cimport Exchange
from llamad.http.lifetime cimport monotonic


cdef class TextPart:
    """The compiled base class of CompletionPart, which handles every token. `frame` is set if an event contains nothing
    but text. `held` has the last events if they had tokens but no text; see CompletionPart.hold()."""

    cdef public object job
    cdef public int64_t n_decoded
    cdef public int64_t t_first_us  # when the first token was decoded
    cdef public int64_t t_last_us
    cdef public TextFrame frame
    cdef public list held
    cdef bytes _unwritten           # events whose text is followed by another one; None: nothing

    cdef _write(self, bytes event):
        cdef object job = self.job
        cdef Exchange exchange = job.exchange
        if self._unwritten is not None:
            event = self._unwritten + event
            self._unwritten = None
        if exchange.closed or not exchange._begun:
            job.write(event)
            return
        job.t_written = monotonic()
        exchange.write(event)

    def on_text(self, TextEvent text):
        cdef object job = self.job, metrics = job.served.metrics
        cdef bytes event
        cdef bint is_followed = text.is_followed
        cdef Histogram seconds
        cdef int64_t n_new
        if self.n_decoded == 0:
            # Without streaming, many tokens arrive in one event; the first one was decoded when decoding began.
            self.n_decoded = 1
            self.t_first_us = self.t_last_us = text.t_us - text.predict_us
            seconds = metrics.first_token_seconds
            seconds.observe(<double>self.t_last_us / 1e6 - <double>job.exchange.request.t_start)
        n_new = text.n_decoded - self.n_decoded
        if n_new > 0:
            seconds = metrics.token_gap_seconds
            seconds.observe(<double>(text.t_us - self.t_last_us) / 1e6 / <double>n_new, n_new)
        self.n_decoded = text.n_decoded
        self.t_last_us = text.t_us
        if self.held or not text.data:
            text = self.hold(text)
        if text is None or self.frame is None or text.probs:
            if self._unwritten is not None:
                self._write(b"")
            if text is not None:
                self.on_piece(text)
            return
        event = self.frame.of_bytes(text.data, text.tokens)
        if is_followed:
            self._unwritten = event if self._unwritten is None else self._unwritten + event
        else:
            self._write(event)

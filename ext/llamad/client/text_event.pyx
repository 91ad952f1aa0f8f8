# The event that is made for every token of every stream. Made on the event loop, then only read.
from libc.stdint cimport int64_t


cdef class TextEvent:
    """`n_decoded` counts from the task's first token; `prompt_us` is the time of its prefill, `predict_us` the time since
    its first token. `probs` are the tokens' from the first on, or none; tokens cut off with a stop string have none.
    `n_drafted` tokens of the task were drafted so far, and `n_accepted` of them were right. `is_followed` is set if the
    sink gets the task's next text right after this one, before anything else happens. `point` and `ahead` are where
    another engine can go on (history.pyx); only events from an engine have them."""

    def __init__(self, list tokens, bytes data, int64_t n_decoded, int64_t t_us, int64_t prompt_us, int64_t predict_us,
                 list probs, int64_t n_drafted=0, int64_t n_accepted=0, bytes point=b"", bytes ahead=b""):
        self.tokens = tokens
        self.data = data
        self.n_decoded = n_decoded
        self.t_us = t_us
        self.prompt_us = prompt_us
        self.predict_us = predict_us
        self.probs = probs
        self.n_drafted = n_drafted
        self.n_accepted = n_accepted
        self.point = point
        self.ahead = ahead

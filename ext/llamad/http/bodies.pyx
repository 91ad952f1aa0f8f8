# Owns: the budget of all request bodies in flight, in bytes that have come, not in bytes that were announced.
# Runs on the event loop. It only counts: a connection holds and releases, the server decides who gives way.


cdef class Bodies:
    """One per server. A connection's share counts from its body's first byte until the application lets go of the
    body, or the answer ends."""

    def __init__(self, long long bytes_max):
        self.bytes_max = bytes_max

    def resize(self, long long bytes_max) -> None:
        """Another budget. Bodies that exceed it already may come in whole, unless another needs their room."""
        self.bytes_max = bytes_max

    def admit_one(self, long long n_bytes) -> None:
        """Raise the budget, where it is smaller, so that a body of this size fits alone."""
        if n_bytes > self.bytes_max:
            self.bytes_max = n_bytes

    cdef bint is_over(self) noexcept:
        return self.n_bytes > self.bytes_max

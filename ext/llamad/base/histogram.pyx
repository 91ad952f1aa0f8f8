# Owns: the counts of a Prometheus histogram. Runs on the event loop. It is compiled because it counts every token.


cdef class Histogram:
    """A Prometheus histogram: its name, its help text and the upper bounds of its buckets, in ascending order."""

    def __init__(self, str name, str help, tuple bounds):
        if len(bounds) > BOUNDS_MAX:
            raise ValueError(f"at most {BOUNDS_MAX} bounds")
        self.name = name
        self.help = help
        for bound in bounds:
            self._bounds[self._n_bounds] = bound
            self._n_bounds += 1

    cpdef observe(self, double value, long long n=1):
        """Count a value n times."""
        cdef int i = 0
        while i < self._n_bounds and self._bounds[i] < value:
            i += 1
        self._counts[i] += n
        self._total += value * <double>n

    def samples(self):
        """Return the names, labels and values of its lines."""
        cdef long long n = 0
        cdef int i
        lines = []
        for i in range(self._n_bounds):
            n += self._counts[i]
            lines.append((f"{self.name}_bucket", (("le", f"{self._bounds[i]:g}"),), str(n)))
        n += self._counts[self._n_bounds]
        lines.append((f"{self.name}_bucket", (("le", "+Inf"),), str(n)))
        lines.append((f"{self.name}_sum", (), f"{self._total:.9g}"))
        lines.append((f"{self.name}_count", (), str(n)))
        return lines

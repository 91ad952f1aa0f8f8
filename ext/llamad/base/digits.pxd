# Numbers as text in a caller's buffer. printf's way costs as much as the rest of a head.

cdef inline char *put_decimal(char *end, unsigned long long n) noexcept nogil:
    """Writes the digits before `end`; returns the first."""
    while True:
        end -= 1
        end[0] = <char>(48 + n % 10)
        n //= 10
        if n == 0:
            return end


cdef inline char *put_hex(char *end, unsigned long long n, int n_least) noexcept nogil:
    """The same in hex, with at least so many digits."""
    while n_least > 0 or n != 0:
        end -= 1
        end[0] = b"0123456789abcdef"[n & 15]
        n >>= 4
        n_least -= 1
    return end

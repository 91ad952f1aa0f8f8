# Writes numbers as text into a caller's buffer. printf would cost as much as the rest of a response head.

cdef inline char *put_decimal(char *end, unsigned long long n) noexcept nogil:
    """Write the decimal digits so that they end before `end`; return a pointer to the first."""
    while True:
        end -= 1
        end[0] = <char>(48 + n % 10)
        n //= 10
        if n == 0:
            return end


cdef inline char *put_hex(char *end, unsigned long long n, int n_least) noexcept nogil:
    """Write at least n_least hex digits so that they end before `end`; return a pointer to the first."""
    while n_least > 0 or n != 0:
        end -= 1
        end[0] = b"0123456789abcdef"[n & 15]
        n >>= 4
        n_least -= 1
    return end

# Finds stop strings, and holds back their beginnings.
from libc.stdint cimport int32_t

from llamad.tokenizer.detokenizer cimport Text

cdef int32_t stops_scan(Text *text, const char *stops, int32_t n_stop) noexcept nogil

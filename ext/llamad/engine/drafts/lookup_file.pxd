# A table of n-grams that belongs to a file of llama.cpp's format (-lcs, -lcd).
from llamad.engine.drafts.ngram_table cimport NgramTable

cdef class LookupFile:
    cdef NgramTable table
    cdef readonly object path

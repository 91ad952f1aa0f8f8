# Sampling parameters as a Python object.
from llamad.base.function_table cimport llamad_sampling

cdef class ByName:
    cdef object options
    cdef dict others

cdef class Sampling:
    cdef llamad_sampling values

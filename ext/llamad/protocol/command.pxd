# A task as it crosses the ring, but for what each request has for itself.
from llamad.protocol.messages cimport TaskCommand

cdef class Command:
    cdef TaskCommand head
    cdef bytes tail           # what follows the prompt in the record

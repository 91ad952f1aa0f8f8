# The ring record of a task, without its id.
from llamad.protocol.messages cimport TaskCommand

cdef class Command:
    cdef TaskCommand head
    cdef bytes prompt
    cdef bytes tail           # what follows the prompt in the record

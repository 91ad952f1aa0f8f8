# Owns: the class of all drafters, which has nothing but its functions.


cdef class Drafter:
    """Guesses tokens; Core.draft_with() takes it."""

"""Every Python under a sanitizer runs this first: a sanitizer maps terabytes of address space for its own records, so
RLIMIT_AS, with which the program and the tests bound what a child may take, would end the child at its next mmap.
"""

import resource

_setrlimit = resource.setrlimit


def _set_all_but_memory(kind: int, limits: tuple[int, int]) -> None:
    if kind != resource.RLIMIT_AS:
        _setrlimit(kind, limits)


resource.setrlimit = _set_all_but_memory

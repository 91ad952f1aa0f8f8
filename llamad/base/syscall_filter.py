"""Restricts what a child process may ask the kernel for: no new privileges, and a filter of system calls (seccomp).

A child process calls this once, before it sees anything that a client sent; it applies to all of its threads, for good.
The filter is written by hand for x86_64 and aarch64, so that it needs no library.
"""

from __future__ import annotations

import ctypes
import os
import struct

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER = 1
FLAG_TSYNC, FLAG_SPEC_ALLOW = 1, 4
RET_KILL_PROCESS, RET_ERRNO, RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
EPERM = 1
PROT_EXEC = 4
F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS = 1, 2, 3, 1030, 1033, 1034

# For each machine: the kernel's number of the architecture, the column in the tables below, the number of seccomp(2).
MACHINES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}

# The system calls of a process that only computes, and reads and writes descriptors that it has: their numbers on
# x86_64 and on aarch64.
ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "exit": (60, 93),
    "ftruncate": (77, 46),
    "gettimeofday": (96, 169),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
    "memfd_create": (319, 279),
    "membarrier": (324, 283),
    "rseq": (334, 293),
}
# Calls that are allowed unless an argument has certain bits: their numbers, the argument's index, the bits.
WITHOUT_BITS = {"mmap": ((9, 222), 2, PROT_EXEC), "mprotect": ((10, 226), 2, PROT_EXEC)}
# fcntl() is allowed only with these commands.
FCNTL = (72, 25)
FCNTL_COMMANDS = (F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS)
TGKILL = (234, 131)  # abort() sends a signal to its own process

# BPF instructions: load a word, compare, test bits, return.
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16


class FilterError(OSError):
    """The system has no system call filters, or does not let this process install one."""


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


ALLOW = _instruction(RETURN, RET_ALLOW)
DENY = _instruction(RETURN, RET_ERRNO | EPERM)


def _if_equal(value: int, then: bytes) -> bytes:
    return _instruction(EQUAL, value, 0, len(then) // 8) + then


def _argument(index: int) -> bytes:
    """Load the lower half of an argument. The kernel ignores the upper half of the arguments that are checked here."""
    return _instruction(LOAD, ARGUMENTS_AT + 8 * index)


def computing_program(machine: str, pid: int) -> bytes:
    """Return the filter for a process that opens no files, makes no connections and starts no processes. Other calls
    fail with EPERM, so that a library that can do without them goes on."""
    arch, column, _ = MACHINES[machine]
    program = _instruction(LOAD, ARCH_AT) + _instruction(EQUAL, arch, 1, 0)
    program += _instruction(RETURN, RET_KILL_PROCESS) + _instruction(LOAD, NUMBER_AT)
    for numbers in ALLOWED.values():
        program += _if_equal(numbers[column], ALLOW)
    for numbers, index, bits in WITHOUT_BITS.values():
        test = _argument(index) + _instruction(ANY_BIT, bits, 1, 0) + ALLOW + DENY
        program += _if_equal(numbers[column], test)
    commands = b"".join(_if_equal(command, ALLOW) for command in FCNTL_COMMANDS)
    program += _if_equal(FCNTL[column], _argument(1) + commands + DENY)
    program += _if_equal(TGKILL[column], _argument(0) + _if_equal(pid, ALLOW) + DENY)
    return program + DENY


class _Program(ctypes.Structure):
    _fields_ = (("n", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _install(program: bytes, flags: int) -> None:
    """Install the filter for every thread of this process. Raises FilterError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise FilterError(ctypes.get_errno(), "no_new_privs was refused")
    known = MACHINES.get(os.uname().machine)
    if known is None:
        raise FilterError(f"there is no filter for {os.uname().machine}")
    descriptor = _Program(len(program) // 8, program)
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
    result = libc.syscall(known[2], SECCOMP_SET_MODE_FILTER, FLAG_TSYNC | flags, ctypes.byref(descriptor))
    if result == 0:
        return
    # A service manager's own filter may refuse seccomp(). The older prctl() only covers the calling thread.
    pointer = ctypes.cast(ctypes.byref(descriptor), ctypes.c_void_p)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer, 0, 0) != 0:
        raise FilterError(ctypes.get_errno(), "this system refuses filters of system calls (seccomp)")


def only_compute() -> None:
    """Limit this process to its memory and the descriptors that it has: it can open no files or sockets and start no
    processes. Raises FilterError if the filter could not be installed."""
    machine = os.uname().machine
    _install(computing_program(machine, os.getpid()) if machine in MACHINES else b"", 0)


def no_new_privileges() -> None:
    """Keep programs that this process starts from getting more rights than it has. Raises FilterError."""
    # A filter that allows everything, installed with TSYNC, sets the flag in threads that already run, too. Without
    # FLAG_SPEC_ALLOW, older kernels would slow down the process's memory accesses.
    _install(ALLOW, FLAG_SPEC_ALLOW)

"""What a process can still do behind the filter that media decoders have: compute, and use its descriptors."""

import platform
import subprocess
import sys

import pytest

from llamad.base import syscall_filter

BEFORE = """
import array, ctypes, fcntl, mmap, os, signal, socket, subprocess, sys, threading
from llamad.base import sealed_memory, syscall_filter
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
libc = ctypes.CDLL(None, use_errno=True)
def native(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
waiting, results = threading.Event(), []
def beside():
    waiting.wait()
    try:
        os.open("/dev/null", os.O_RDONLY)
    except OSError as error:
        results.append(error.errno)
thread = threading.Thread(target=beside)
thread.start()
syscall_filter.only_compute()
"""


def outcome(after: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEFORE + after + "\nwaiting.set(); thread.join()\n"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


FORBIDDEN = {
    "a file to read": "os.open('/etc/passwd', os.O_RDONLY)",
    "a file to write": "os.open('/tmp/made-behind-a-filter', os.O_WRONLY | os.O_CREAT)",
    "a folder": "os.listdir('/')",
    "a file's name": "os.unlink('/tmp/none')",
    "a socket": "socket.socket()",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "a connection": "ours.connect('/tmp/none')",
    "a process": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "a signal": "os.kill(os.getppid(), 0)",
    "an owner of signals": "fcntl.fcntl(ours, fcntl.F_SETOWN, os.getppid())",
    "code in new memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "limits": "__import__('resource').setrlimit(7, (99, 99))",
}
if platform.machine() == "x86_64":
    FORBIDDEN |= {
        "a thread": "native(56, 0x10f00, 0, 0, 0, 0)",
        "another's memory": "native(310, os.getppid(), 0, 0, 0, 0, 0)",
        "a tracer": "native(101, 16, os.getppid(), 0, 0)",
        "a signal by number": "native(234, os.getppid(), os.getppid(), 0)",
        "a ring of calls": "native(425, 8, 0)",
        "a namespace": "native(272, 0x10000000)",
        "a file by another ABI": "native(0x40000002, b'/etc/passwd', 0)",
    }


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_forbidden(what):
    after = f"""
try:
    {FORBIDDEN[what]}
except (OSError, ValueError) as error:
    print("refused:", error)
else:
    print("done")
"""
    result = outcome(after)
    assert result.stdout.startswith("refused:"), (result.stdout, result.stderr)


def test_what_is_allowed():
    after = """
memory = sealed_memory.create("made")
os.write(memory, b"x" * 100)
sealed_memory.seal(memory, contents=True)
socket.send_fds(ours, [b"here"], [memory])
packet, fds, _, _ = socket.recv_fds(theirs, 100, 1)
assert os.pread(fds[0], 100, 0) == b"x" * 100
assert len(bytes(200_000_000)) == 200_000_000
assert len(os.urandom(8)) == 8
print("done")
"""
    result = outcome(after)
    assert (result.stdout, result.returncode) == ("done\n", 0), result.stderr


def test_threads_that_ran_before_have_the_filter_too():
    after = "waiting.set(); thread.join(); print(results)"
    assert outcome(after).stdout == "[1]\n"


def test_an_abort_is_still_an_abort():
    assert outcome("os.abort()").returncode == -6


@pytest.mark.parametrize("machine", sorted(syscall_filter.MACHINES))
def test_programs_fit_the_kernels_limits(machine):
    program = syscall_filter.computing_program(machine, 1)
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096
    jumps = [program[i + 2 : i + 4] for i in range(0, len(program), 8)]
    for i, (if_true, if_false) in enumerate(jumps[:-1]):
        assert i + 1 + max(if_true, if_false) < len(jumps)


def test_no_new_privileges_for_all_threads():
    command = [sys.executable, "-c", NO_PRIVILEGES]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "['1', '1', '1']\n"


NO_PRIVILEGES = """
import os, threading
from llamad.base import syscall_filter
ending = threading.Event()
for _ in range(2):
    threading.Thread(target=ending.wait).start()
syscall_filter.no_new_privileges()
folder = "/proc/self/task"
states = [open(f"{folder}/{one}/status").read().split("NoNewPrivs:\\t")[1][0] for one in os.listdir(folder)]
print(states)
ending.set()
"""

"""Translates one .pyx to C or C++; if the result is the same as before, the file is not touched. Run by Ninja:

    python translate.py OUTPUT SOURCE CYTHON-OPTIONS...

Cython takes a second to start, so a build starts one Cython process, which forks for each file. It is started with
`--serve FD`, a listening socket; LLAMAD_TRANSLATOR has the path of the socket. Without it each file starts a Cython.
"""

import os
import socket
import sys
import tempfile
from pathlib import Path

SOCKET = "LLAMAD_TRANSLATOR"
SEPARATOR = "\0"
WORDS_MAX = 1 << 16


def translate(output: Path, source: str, options: list[str]) -> int:
    """Translate a file and return the exit status. The files that Cython has read are listed in OUTPUT.dep, in the
    format of a compiler."""
    from Cython.Compiler import Main

    fresh = output.with_name("new-" + output.name)
    listed = fresh.with_name(fresh.name + ".dep")
    sys.argv = ["cython", *options, "--depfile", "-o", str(fresh), source]
    try:
        Main.main(command_line=1)  # type: ignore[no-untyped-call]
    except SystemExit as e:
        if e.code:
            fresh.unlink(missing_ok=True)
            return 1
    _, _, read = listed.read_text(encoding="utf-8").partition(":")
    output.with_name(output.name + ".dep").write_text(f"{output}:{read}", encoding="utf-8")
    listed.unlink()
    if output.is_file() and output.read_bytes() == fresh.read_bytes():
        fresh.unlink()  # the old file keeps its time, so that nothing is compiled again
    else:
        fresh.rename(output)
    return 0


def warm_up() -> None:
    """Let Cython initialize itself. No dependency file is written, because Cython would keep its search path."""
    from Cython.Build import Dependencies  # noqa: F401
    from Cython.Compiler import Main

    with tempfile.TemporaryDirectory(prefix="llamad-") as folder:
        source = Path(folder) / "warm.pyx"
        source.write_text("cdef int f(int a) noexcept nogil: return a\n", encoding="utf-8")
        sys.argv = ["cython", "-3", str(source)]
        Main.main(command_line=1)  # type: ignore[no-untyped-call]


def serve(listener: socket.socket) -> None:
    """Handle one request after the other, each in a child process that shares the initialized Cython."""
    warm_up()
    while True:
        asking, _ = listener.accept()
        if os.fork() == 0:
            if os.fork() == 0:
                _answer(asking)
            os._exit(0)
        os.wait()  # for the first child; nobody waits for the second
        asking.close()


def _answer(asking: socket.socket) -> None:
    status = 1
    try:
        message, outputs, _, _ = socket.recv_fds(asking, WORDS_MAX, 2)
        folder, output, source, *options = message.decode().split(SEPARATOR)
        os.chdir(folder)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        status = translate(Path(output), source, options)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asking.send(bytes([status]))
        os._exit(0)


def ask(path: str, words: list[str]) -> int | None:
    """Let the server translate and return the exit status, or None if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(path)
            socket.send_fds(server, [SEPARATOR.join([os.getcwd(), *words]).encode()], [1, 2])
            status = server.recv(1)
    except OSError:
        return None
    return status[0] if status else None


def main(words: list[str]) -> int:
    if words[0] == "--serve":
        serve(socket.socket(fileno=int(words[1])))
    path = os.environ.get(SOCKET)
    status = ask(path, words) if path else None
    if status is None:
        output, source, *options = words
        status = translate(Path(output), source, options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

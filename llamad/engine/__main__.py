"""Starts the engine process: `python -m llamad.engine`. The front passes descriptors to it, and no arguments."""

from __future__ import annotations

import gc


def main() -> None:
    gc.disable()  # imports make no garbage: the collector would only look through the modules, several times
    from llamad.engine import server

    gc.freeze()  # what was imported stays: the first collection need not look through it
    gc.enable()
    server.end(server.main())


if __name__ == "__main__":
    main()

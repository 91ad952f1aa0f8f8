"""`python vendor/llama.cpp WHAT`: makes one thing ready and prints its path on stdout; `build` makes all that `make`
needs (`build --help`).
Progress and one-line errors go to stderr; exit status 1 means failure, with nothing half-made left behind.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from builder import command  # noqa: E402
from recipe import build, cache, model, report, venv  # noqa: E402


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["build"]:
        return command.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python vendor/llama.cpp", description=__doc__)
    parser.add_argument(
        "what", choices=["venv", "libraries", "peer", "both", "model", "vocabulary", "templates", "key"]
    )
    parser.add_argument("extras", nargs="*", help="with venv: the optional dependencies to install, too")
    parsed = parser.parse_args(arguments)
    makers: dict[str, Callable[[], object]] = {
        "venv": lambda: venv.ensure(CHECKOUT, parsed.extras),
        "libraries": build.libraries,
        "peer": build.peer,
        "both": build.both,
        "model": model.default_model,
        "vocabulary": model.large_vocabulary,
        "templates": model.chat_templates,
        "key": lambda: build.plan(build.LIBRARIES).key,
    }
    signal.signal(signal.SIGTERM, _stop)
    try:
        print(makers[parsed.what]())
    except report.SetupError as e:
        report.say(f"llamad: {e}")
        return 1
    except OSError as e:
        report.say(f"llamad: {cache.disk_full(cache.root()) if report.is_disk_full(e) else e}")
        return 1
    except KeyboardInterrupt:
        report.say("llamad: interrupted; run the same command again to go on")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

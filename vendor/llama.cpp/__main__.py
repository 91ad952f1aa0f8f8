"""`python vendor/llama.cpp WHAT`: fetches or builds something and prints its path on stdout.
Progress and errors of one line go to stderr. Exit status 1 means failure; nothing incomplete is left then.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from recipe import build, command, model

MAKERS: dict[str, Callable[[], object]] = {
    "libraries": build.libraries,
    "peer": build.peer,
    "both": build.both,
    "model": model.default_model,
    "vocabulary": model.large_vocabulary,
    "templates": model.chat_templates,
    "key": lambda: build.plan(build.LIBRARIES).key,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python vendor/llama.cpp", description=__doc__)
    parser.add_argument("what", choices=MAKERS)
    parsed = parser.parse_args(arguments)
    return command.run(lambda: print(MAKERS[parsed.what]()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

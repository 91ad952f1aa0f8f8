"""Renders the table of flags as a completion script for bash.

Runs on the main thread. Must not print.
"""

from __future__ import annotations

from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag, Ready
from llamad.flags.types.kinds import Choice, Many

# Files that end otherwise are not offered.
_ENDINGS = {
    "model": "gguf",
    "grammar_file": "gbnf",
    "chat_template_file": "jinja",
    "json_schema_file": "json",
}


def completion_script() -> str:
    """Flags by name, and after a flag its choices or the files that suit it."""
    names = " ".join(
        name for flag in TABLE.flags if isinstance(flag.status, Ready) for name in flag.names + flag.off
    )
    arms = [arm for flag in TABLE.flags if isinstance(flag.status, Ready) for arm in _arm(flag)]
    return "\n".join(
        [
            "_llamad() {",
            '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
            '    case "$prev" in',
            *arms,
            "    esac",
            f'    COMPREPLY=($(compgen -W "{names}" -- "$cur"))',
            "}",
            "complete -o filenames -F _llamad llamad",
            "",
        ]
    )


def _arm(flag: Flag) -> list[str]:
    """The case of a flag whose values can be listed."""
    kind = flag.kind.item if isinstance(flag.kind, Many) else flag.kind
    if isinstance(kind, Choice):
        found = f'compgen -W "{" ".join(map(str, kind.options))}" -- "$cur"'
    elif kind.is_path:
        ending = _ENDINGS.get(flag.dest)
        found = (
            f'compgen -f -X \'!*.{ending}\' -- "$cur"; compgen -d -- "$cur"'
            if ending
            else 'compgen -f -- "$cur"'
        )
    else:
        return []
    return [
        f"        {'|'.join(flag.names)})",
        f"            COMPREPLY=($({found}))",
        "            return ;;",
    ]

"""Renders the table of flags as a completion script for bash.

Runs on the main thread. Must not print.
"""

from __future__ import annotations

from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag, Ready
from llamad.flags.types.kinds import Choice, Many

# The completion offers only files with this ending.
_ENDINGS = {
    "model": "gguf",
    "grammar_file": "gbnf",
    "chat_template_file": "jinja",
    "json_schema_file": "json",
}


def completion_script() -> str:
    """Return a script that completes the names of flags and, after a flag, its choices or files for it."""
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
    """Return the `case` branch of a flag whose values can be listed, or nothing for other flags."""
    kind = flag.kind.item if isinstance(flag.kind, Many) else flag.kind
    if isinstance(kind, Choice):
        command = f'compgen -W "{" ".join(map(str, kind.options))}" -- "$cur"'
    elif kind.is_path:
        ending = _ENDINGS.get(flag.dest)
        command = (
            f'compgen -f -X \'!*.{ending}\' -- "$cur"; compgen -d -- "$cur"'
            if ending
            else 'compgen -f -- "$cur"'
        )
    else:
        return []
    return [
        f"        {'|'.join(flag.names)})",
        f"            COMPREPLY=($({command}))",
        "            return ;;",
    ]

"""The programs that can be launched, one in each file."""

from llamad.launch.programs import aider, claude, codex, opencode, qwen
from llamad.launch.programs.program import Program

PROGRAMS: dict[str, Program] = {
    one.name: one for one in (claude.PROGRAM, codex.PROGRAM, opencode.PROGRAM, qwen.PROGRAM, aider.PROGRAM)
}

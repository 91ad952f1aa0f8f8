"""The real programs do a task with calls of tools over a daemon; aider, which has no tools, does one with edits.
Skipped where they are not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

import pytest
from support.clients.forced_model import ForcedModel
from support.live_daemon import Live

from bench.sessions import dialects, script
from bench.sessions.command import TEMPLATE
from bench.sessions.recording import Session, record

WITH_TOOLS = ("claude", "codex", "opencode", "qwen")


@pytest.fixture(scope="module")
def server(tiny: str) -> Iterator[Live]:
    flags = ("-np", "2", "-c", "131072", "--chat-template-file", str(TEMPLATE), "-t", "1")
    with Live(*flags, model=tiny) as live:
        yield live


def worked(program: str, server: Live, models: list[ForcedModel]) -> Session:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return record(program, script.SHORT, partial(ForcedModel, server.client, models), n_typed=3)


@pytest.mark.parametrize("program", WITH_TOOLS)
def test_a_task_of_three_calls_ends_well(program: str, server: Live) -> None:
    """It lists the files, writes one and reads it. The script says what the model has to write."""
    models: list[ForcedModel] = []
    session = worked(program, server, models)
    last = session.requests[-1]
    assert dialects.read(last.path, last.body).n_calls == 3
    assert session.files["hello.txt"].strip() == "Hello."
    assert script.DONE in session.said
    assert models[0].refusals == []


def test_aider_does_three_edits(server: Live) -> None:
    """Its user types three messages, and the model answers each with an edit of another file."""
    models: list[ForcedModel] = []
    session = worked("aider", server, models)
    edited = [text for file, text in session.files.items() if text.count("# Turn") == 1]
    assert len(edited) == 3
    assert session.said.count("Applied edit to") == 3
    assert models[0].refusals == []

"""The folders are the architecture: imports point one way, and no folder is too full to look through."""

import subprocess
from collections import Counter
from pathlib import PurePosixPath

import pytest
from support.imports import ROOT, Arrow, arrows, circles, folder, modules

# From the top down: a folder imports only from those below it. Folders on one line know nothing of each other.
LAYERS = """
llamad
llamad.systemd llamad.rpc llamad.launch
llamad.launch.programs
llamad.api
llamad.api.router llamad.api.ollama
llamad.api.native llamad.api.anthropic llamad.api.state llamad.api.vectors
llamad.api.openai
llamad.api.generate
llamad.api.service
llamad.api.request
llamad.models.fleet
llamad.models.catalogue
llamad.models
llamad.models.hub llamad.models.cache_disk
llamad.client llamad.engine llamad.engine.testing
llamad.engine.prefix
llamad.engine.state
llamad.engine.fit
llamad.engine.scheduler llamad.engine.threads llamad.engine.loading llamad.engine.drafts
llamad.engine.cache
llamad.engine.kv
llamad.engine.sampler
llamad.engine.costs
llamad.http.files llamad.logs
llamad.grammar llamad.ses1 llamad.http llamad.chat
llamad.media.decoder llamad.media.encoder
llamad.media llamad.chat.conversion llamad.chat.replay
llamad.chat.parsing
llamad.chat.parsing.formats
llamad.chat.parsing.syntax
llamad.chat.schema llamad.chat.template
llamad.protocol llamad.flags llamad.media.sources
llamad.tokenizer llamad.flags.groups
llamad.flags.types
llamad.options
llamad.base
"""
RANK = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split()}
# The cffi module is beneath everything, and a package's own description belongs to nobody.
FREE = {"llamad._llama", "llamad.__init__"}
FILES_MAX = 30


def counted(arrow: Arrow) -> bool:
    return not FREE & {arrow.source, arrow.target}


ARROWS = sorted(filter(counted, arrows()), key=lambda arrow: (arrow.source, arrow.target))


def test_every_folder_has_its_place():
    assert {folder(name) for name in modules() if name not in FREE} == set(RANK)


def test_no_import_points_up():
    up = [
        f"{arrow.source} imports {arrow.target}"
        for arrow in ARROWS
        if folder(arrow.source) != folder(arrow.target)
        and RANK[folder(arrow.source)] >= RANK[folder(arrow.target)]
    ]
    assert not up, "\n".join(up)


def test_no_modules_import_each_other():
    assert circles({(arrow.source, arrow.target) for arrow in ARROWS}) == []


def test_the_reader_sees_both_languages():
    seen = {(arrow.source, arrow.target) for arrow in ARROWS}
    assert ("llamad.engine.core", "llamad.engine.loop") in seen  # cimport, over two lines or one
    assert ("llamad.daemon", "llamad.api.app") in seen
    assert len(seen) > 500


@pytest.mark.parametrize("top", ["llamad", "ext", "tests"])
def test_no_folder_is_crowded(top):
    listed = subprocess.run(["git", "ls-files", top], cwd=ROOT, capture_output=True, text=True, check=True)
    counts = Counter(str(PurePosixPath(path).parent) for path in listed.stdout.split())
    assert {name: n for name, n in counts.items() if n > FILES_MAX} == {}

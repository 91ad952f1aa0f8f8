"""The settings that an engine gets: all values that it needs, and none of the tables that they came from."""

import subprocess
import sys

import msgspec
import pytest

from llamad.flags import engine_settings
from llamad.flags.parse import parse

FLAGS = ["-m", "x.gguf", "-c", "4096", "--lora", "a=b.gguf", "-ot", "exps=CPU", "--override-kv", "a=int:1"]


@pytest.mark.parametrize("more", [[], ["--embeddings"], ["--spec", "auto"]])
def test_an_engine_gets_the_values_of_its_model(more):
    settings = parse([*FLAGS, *more], {}).settings.model
    received = engine_settings.unpack(engine_settings.pack(settings))
    for name in settings.__struct_fields__:
        if name not in engine_settings.FRONT_ONLY:
            assert getattr(received, name) == getattr(settings, name), name
    for name in engine_settings.PROPERTIES:
        assert getattr(received, name) == getattr(settings, name), name
    assert msgspec.structs.replace(received, n_ctx=512).n_ctx == 512


def test_an_engine_imports_no_table_of_flags_or_options():
    """They would take a fifth of the time that its imports take."""
    data = engine_settings.pack(parse(FLAGS, {}).settings.model)
    code = (
        "import sys, llamad.engine.server\n"
        "from llamad.flags import engine_settings\n"
        "engine_settings.unpack(sys.stdin.buffer.read())\n"
        "print([name for name in sys.modules if name.startswith(('llamad.flags.groups', 'llamad.flags.table',"
        " 'llamad.flags.settings', 'llamad.options.table'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"

"""`llamad check`: what would be served, on what memory, and what would not."""

import json
import re
import subprocess
import sys

import pytest
from support.live_daemon import Live
from support.models.tiny_adapters import pairs, write_adapter, write_lora

MIB = 1 << 20


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", "check", *arguments], capture_output=True, text=True, timeout=60
    )


def test_the_report_agrees_with_what_the_server_does(tiny):
    """llama.cpp logs what it really allocates."""
    flags = ("-np", "2", "-c", "2048", "-t", "1", "-ctk", "f32", "--no-mmap")
    done = check("--json", "-m", tiny, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    with Live(*flags, "-v", model=tiny) as server:
        props = server.client.get("/props").json
        allocated = {
            name: sum(float(found[1]) for line in server.lines if (found := re.search(pattern, line)))
            for name, pattern in (
                ("weights", r"model buffer size = +([\d.]+) MiB"),
                ("KV", r"KV buffer size = +([\d.]+) MiB"),
                ("compute", r"CPU compute buffer size = +([\d.]+) MiB"),
            )
        }
    assert report["n_slots"] == props["total_slots"] == 2
    assert report["n_ctx_slot"] == props["default_generation_settings"]["n_ctx"] == 1024
    assert report["memory"]["host"] == report["memory"]["together"]
    assert report["memory"]["host"]["weights"] / MIB == pytest.approx(allocated["weights"], abs=0.02) != 0
    assert report["memory"]["host"]["cache"] / MIB == pytest.approx(allocated["KV"], abs=0.02) != 0
    assert report["memory"]["host"]["compute"] / MIB == pytest.approx(allocated["compute"], abs=0.02) != 0
    assert report["warnings"] == []


def test_people_can_read_it(tiny):
    done = check("-m", tiny, *"-c 512 -np 2 --embedding --pooling mean --port 1234".split())
    assert done.returncode == 0
    rows = dict(re.findall(r"^(\w+) +(.*)$", done.stdout, re.MULTILINE))
    assert rows["model"].startswith(tiny)
    assert "completions and chats, embeddings of" in rows["serves"]
    assert rows["listens"] == "http://127.0.0.1:1234"
    assert rows["slots"].startswith("2 of 256 tokens each")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-such-flag"], "unknown flag --no-such-flag"),
        (["-m", "no/such.gguf"], "No such file"),
        (["-c", "8", "-np", "16"], "--ctx-size 8 over --parallel 16"),
        (["--chat-template", "no-such"], "neither Jinja nor a built-in template"),
        (["--ssl-cert-file", "no.pem", "--ssl-key-file", "no.pem"], "--ssl-cert-file"),
        (["--system-prompt-file", "no/such.txt"], "--system-prompt-file"),
    ],
)
def test_what_would_not_start_is_refused_with_one_line(tiny, flags, words):
    done = check("-m", tiny, *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_warns_of_flags_without_effect_and_of_memory(tiny):
    done = check("--json", "-m", tiny, "-c", "512", "--threads-http", "9")
    assert [line for line in json.loads(done.stdout)["warnings"] if "--threads-http" in line]


def test_a_trace_is_not_begun(tiny, tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("kept")
    assert check("-m", tiny, "-c", "512", "--step-trace", str(trace)).returncode == 0
    assert trace.read_text() == "kept"


def test_adapters_are_checked_without_being_loaded(tiny, tmp_path):
    good = write_lora(tmp_path / "good.gguf", tiny, 5)
    done = check("--json", "-m", tiny, "-c", "512", "--lora", f"style={good}", "--lora-scaled", f"{good}:0.5")
    assert (done.returncode, done.stderr) == (0, "")
    (name, (a, _)) = next(iter(pairs(tiny, 5).items()))
    half = write_adapter(tmp_path / "half.gguf", {f"{name}.lora_a": a})
    done = check("-m", tiny, "-c", "512", "--lora", f"{good},{half}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{half} cannot be used as a LoRA adapter: it has only one of {name}.lora_a" in done.stderr
    assert done.stderr.count("\n") == 1

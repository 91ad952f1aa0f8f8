"""The parts that compute: ratios, tables, prompts, requests, kept results."""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any, cast

import pytest

from bench import __main__ as program
from bench import batched, flags, prompts, report, results, same_text, scenarios, stats
from bench.client import Client
from bench.errors import BenchError
from bench.programs import BATCHED, LLAMA_SERVER, LLAMAD, Program
from bench.prompts import Prompts


def run_flags(*arguments: str, path: Path, scenario: str = "tokens") -> argparse.Namespace:
    path.write_bytes(b"GGUF")
    parser = argparse.ArgumentParser()
    flags.add_flags(parser)
    read = parser.parse_args(["--no-cpu", "--model", str(path), "--scenario", scenario, *arguments])
    filled = flags.filled(read, scenario)
    flags.check(filled)
    return filled


class Words:
    """A tokenizer whose tokens are words with the white space before them, and letters after the eighth."""

    def ask(self, path: str, body: Any) -> Any:
        pieces = [
            piece
            for word in re.findall(r"\s*\S+", body["content"])
            for piece in re.findall(r"^\s*.{1,8}|.", word)
        ]
        if body.get("with_pieces"):
            return {"tokens": [{"id": i, "piece": piece} for i, piece in enumerate(pieces)]}
        return {"tokens": list(range(len(pieces) + body["add_special"]))}


def learned(kind: str, seed: int = 1, endpoint: str = "/completion", **more: Any) -> Prompts:
    learner = Prompts(kind, seed, endpoint, **more)
    learner.learn(cast(Client, Words()))
    return learner


class Server:
    """What points need of a program before anything is sent."""

    client = Words()


def load_of(given: argparse.Namespace) -> tuple[scenarios.StreamPoint, scenarios.Load]:
    texts = Prompts(given.texts, given.seed, given.endpoint, given.ids, given.coined)
    (point,) = scenarios.points(given, texts)
    assert isinstance(point, scenarios.StreamPoint)
    return point, point.load(cast(Program, Server()))


def test_ratio_is_of_medians_and_shows_single_rounds() -> None:
    ours = [{"tokens_per_s": value} for value in (10.0, 30.0, 20.0)]
    theirs = [{"tokens_per_s": value} for value in (10.0, 10.0, 40.0)]
    assert stats.ratio(ours, theirs, "tokens_per_s") == stats.Ratio(2.0, 0.5, 3.0)
    assert math.isnan(stats.ratio(ours, theirs[:2], "tokens_per_s").low)


def test_a_ratio_to_nothing_is_unknown_and_no_number_in_json() -> None:
    ours, theirs = [{"gap_p50_ms": 1.0}, {"gap_p50_ms": 2.0}], [{"gap_p50_ms": 0.0}, {"gap_p50_ms": 0.0}]
    assert math.isnan(stats.ratio(ours, theirs, "gap_p50_ms").value)
    assert stats.ratio(ours, [{"gap_p50_ms": 0.0}, {"gap_p50_ms": 1.0}], "gap_p50_ms").low == 2
    found: report.Found = {("x", LLAMAD): ours, ("x", LLAMA_SERVER): theirs}
    written = report.as_json({"minutes": math.inf}, {"gap": found})
    assert written["setup"] == {"minutes": None}
    assert written["points"][0]["ratios"][LLAMA_SERVER]["gap_p50_ms"] == {
        "value": None,
        "low": None,
        "high": None,
    }
    json.dumps(written, allow_nan=False)


def test_what_broke_is_counted_over_all_rounds() -> None:
    rounds = [{"answers_broken": 0.0}, {"answers_broken": 3.0}, {"answers_broken": math.nan}, {}]
    assert stats.middle(rounds, "answers_broken") == 3


@pytest.mark.parametrize("kind", ["real", "made-up"])
@pytest.mark.parametrize("n_tokens", [2, 12, 64, 600])
def test_prompts_have_the_wanted_number_of_tokens(kind: str, n_tokens: int) -> None:
    words = Words()
    for endpoint, add_special in (("/completion", True), (prompts.CHAT, False)):
        texts = learned(kind, endpoint=endpoint)
        for index in range(50):
            body = {"content": texts.prompt(index, n_tokens), "add_special": add_special}
            assert len(words.ask("/tokenize", body)["tokens"]) == n_tokens


def test_prompts_are_repeatable_and_begin_at_different_places() -> None:
    texts = learned("real")
    made = [texts.prompt(i, 32) for i in range(500)]
    again, other = learned("real"), learned("real", seed=2)
    assert made == [again.prompt(i, 32) for i in range(500)]
    assert made != [other.prompt(i, 32) for i in range(500)]
    assert len(set(made)) > 495
    # All kinds of text occur, and so do other alphabets.
    whole = " ".join(cast(list[str], made))
    assert all(word in whole for word in ("def ", "User:", "river", "は"))
    # There is no end of different ones.
    assert texts.prompt(0, 32) != texts.prompt(20_000, 32)


def test_ids_begin_differently() -> None:
    texts = Prompts("ids", 1)
    made = [cast(list[int], texts.prompt(i, 8)) for i in range(300)]
    assert {len(one) for one in made} == {8}
    assert len({one[0] for one in made}) == 300
    assert all(300 <= one < 512 for one in Prompts("ids", 1, ids=range(300, 512)).ids(3, 50))
    with pytest.raises(BenchError, match="takes text"):
        Prompts("ids", 1, prompts.CHAT)


def test_coined_words_differ_from_text_to_text() -> None:
    known = set(prompts.words())
    texts = learned("made-up")
    made = [texts.about(i, 64, coined=0.1) for i in range(200)]
    coined = [word for text in made for word in re.findall("[a-z]+", text) if word not in known]
    assert 0.05 < len(coined) / (200 * 60) < 0.15
    assert len(set(coined)) > 0.9 * len(coined)


def test_every_stream_of_every_round_has_a_prompt_of_its_own(tmp_path: Path) -> None:
    given = run_flags("--rounds", "3", "--streams", "64", path=tmp_path / "m")
    point, sent = load_of(given)
    bodies = [body for group in (sent.warm_up, *sent.rounds) for body in group.bodies]
    assert [len(group.bodies) for group in sent.rounds] == [64, 64, 64]
    assert len({body["prompt"] for body in bodies}) == len(bodies) == 256
    assert (point.options.n_slots, point.options.n_ctx) == (64, 64 * 256)


def test_prompts_are_shorter_by_a_part_of_their_own(tmp_path: Path) -> None:
    arguments = ["--streams", "64", "--prompt-tokens", "100", "--shorter", "0.5", "--texts", "ids"]
    given = run_flags(*arguments, path=tmp_path / "m")
    lengths, again = ([len(body["prompt"]) for body in load_of(given)[1].rounds[0].bodies] for _ in range(2))
    assert 50 <= min(lengths) < 60 < 90 < max(lengths) <= 100
    assert lengths == again


def test_a_prefix_is_shared_in_a_round_and_new_in_the_next(tmp_path: Path) -> None:
    arguments = ["--rounds", "2", "--streams", "4", "--ids", "1000,30000"]
    _, sent = load_of(run_flags(*arguments, path=tmp_path / "m", scenario="prefix"))
    first, second = ([body["prompt"] for body in group.bodies] for group in sent.rounds)
    assert [len({tuple(one[:2000]) for one in some}) for some in (first, second)] == [1, 1]
    assert first[0][0] != second[0][0]
    assert len({one[2000] for one in (*first, *second)}) == 8
    _, sent = load_of(run_flags(*arguments[:4], path=tmp_path / "m", scenario="prefix"))
    texts = [body["prompt"] for body in sent.rounds[0].bodies]
    assert len({text.partition("\n\n")[0] for text in texts}) == 1
    assert len(set(texts)) == 4


def test_a_loop_asks_for_different_lengths(tmp_path: Path) -> None:
    given = run_flags("--streams", "4", "--predict", "40", path=tmp_path / "m", scenario="loop")
    _, sent = load_of(given)
    lengths = [body["n_predict"] for body in sent.rounds[0].bodies]
    assert (len(lengths), sent.n_each) == (16, 4)
    assert 30 <= min(lengths) < max(lengths) <= 50


def test_each_dialect_is_asked_in_its_own_words(tmp_path: Path) -> None:
    keys: dict[str, Any] = {}
    for endpoint in ("/completion", "/v1/completions", "/v1/chat/completions"):
        given = run_flags("--endpoint", endpoint, "--options", '{"top_k": 0}', path=tmp_path / "m")
        keys[endpoint] = scenarios.body(given, 1, "some text", 7)
        assert (keys[endpoint]["top_k"], keys[endpoint]["stream"]) == (0, True)
        assert keys[endpoint]["cache_prompt"] is False
    assert keys["/completion"]["n_predict"] == keys["/v1/completions"]["max_tokens"] == 7
    assert keys["/v1/chat/completions"]["messages"] == [{"role": "user", "content": "some text"}]
    assert keys["/v1/chat/completions"]["stream_options"] == {"include_usage": True}


def test_defaults_depend_on_the_scenario_and_the_machine(tmp_path: Path) -> None:
    gpu = run_flags(path=tmp_path / "m", scenario="ttft")
    assert (gpu.streams, gpu.prompt_tokens, gpu.ngl, gpu.threads, gpu.turns) == (
        [8, 64],
        512,
        99,
        None,
        False,
    )
    cpu = run_flags("--cpu", "--predict", "5", path=tmp_path / "m", scenario="ttft")
    assert (cpu.streams, cpu.prompt_tokens, cpu.predict) == ([8], 64, 5)
    assert (cpu.ngl, cpu.threads, cpu.turns, cpu.minutes) == (0, 1, True, math.inf)
    quick = run_flags("--cpu", "--quick", path=tmp_path / "m", scenario="ttft")
    assert (quick.streams, quick.slots) == ([2], None)
    assert run_flags("--quick", path=tmp_path / "m", scenario="startup").slots == [2]
    assert run_flags("--ids", "300,512", path=tmp_path / "m").texts == "ids"


def test_results_are_kept_and_a_line_cut_off_is_none(tmp_path: Path) -> None:
    given = run_flags(path=tmp_path / "m")
    kept = results.Results(tmp_path / "r.jsonl")
    key = results.key_of(given, "8 streams", LLAMAD)
    kept.add(key, [{"tokens_per_s": 1.0}])
    kept.add(key, [{"tokens_per_s": 2.0, "steady_tokens_per_s": math.nan}])
    with (tmp_path / "r.jsonl").open("a") as out:
        out.write('{"key": {"half')
    again = results.Results(tmp_path / "r.jsonl")
    stored = again.get(key)
    assert stored is not None
    assert stored[0]["tokens_per_s"] == 2.0
    assert math.isnan(stored[0]["steady_tokens_per_s"])
    assert again.get(results.key_of(given, "32 streams", LLAMAD)) is None
    assert again.get(results.key_of(given, "8 streams", LLAMA_SERVER)) is None
    given.label = "another state"
    assert again.get(results.key_of(given, "8 streams", LLAMAD)) is None


def test_decoding_alone_is_read() -> None:
    told = 'noise\n{"pp": 64, "tg": 128, "pl": 8, "t": 2.0, "speed_tg": 3500.5}\n'
    assert batched.measures(told, "") == [
        {"decode_tokens_per_s": 3500.5, "steady_tokens_per_s": 3500.5, "tokens_per_s": 512.0}
    ]
    with pytest.raises(BenchError, match="no room"):
        batched.measures("", "first\nno room\n")


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_the_report_has_medians_and_ratios() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{"decode_tokens_per_s": value, "server_cpu": 0.5} for value in values]

    found: report.Found = {
        ("8 streams", BATCHED): rounds(1000),
        ("8 streams", LLAMA_SERVER): rounds(300, 500, 400),
        ("8 streams", LLAMAD): rounds(900, math.nan, 900),
        ("32 streams", LLAMAD): rounds(2000),
    }
    rows = cells(report.whole("tokens", found, None, is_paired=False))
    names = ["batched-bench", "llama-server", "llamad", "llamad / batched-bench", "llamad / llama-server"]
    assert ["tokens/s once all decode ↑", *names] in rows
    assert ["8 streams", "1,000", "400", "900", "0.900", "2.250"] in rows
    assert ["32 streams", "-", "-", "2,000", "-", "-"] in rows
    assert ["server CPU", "50 %", "50 %", "50 %", "", ""] in rows
    paired = cells(report.whole("tokens", found, None, is_paired=True))
    assert ["8 streams", "1,000", "400", "900", "0.900", "2.250 (2.25 - 3.00)"] in paired
    alone = report.whole("tokens", {("8 streams", LLAMAD): rounds(900)}, None, is_paired=True)
    assert "/ llama-server" not in alone


def test_first_difference() -> None:
    assert same_text.first_difference("abc", "abd") == 2
    assert same_text.first_difference("abc", "abcd") == 3
    assert same_text.compare("x", "same", "same").is_same
    other = same_text.compare("x", "one two", "one too")
    assert not other.is_same
    assert "character 5" in other.detail


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0
    told = capsys.readouterr().out
    for name in program.COMMANDS:
        assert f"\n  {name} " in told
        with pytest.raises(SystemExit, match="0"):
            program.main([name, "--help"])
        assert f"python -m bench {name}" in capsys.readouterr().out
    assert program.main(["other"]) == 2
    assert "no command other" in capsys.readouterr().err

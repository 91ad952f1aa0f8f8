"""`grammar`: what it forces, how it lives with every other option, what is refused, and who pays for it."""

import contextlib
import re
import time

import pytest
from support.live_daemon import Live
from support.models.bigram_model import DICE, EOS, token

from llamad.api.request.constraints import GRAMMAR_CHARS_MAX

QUESTION = "Is the sky blue? Answer:"
LIST = 'root ::= item{3}\nitem ::= "- " [a-z]{3,9} "\\n"'


def both(client, prompt, **options):
    """The answer, which must be the same whole and streamed."""
    body = {"prompt": prompt, "temperature": 0, "n_predict": 48, "cache_prompt": False, **options}
    whole = client.complete(**body)
    events = list(client.events("/completion", {**body, "stream": True}))
    assert "".join(event["content"] for event in events) == whole["content"]
    for name in ("stop_type", "tokens_predicted", "stopping_word", "truncated"):
        assert events[-1][name] == whole[name], name
    probs = [one for event in events for one in event.get("completion_probabilities", [])]
    assert probs == whole.get("completion_probabilities", [])
    return whole


# What it forces.


def test_the_grammar_alone_changes_the_outcome(client):
    free = both(client, QUESTION)
    answer = both(client, QUESTION, grammar='root ::= " yes" | " no"')
    assert free["content"] not in (" yes", " no")
    assert answer["content"] in (" yes", " no")
    assert (answer["stop_type"], answer["stopped_eos"]) == ("eos", True)
    assert answer["generation_settings"]["grammar"] == 'root ::= " yes" | " no"'
    assert answer["generation_settings"]["json_schema"] is None
    assert free["generation_settings"]["grammar"] == ""


def test_a_grammar_that_allows_all_changes_nothing(client):
    options = {"n_predict": 24, "seed": 5, "temperature": 0.8}
    assert (
        both(client, QUESTION, grammar="root ::= .*", **options)["content"]
        == (both(client, QUESTION, **options)["content"])
    )


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (LIST, r"(- [a-z]{3,9}\n){3}"),
        ('root ::= [0-9]{4} "-" [0-9]{2}', r"\d{4}-\d\d"),
        ('root ::= ("🦙" | "é" | "漢字"){5} "."', r"(🦙|é|漢字){5}\."),
        ("root ::= [α-ω]{6} [ぁ-ん]{4} [😀-😏]", r"[α-ω]{6}[ぁ-ん]{4}[😀-😏]"),
        ("root ::= [^a-z\\n]{8}", r"[^a-z\n]{8}"),
    ],
    ids=["list", "date", "emoji", "ranges", "negated"],
)
def test_the_text_is_the_grammars(client, grammar, pattern):
    for options in ({"n_probs": 2}, {"temperature": 1.3, "seed": 3}):
        answer = both(client, "Write:\n", grammar=grammar, **options)
        assert answer["stop_type"] == "eos"
        assert re.fullmatch(pattern, answer["content"]), answer["content"]


def test_token_references(client):
    """By text and by number. A control token that is named comes, though it is not shown; an end token only ends."""
    start = client.post("/tokenize", {"content": "<|im_start|>", "parse_special": True}).json["tokens"]
    the = client.post("/tokenize", {"content": " the"}).json["tokens"]
    assert len(start) == len(the) == 1
    options = {"grammar": f'root ::= " the" <[{the[0]}]> <|im_start|> "!"', "return_tokens": True}
    named = client.complete(QUESTION, **options)
    assert (named["content"], named["stop_type"]) == (" the the!", "eos")
    assert named["tokens"].count(start[0]) == 1
    unnamed = client.complete(QUESTION, **{**options, "grammar": 'root ::= " the" .{3}'})
    assert start[0] not in unnamed["tokens"]
    body = {"prompt": "The cat sat on", "temperature": 0, "n_predict": 1, "return_tokens": True}
    (likeliest,) = client.complete(**body)["tokens"]
    assert client.complete(**body, grammar=f"root ::= <[{likeliest}]>")["tokens"] == [likeliest]
    assert client.complete(**body, grammar=f"root ::= !<[{likeliest}]>")["tokens"] != [likeliest]
    message = 'Failed to parse grammar ("grammar"): line 1, column 10: '
    for reference in ("<no-such-token>", "<[49152]>"):
        error = client.post("/completion", {"prompt": "a", "grammar": f"root ::= {reference}"}).error
        assert error["message"].startswith(message), error


# With the other options, on the model of letters: a b c d e f g h, the first the likeliest.


def test_greedy_with_a_grammar_is_the_likeliest_that_fits(bigram):
    assert bigram.greedy("a", grammar="root ::= [b-d]{3} [f-h]{2}") == "bbbff"
    assert bigram.greedy("a", grammar="root ::= [c-z]*", n_predict=4) == "cccc"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"mirostat": 1},
        {"mirostat": 2, "mirostat_tau": 2.0},
        {"dry_multiplier": 5.0, "dry_allowed_length": 1},
        {"repeat_penalty": 2.0},
        {"presence_penalty": 9.0, "frequency_penalty": 2.0},
        {"top_k": 1},
        {"top_k": 3},
        {"top_p": 0.2},
        {"min_p": 0.9},
        {"typical_p": 0.2},
        {"tfs_z": 0.2},
        {"top_n_sigma": 0.1},
        {"xtc_probability": 1.0, "xtc_threshold": 0.01},
        {"min_keep": 4, "top_p": 0.1},
        {"dynatemp_range": 0.9},
        {"samplers": ["temperature", "top_k"], "top_k": 2},
        {"samplers": ["penalties", "top_p"], "repeat_penalty": 1.5},
        {"samplers": []},
        {"logit_bias": [["a", 50.0], ["b", False]]},
        {"n_probs": 3},
        {"n_probs": 3, "post_sampling_probs": True},
        {"cache_prompt": True},
        {"ignore_eos": True},
        {"penalty_prompt": "efgh", "repeat_penalty": 3.0},
        {"n_indent": 2},
    ],
    ids=str,
)
def test_no_option_breaks_a_grammar(bigram, options):
    """The letters that the model likes best are not the grammar's, so every sampler must begin again."""
    for seed in range(3):
        answer = both(
            bigram.client,
            "abc",
            **{
                "top_k": 0,
                "min_p": 0,
                "top_p": 1,
                "temperature": 1,
                "seed": seed,
                "grammar": 'root ::= ([e-h] "é"){4} "z"',
                **options,
            },
        )
        assert re.fullmatch("([e-h]é){4}z", answer["content"]), answer["content"]
        assert answer["stop_type"] == "eos"


def test_a_grammar_does_not_change_what_is_left(bigram):
    """Among the letters it allows the probabilities stay as they were."""
    text = bigram.text("a", grammar="root ::= [bc]*", n_predict=200)
    assert set(text) == {"b", "c"}
    share = text.count("b") / len(text)
    assert abs(share - DICE["b"] / (DICE["b"] + DICE["c"])) < 0.12


def test_several_completions_of_one_prompt(bigram):
    answers = bigram.ask("a", n=3, grammar="root ::= [e-h]{12}", n_predict=50)
    texts = [answer["content"] for answer in answers]
    assert len(set(texts)) == 3
    assert all(re.fullmatch("[e-h]{12}", text) for text in texts)
    for k, text in enumerate(texts):
        assert bigram.text("a", seed=1 + k, grammar="root ::= [e-h]{12}", n_predict=50) == text
    prompts = bigram.ask(["a", "b"], grammar="root ::= [e-h]{12}", n_predict=50)
    assert [len(answer["content"]) for answer in prompts] == [12, 12]


def test_stop_strings_in_a_grammars_text(bigram):
    grammar = 'root ::= "STOP" [a-h]{3} "STOPz"'
    cut = both(bigram.client, "s", grammar=grammar, stop=["PzX", "OPz"])
    assert re.fullmatch("STOP[a-h]{3}ST", cut["content"])
    assert (cut["stop_type"], cut["stopping_word"]) == ("word", "OPz")
    whole = both(bigram.client, "s", grammar=grammar, stop=["zz"])
    assert re.fullmatch("STOP[a-h]{3}STOPz", whole["content"])
    assert whole["stop_type"] == "eos"


def test_split_characters(bigram):
    """After "u" the model writes the bytes of a llama one by one; the grammar follows them."""
    answer = both(bigram.client, "u", grammar='root ::= ("🦙" "v" "é" "u"?){3}', n_predict=60, n_probs=1)
    assert re.fullmatch("(🦙véu?){3}", answer["content"]), answer["content"]
    other = both(bigram.client, "a", grammar="root ::= [日-曰]{2}", n_probs=1)
    assert re.fullmatch("[日-曰]{2}", other["content"]), other["content"]


def test_a_grammar_over_a_context_shift(bigram):
    """256 tokens are the context; the grammar counts on."""
    answer = both(bigram.client, "a", grammar='root ::= [b-c]{400} "z"', n_predict=450)
    assert re.fullmatch("[bc]{400}z", answer["content"])
    assert (answer["truncated"], answer["stop_type"]) == (True, "eos")


def test_a_cached_prompt_does_not_carry_the_grammar_along(bigram):
    first = bigram.ask("abab", temperature=0, n_predict=6, grammar="root ::= [c-d]+", id_slot=0)
    again = bigram.ask("abab", temperature=0, n_predict=6, id_slot=0)
    third = bigram.ask("abab", temperature=0, n_predict=6, grammar="root ::= [d-e]+", id_slot=0)
    assert [one["content"] for one in (first, again, third)] == ["cccccc", "aaaaaa", "dddddd"]
    assert again["timings"]["cache_n"] > 0


def test_the_end(bigram):
    """A grammar that is complete ends the text, whatever is said against the end token."""
    ended = bigram.ask("a", grammar='root ::= "abc"', temperature=0)
    assert (ended["content"], ended["stop_type"]) == ("abc", "eos")
    for options in ({"ignore_eos": True}, {"logit_bias": [[EOS, False]]}):
        ignored = both(bigram.client, "a", grammar='root ::= "abc"', **options)
        assert (ignored["content"], ignored["stop_type"]) == ("abc", "eos")
    # Where it may go on, it does.
    more = bigram.ask("q", temperature=0, grammar="root ::= [rq]*", ignore_eos=True, n_predict=6)
    assert (more["content"], more["stop_type"]) == ("rqrqrq", "limit")
    fewer = bigram.ask("q", temperature=0, grammar="root ::= [rq]*", n_predict=6)
    assert (fewer["content"], fewer["stop_type"]) == ("", "eos")
    nothing = bigram.ask("a", temperature=0, grammar='root ::= ""')
    assert (nothing["content"], nothing["stop_type"]) == ("", "eos")
    short = bigram.ask("a", grammar='root ::= "abcdef"', n_predict=3)
    assert (short["content"], short["stop_type"]) == ("abc", "limit")
    assert bigram.ask("a", grammar='root ::= "abcdef"', n_predict=0)["content"] == ""


def test_what_the_bias_and_the_grammar_forbid_together(bigram):
    """Nothing can come: an error, not a token that the grammar does not allow."""
    body = {"prompt": "a", "grammar": 'root ::= "b" "c"', "logit_bias": [["c", False]], "n_predict": 9}
    body["logit_bias"] += [[token(ord("c")), False]]
    message = bigram.refused(body, "grammar", "can continue the grammar")["message"]
    assert "\n" not in message
    *_, last = bigram.client.events("/completion", {**body, "stream": True})
    assert last["error"]["code"] == 400
    assert last["error"]["message"] == message


# What is refused.


@pytest.mark.parametrize(
    ("grammar", "line", "column", "reason"),
    [
        ("root ::= (", 1, 11, "expected )"),
        ('root ::= "a', 1, 12, "inside a literal"),
        ('x ::= "a"', 1, 1, "no rule named root"),
        ('root ::= "a"\nroot ::= b', 2, 10, "no rule named b"),
        ('root ::= "a"{5,2}', 1, 14, "minimum is above its maximum"),
        ("root ::= [z-a]", 1, 1, "no text can match"),
        ('root ::= root "a" | "b"', 1, 1, "left"),
        ('root ::= e root "a" | "b"\ne ::= f\nf ::= "x"?', 1, 1, "left"),
        ('root ::= "é" "\\q"', 1, 15, "unknown escape"),
        ("root := [a]", 1, 6, "expected ::="),
        ("root ::= é", 1, 10, ""),
        ("-", 1, 2, "expected ::="),
        (" ", 1, 1, "no rule named root"),
    ],
    ids=str,
)
def test_a_bad_grammar_is_told_by_line_and_column(bigram, grammar, line, column, reason):
    message = bigram.refused({"prompt": "a", "grammar": grammar}, "Failed to parse grammar", '"grammar"')[
        "message"
    ]
    complaint = re.fullmatch(
        r'Failed to parse grammar \("grammar"\): line (\d+), column (\d+): (.+)', message
    )
    assert complaint, message
    assert (int(complaint[1]), int(complaint[2])) == (line, column), message
    assert reason in complaint[3]


@pytest.mark.parametrize("value", [5, True, ["root"], {"root": "a"}], ids=str)
def test_a_grammar_is_a_string(bigram, value):
    bigram.refused({"prompt": "a", "grammar": value}, '"grammar" must be a string')


def test_none_at_all(bigram):
    free = bigram.greedy("a")
    for value in ("", None):
        answer = bigram.ask("a", grammar=value, temperature=0, n_predict=12)
        assert answer["content"] == free
        assert answer["generation_settings"]["grammar"] == ""


def test_a_grammar_and_a_schema(bigram):
    bigram.refused(
        {"prompt": "a", "grammar": 'root ::= "a"', "json_schema": {}}, '"json_schema"', '"grammar"', "both"
    )
    assert bigram.ask("a", grammar="", json_schema={"const": 1})["content"] == "1"
    assert bigram.ask("a", grammar='root ::= "a"', json_schema=None)["content"] == "a"


# Who pays. llama.cpp's parser and matcher do not survive the first five.

KILLERS = {
    "parentheses": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "open parentheses": "root ::= " + "(" * 20_000,
    "a chain of rules": "root ::= r0\n"
    + "".join(f"r{i} ::= r{i + 1}\n" for i in range(100_000))
    + 'r100000 ::= "a"',
    "hidden left recursion": 'root ::= e root "a" | "b"\ne ::= f\nf ::= "x"?',
    "doubling": 'root ::= r0 "."\n'
    + "".join(f'r{i} ::= r{i + 1} | r{i + 1} "b"\n' for i in range(40))
    + 'r40 ::= "b"',
    "a backward count": 'root ::= "a"{5,2}',
    "counts of counts": "root ::= ((([a-h]{0,99}){0,99}){0,99}){0,99}",
    "a count without end": 'root ::= "a"{4294967297}',
    "a megabyte of words": "root ::= "
    + " | ".join(f'"{i:x}"' for i in range(90_000))
    + " # "
    + "é" * 100_000,
    "too long": "root ::= " + '"a" ' * (GRAMMAR_CHARS_MAX // 4),
    "ambiguous": "root ::= a a a a a a a a [0-9]\na ::= [a-h]* [a-h]* [a-h]*",
}


@pytest.mark.parametrize("name", KILLERS)
def test_no_grammar_stops_the_others(bigram, name):
    """Served or refused with a reason, while a stream goes on."""
    endless = {"prompt": "a", "n_predict": -1, "stream": True, "id_slot": 0, "logit_bias": [[EOS, False]]}
    with contextlib.closing(bigram.client.events("/completion", endless)) as stream:
        next(stream)
        answer = bigram.client.post(
            "/completion", {"prompt": "a", "grammar": KILLERS[name], "n_predict": 12, "id_slot": 1}
        )
        for _ in range(3):
            assert next(stream)["stop"] is False
    assert answer.status in (200, 400), answer.body
    if answer.status == 400:
        assert "grammar" in answer.error["message"]
        assert "\n" not in answer.error["message"]
        assert len(answer.error["message"]) < 300


def test_what_a_megabyte_says_is_followed(bigram):
    words = " | ".join(f'"{i:05x}"' for i in range(20_000))
    grammar = f"root ::= {words} # {'a comment, ' * 90_000}"
    assert len(grammar) > 1_000_000
    answer = bigram.ask("a", grammar=grammar, n_predict=50)
    assert int(answer["content"], 16) < 20_000


# The server's own.


def test_the_grammar_of_a_flag(started, tmp_path):
    path = tmp_path / "own.gbnf"
    path.write_text("\ufeffroot ::= [b-d]{4} # the server's\n", encoding="utf-8")
    server = started("--grammar-file", str(path))
    own = server.ask("a", temperature=0)
    assert (own["content"], own["stop_type"]) == ("bbbb", "eos")
    assert own["generation_settings"]["grammar"].startswith("root ::= [b-d]{4}")
    assert server.greedy("a", grammar='root ::= "cd"') == "cd"
    assert server.greedy("a", grammar="", n_predict=4) == "aaaa"
    assert server.greedy("a", grammar=None) == "bbbb"
    assert server.greedy("a", json_schema={"const": 12}) == "12"
    shown = server.client.get("/props").json["default_generation_settings"]
    assert shown["params"]["grammar"].startswith("root ::= [b-d]{4}")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--grammar", 'root ::= "a"', "-j", "{}"], ["--grammar and --json-schema", "combined"]),
        (["--grammar-file", "{dir}/none.gbnf"], ["--grammar-file", "none.gbnf"]),
        (["--json-schema-file", "{dir}/none.json"], ["--json-schema-file", "none.json"]),
        (["--grammar-file", "{dir}/latin1"], ["--grammar-file", "latin1", "UTF-8"]),
        (["-j", "{not json"], ["--json-schema", "not valid JSON"]),
        (["-j", "[1]"], ["--json-schema", "object, true or false"]),
    ],
    ids=["two", "no file", "no schema file", "not UTF-8", "not JSON", "no schema"],
)
def test_flags_that_stop_the_start(bigram_path, tmp_path, flags, words):
    (tmp_path / "latin1").write_bytes(b'root ::= "\xe9"')
    flags = [flag.replace("{dir}", str(tmp_path)) for flag in flags]
    with pytest.raises(AssertionError) as raised:
        Live(*flags, model=bigram_path)
    said = str(raised.value)
    for word in words:
        assert word in said, said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--grammar", 'root ::= "a" (\n'], ["Failed to parse grammar", "line 2, column 1"]),
        (["-j", '{"type": "number", "not": {"const": 2}}'], ["not at #"]),
    ],
    ids=["grammar", "schema"],
)
def test_a_bad_constraint_of_a_flag_is_told_by_health_and_log(bigram_path, flags, words):
    with Live("-np", "1", "-c", "256", *flags, model=bigram_path, ready=False) as server:
        t_end = time.monotonic() + 30
        while (health := server.client.get("/health")).status == 503:
            assert time.monotonic() < t_end
            time.sleep(0.01)
        assert health.status == 500
        assert health.json["status"] == "error"
        answer = server.client.post("/completion", {"prompt": "a"})
        assert answer.status == 500
        for word in words:
            assert word in health.json["error"]["message"]
            assert word in answer.error["message"]
            server.wait_line(re.escape(word))

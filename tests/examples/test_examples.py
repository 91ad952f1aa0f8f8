"""Every example runs, against one server with the default model, and prints what it promises."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.live_daemon import Live

from llamad import check

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 120


@pytest.fixture(scope="module")
def server():
    with Live("--embedding", "--pooling", "mean", "--slots", "-np", "2", "-c", "4096") as live:
        yield live


def run(server: Live, name: str, *arguments: str, typed: str = "") -> str:
    """What an example prints."""
    program = {".py": sys.executable, ".sh": "bash", ".mjs": "node"}[Path(name).suffix]
    needed = {".py": (), ".sh": ("bash", "curl", "jq"), ".mjs": ("node",)}[Path(name).suffix]
    for tool in needed:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    url = f"http://{server.client.host}:{server.client.port}"
    done = subprocess.run(
        [program, str(EXAMPLES / name), *arguments],
        env={**os.environ, "LLAMAD_URL": url},
        input=typed,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def completion(server: Live, prompt: str, n_predict: int) -> str:
    return server.client.complete(prompt, n_predict=n_predict, temperature=0)["content"]


def held(server: Live, slot: int) -> str:
    """The text in a slot: the last prompt and its answer."""
    tokens = server.client.post(f"/slots/{slot}?action=tokens").json["tokens"]
    return server.client.post("/detokenize", {"tokens": tokens}).json["content"]


def test_every_example_is_listed_and_tested():
    files = {path.name for path in EXAMPLES.iterdir() if path.name != "README.md"}
    listed = re.findall(r"^\| \[(\S+)\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(files)
    tested = set(re.findall(r'"(\w+\.(?:py|sh|mjs|ini))"', Path(__file__).read_text()))
    assert tested == files


def test_the_preset(tmp_path, capsys):
    assert check.main(["--models-preset", str(EXAMPLES / "models.ini")], {"LLAMA_CACHE": str(tmp_path)}) == 0
    assert capsys.readouterr().out.splitlines() == [
        "chat: ggml-org/gemma-3-4b-it-GGUF:Q4_K_M; aliases gemma, gpt-4o-mini; default",
        "editor: ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF; pinned; loaded at the start",
        "precise: ggml-org/gemma-3-4b-it-GGUF:Q4_K_M; shares the engine of chat",
        "search: ggml-org/embeddinggemma-300M-qat-q4_0-GGUF",
        "4 models",
    ]


def test_many_models(tiny, tmp_path):
    preset = tmp_path / "models.ini"
    preset.write_text(
        f"[*]\nctx-size = 512\n[one]\nmodel = {tiny}\n[two]\nmodel = {tiny}\nparallel = 1\n[none]\nmodel = none\n"
    )
    with Live("--models-preset", str(preset), env={"LLAMA_CACHE": str(tmp_path)}) as router:
        printed = run(router, "many_models.py", "Hello", "two", "three").splitlines()
    assert printed[0].startswith("none (failed: none: No such file or directory")
    assert printed[1:3] == ["one (unloaded)", "two (unloaded)"]
    assert {"  two: loading", "  two: loaded"} <= set(printed)
    assert any(line.startswith("two: ") for line in printed)
    assert "three: model 'three' not found; GET /models lists the models" in printed


@pytest.mark.parametrize("name", ["chat.mjs", "chat.sh"])
def test_a_chat_in_the_terminal(server, name):
    """The answers are the model's, and the second prompt holds the first question and answer."""
    first, second = "What is the capital of France?", "Is it a big city?"
    printed = run(server, name, typed=f"{first}\n{second}\n")
    answers = re.findall(r"Assistant: (.+)", printed)
    assert len(answers) == 2
    assert all(len(answer) > 5 for answer in answers)
    server.wait_idle()
    asked = (
        f"### Human: {first}\n### Assistant: {answers[0]}\n### Human: {second}\n### Assistant: {answers[1]}"
    )
    assert any(asked in held(server, slot) for slot in range(2))


def test_a_chat_says_why_it_fails(server):
    """Nothing listens on port 1."""
    for name, program in (("chat.mjs", "node"), ("chat.sh", "bash")):
        if shutil.which(program) is None:
            continue
        done = subprocess.run(
            [program, str(EXAMPLES / name)],
            env={**os.environ, "LLAMAD_URL": "http://127.0.0.1:1"},
            input="Hello\n",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert re.search("ECONNREFUSED|connect to", done.stderr), done.stderr


def test_curl(server):
    lines = run(server, "curl.sh").split("\n")
    assert lines[lines.index("Is it ready?") + 1] == "ok"
    assert json.loads(lines[lines.index("A completion:") + 1]) == completion(
        server, "The capital of France is", 8
    )
    chats = "\n".join(lines[lines.index("A chat:") + 1 : lines.index("How many tokens is that?")])
    whole, streamed = chats.split("\nThe same, as it is written:\n")
    assert whole.strip() == streamed.strip() != ""
    tokens = server.client.post("/tokenize", {"content": "What is the capital of France?"}).json["tokens"]
    assert lines[-2] == str(len(tokens))


def test_a_streamed_chat_in_node(server):
    question = "Name a colour."
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0}
    answer = server.client.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
    assert run(server, "stream_chat.mjs", question) == f"{answer}\n"


def test_completion_js_in_node(server):
    text = completion(server, "The capital of France is", 12)
    printed = run(server, "completion_js.mjs")
    assert printed.startswith(f"{text}\n{text}\n")
    pieces, _, length = printed.removeprefix(f"{text}\n{text}\n").rpartition("|\n")
    assert pieces.replace("|", "") == text
    assert pieces.count("|") >= 5
    assert length == f"{len(text)} characters\n"


def test_requests(server):
    prompt = "The capital of Italy is"
    printed = run(server, "with_requests.py", prompt)
    text, _, note = printed.rpartition("\n[")
    assert text == completion(server, prompt, 32)
    assert re.fullmatch(r"32 tokens, \d+ per second\]\n", note)


def test_openai(server):
    printed = run(server, "with_openai.py")
    match = re.fullmatch(
        r"(.+)\n\[(\d+) tokens in the prompt, (\d+) of them still in the cache\]\n", printed, re.S
    )
    assert match is not None
    assert len(match[1].split("\n")) >= 2
    assert 0 < int(match[3]) < int(match[2])


def test_anthropic(server):
    printed = run(server, "with_anthropic.py")
    match = re.fullmatch(r"(.+)\n\[(\d+) tokens in, (\d+) out\]\n", printed, re.S)
    assert match is not None
    assert int(match[2]) > 10
    assert 0 < int(match[3]) <= 64


def test_tool_use(server):
    printed = run(server, "tool_use.py")
    match = re.match(
        r"call: get_temperature\({'city': '(\w+)', 'unit': '(\w+)'}\) -> (\d+)\nanswer: .+", printed
    )
    assert match is not None, printed
    assert (match[1], match[2], match[3]) == ("Paris", "celsius", "21")


def test_json_schema(server):
    printed = run(server, "json_schema.py")
    match = re.fullmatch(r"(.{1,40}), born (\d{4}): (.+)\n", printed)
    assert match is not None, printed
    assert "Ada" in match[1]
    assert set(match[3].split(", ")) <= {"mathematician", "painter", "writer"}


def test_sessions(server):
    lines = run(server, "sessions.py").split("\n")
    reads = [re.fullmatch(r"\[read (\d+) tokens, (\d+) were there\] (.+)", line) for line in lines]
    first, _, again = [read for read in reads if read is not None]
    assert int(first[1]) > 20
    assert int(again[1]) <= 2  # all but the last token came from the session
    assert int(again[2]) + int(again[1]) == int(first[1]) + int(first[2])
    assert again[3] == first[3]
    assert server.client.get("/sessions").json == []


def test_search(server):
    lines = run(server, "search.py").strip().split("\n")
    scores = [float(line.split()[0]) for line in lines]
    assert lines[0].endswith("Paris is the capital of France.")
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4

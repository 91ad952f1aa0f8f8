"""POST /v1/audio/transcriptions, with forms of our own, with OpenAI's client, and beside llama-server where it was
built."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.official_clients import openai
from support.http_client import Answer, Client
from support.live_daemon import Live
from support.media_files import sound
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

PATH = "/v1/audio/transcriptions"
TYPE = {"Content-Type": "multipart/form-data; boundary=edge"}
DRAWN = {"temperature": "1.5", "seed": "3", "top_k": "0", "top_p": "1", "min_p": "0"}
AUDIO = {"type": "input_audio", "input_audio": {"data": b64encode(sound(1)).decode(), "format": "wav"}}
N_ROWS = 25  # of a second


@pytest.fixture(scope="module")
def projector(tmp_path_factory: Any) -> str:
    folder: Path = tmp_path_factory.mktemp("projector")
    return write_projector(folder / "gemma4ua.gguf", "gemma4ua", 64)


@pytest.fixture(scope="module")
def hearing(tiny: str, projector: str) -> Iterator[Client]:
    # Without the cache: on some machines a prompt that is read in another shape has slightly other logits.
    flags = ("-np", "2", "-c", "4096", "--no-warmup", "--no-cache-prompt", "--mmproj", projector)
    with Live(*flags, model=tiny) as server:
        yield server.client


def form(data: bytes | None, /, *more: tuple[str, str], **fields: str) -> bytes:
    out = b""
    for name, value in (*fields.items(), *more):
        out += f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    if data is not None:
        head = 'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'
        out += f"--edge\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return out + b"--edge--\r\n"


def heard(client: Client, path: str = PATH, *more: tuple[str, str], **fields: str) -> Answer:
    asked = {"model": "x", "max_tokens": "12", **DRAWN, **fields}
    return client.post(path, form(sound(1), *more, **asked), headers=TYPE)


def events(answer: Answer) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.body.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_a_transcription_is_a_chat_about_a_sound(hearing: Client) -> None:
    answer = heard(hearing).json
    assert answer["type"] == "transcript.text.done"
    usage = answer["usage"]
    assert usage["output_tokens"] == 12
    assert usage["total_tokens"] == usage["input_tokens"] + 12
    assert usage["input_token_details"]["audio_tokens"] == N_ROWS
    for text, fields in (
        ("Transcribe audio to text", {}),
        ("Transcribe audio to text (language: de)", {"language": "de"}),
        ("Hear: (language: de)", {"language": "de", "prompt": "Hear:"}),
    ):
        content = [{"type": "text", "text": text}, AUDIO]
        options = {name: float(value) for name, value in DRAWN.items()}
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, **options}
        chat = hearing.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        assert heard(hearing, "/audio/transcriptions", **fields).json["text"] == chat


def test_forms_of_the_answer(hearing: Client) -> None:
    text = heard(hearing).json["text"]
    plain = heard(hearing, response_format="text")
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.body.decode() == text + "\n"
    received = events(heard(hearing, stream="true"))
    assert {one["type"] for one in received[:-1]} == {"transcript.text.delta"}
    assert "".join(one["delta"] for one in received[:-1]) == text
    assert received[-1]["text"] == text
    assert received[-1]["usage"]["output_tokens"] == 12
    whole = heard(hearing, PATH, ("include[]", "logprobs")).json["logprobs"]
    assert len(whole) == 12
    assert all(one["logprob"] <= 0 for one in whole)
    streamed = events(heard(hearing, PATH, ("include[]", "logprobs"), stream="true"))
    assert [one for event in streamed[:-1] for one in event["logprobs"]] == streamed[-1]["logprobs"] == whole


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"response_format": "srt"}, '"srt" has times'),
        ({"response_format": "verbose_json"}, '"verbose_json" has times'),
        ({"response_format": "xml"}, '"response_format" must be'),
        ({"response_format": "text", "stream": "true"}, "for a stream"),
        ({"timestamp_granularities[]": "word"}, '"timestamp_granularities"'),
        ({"known_speaker_names[]": "me"}, "speakers"),
        ({"include[]": "x"}, '"include"'),
        ({"temperature": "warm"}, '"temperature"'),
        ({"stream": "maybe"}, '"stream"'),
        ({"n": "2"}, '"n" must be 1'),
        ({"messages": "[]"}, "messages"),
        ({"prompt[]": "x"}, "prompt"),
        ({"prompt": "x" * 2**20}, "more than 1048576 bytes"),
        ({"file": "x"}, '"file" is given twice'),
    ],
)
def test_wrong_fields(hearing: Client, fields: dict[str, str], says: str) -> None:
    answer = heard(hearing, **fields)
    assert (answer.status, says in answer.error["message"]) == (400, True), answer.body


def test_wrong_forms(hearing: Client) -> None:
    for body, says in (
        (form(None), '"file" is missing'),
        (form(sound(1))[:-8], "closing boundary"),
        (form(b""), "the sound"),
        (form(b"hello" * 100), "the sound"),
        (form(sound(1), ("language", "\0\x01"), max_tokens="1"), "200"),
        (form(sound(1)).replace(b'name="file"', b'name=""'), "has no name"),
        (b"{}", "does not begin"),
    ):
        answer = hearing.post(PATH, body, headers=TYPE)
        assert says == str(answer.status) or (answer.status == 400 and says in answer.error["message"]), says
    answer = hearing.post(PATH, {"file": "x"})
    assert (answer.status, "multipart/form-data" in answer.error["message"]) == (400, True)
    twice = form(sound(1), ("language", "de"), ("language", "en"))
    assert '"language" is given twice' in hearing.post(PATH, twice, headers=TYPE).error["message"]
    hidden = heard(hearing, chunking_strategy="auto")
    assert (hidden.status, hidden.headers["x-llamad-ignored"]) == (200, "chunking_strategy")


def test_a_model_that_does_not_hear(client: Client) -> None:
    answer = heard(client)
    assert (answer.status, "--mmproj" in answer.error["message"]) == (501, True)


def test_the_official_client(hearing: Client) -> None:
    official = openai.OpenAI(base_url=f"http://{hearing.host}:{hearing.port}/v1", api_key="x", max_retries=0)
    asked: dict[str, Any] = {
        "model": "x",
        "file": ("a.wav", sound(1)),
        "extra_body": {"max_tokens": 12, **DRAWN},
    }
    done = official.audio.transcriptions.create(**asked, temperature=1.5, include=["logprobs"])
    assert (done.text, len(done.logprobs)) == (heard(hearing).json["text"], 12)
    assert done.usage.input_token_details.audio_tokens == N_ROWS
    assert official.audio.transcriptions.create(**asked, response_format="text") == done.text + "\n"
    stream = list(official.audio.transcriptions.create(**asked, stream=True))
    assert "".join(one.delta for one in stream[:-1]) == stream[-1].text == done.text
    with pytest.raises(openai.BadRequestError, match="srt"):
        official.audio.transcriptions.create(**asked, response_format="srt")
    content = [{"type": "text", "text": "Hear:"}, AUDIO]
    chat: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": content}], "seed": 3}
    whole = official.chat.completions.create(**chat, max_tokens=12)
    assert whole.usage.prompt_tokens > N_ROWS
    chunks = official.chat.completions.create(**chat, max_tokens=12, stream=True)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said == whole.choices[0].message.content


def test_llama_server_writes_the_same(tiny: str, projector: str, hearing: Client) -> None:
    flags = ("-c", "4096", "-np", "2", "--no-warmup", "--no-cache-prompt")
    with llama_server(tiny, "--mmproj", projector, *flags) as peer:
        # It leaves the other options of a form unread.
        for fields in ({"language": "de"}, {"prompt": "Hear:"}):
            asked = form(sound(1), max_tokens="24", temperature="0", **fields)
            own, other = (one.post(PATH, asked, headers=TYPE).json for one in (hearing, peer))
            assert own["text"] == other["text"]
            assert {**own, "usage": 0}.keys() == {**other, "usage": 0}.keys()
            del own["usage"]["input_token_details"], own["usage"]["input_tokens_details"]
            del other["usage"]["input_tokens_details"]
            assert own["usage"] == other["usage"]
            asked = form(sound(1), max_tokens="24", temperature="0", stream="true", **fields)
            own, other = (events(one.post(PATH, asked, headers=TYPE)) for one in (hearing, peer))
            assert [one["type"] for one in own] == [one["type"] for one in other]
            assert own[-1]["text"] == other[-1]["text"]

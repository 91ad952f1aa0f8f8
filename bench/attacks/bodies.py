"""Attacks with the contents of a request's body: texts, JSON, schemas, grammars, images."""

from __future__ import annotations

import base64
import functools
import json
import struct
import zlib

from bench.attacks.sending import MEDIA, Attack, at_once, body_of, post, repeat
from bench.client import Address

N_QUEUED = 50  # requests that one attacker has in the queue
IMAGE_SIDE = 4000


def _schema(i: int) -> bytes:
    pattern = "^(" + "|".join(f"[a-z]{{1,{n}}}[0-9]*x{i}" for n in range(1, 60)) + ")$"
    return body_of(prompt="x", n_predict=1, json_schema={"type": "string", "pattern": pattern})


def _grammar(i: int) -> bytes:
    rules = "\n".join(f'r{n} ::= ("a" | "b{i}" | r{n + 1})* "c"' for n in range(300)) + '\nr300 ::= "z"'
    return body_of(prompt="x", n_predict=1, grammar="root ::= r0\n" + rules)


def _enums(i: int) -> bytes:
    return body_of(prompt="x", n_predict=1, json_schema={"enum": [f"{i}-{n}" for n in range(100_000)]})


def _queued_body(address: Address, i: int) -> None:
    """Send a large field that the server does not use, but keeps as long as the request."""
    message = {"role": "user", "content": f"{i}"}
    body = body_of(messages=[message], max_tokens=64, user="x" * 4_000_000, ignore_eos=True)
    post(address, "/v1/chat/completions", body)


def _queued_biases(address: Address, i: int) -> None:
    pairs = b",".join(b"[%d,1]" % (n % 49_000) for n in range(65_536))
    post(
        address,
        "/completion",
        b'{"n_predict":64,"ignore_eos":true,"prompt":"x","logit_bias":[' + pairs + b"]}",
    )


def _queued_grammar(address: Address, i: int) -> None:
    words = " | ".join(f'"{i}-{n}"' for n in range(5_000))
    post(address, "/completion", body_of(prompt="x", n_predict=64, grammar="root ::= " + words))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@functools.cache
def _pixels() -> bytes:
    """Return the pixels of a PNG. They are compressed once: the attackers must not need more time than llamad."""
    return _chunk(b"IDAT", zlib.compress(bytes(1 + 3 * IMAGE_SIDE) * IMAGE_SIDE, 1))


def _png(i: int) -> str:
    """Return a black PNG of 16 million pixels in about 200 KB, another file for each number."""
    head = struct.pack(">IIBBBBB", IMAGE_SIDE, IMAGE_SIDE, 8, 2, 0, 0, 0)
    chunks = _chunk(b"IHDR", head) + _chunk(b"tEXt", b"Comment\0%d" % i) + _pixels() + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def _image(address: Address, i: int) -> None:
    part = {"type": "image_url", "image_url": {"url": _png(i)}}
    body = body_of(messages=[{"role": "user", "content": [part]}], max_tokens=1)
    post(address, "/v1/chat/completions", body)


def item_references(address: Address) -> None:
    """Send requests with 246 references to the items of a stored response."""
    text = "word " * 2000
    answer = post(address, "/v1/responses", body_of(input=text, max_output_tokens=16, metadata={}))
    try:
        output = json.loads(answer)["output"]
        ids = [item["id"] for item in output] or ["msg_0"]
    except (ValueError, KeyError):
        ids = ["msg_0"]
    items = [{"type": "item_reference", "id": ids[n % len(ids)]} for n in range(246)]
    body = body_of(input=[*items, {"role": "user", "content": "x"}], max_output_tokens=16)
    while True:
        post(address, "/v1/responses", body)


SYSTEM_PROMPT = body_of(
    prompt="x", n_predict=1, system_prompt={"prompt": "word " * 1000, "anti_prompt": "", "assistant_name": ""}
)
NO_SYSTEM_PROMPT = body_of(
    prompt="x", n_predict=1, system_prompt={"prompt": "", "anti_prompt": "", "assistant_name": ""}
)
CHAT = b'{"max_tokens":1,"messages":[{"role":"user","content":"x"}],'

ATTACKS: dict[str, Attack] = {
    "special tokens, 400 KB": Attack(
        repeat("/completion", lambda i: body_of(prompt="<|im_end|>" * 40_000, n_predict=1))
    ),
    "special tokens, 4 MB, /tokenize": Attack(
        repeat("/tokenize", lambda i: body_of(content="<|im_end|>" * 400_000))
    ),
    "one long word, 4 MB, /tokenize": Attack(
        repeat("/tokenize", lambda i: body_of(content="ab" * 2_000_000))
    ),
    "pieces of 1 MB, /tokenize": Attack(
        repeat("/tokenize", lambda i: body_of(content="a b " * 250_000, with_pieces=True))
    ),
    "nested JSON, 60 MB": Attack(
        repeat("/completion", lambda i: b'{"prompt":[' + b"[[]]," * 12_000_000 + b"1]}")
    ),
    "deep JSON": Attack(repeat("/completion", lambda i: b'{"prompt":' + b"[" * 990 + b"]" * 990 + b"}")),
    "many strings, 30 MB": Attack(
        repeat("/v1/embeddings", lambda i: b'{"input":[' + b'"ab",' * 6_000_000 + b'"c"]}')
    ),
    "numbers, 390,000": Attack(
        repeat("/completion", lambda i: b'{"prompt":[' + b"1e300," * 390_000 + b"1]}")
    ),
    "a wrong type beside 190,000 strings": Attack(
        repeat("/completion", lambda i: b'{"n_predict":"x","stop":[' + b'"ab",' * 190_000 + b'"c"]}')
    ),
    "stream ids, 190,000": Attack(
        repeat(
            "/v1/streams/lookup",
            lambda i: body_of(conversation_ids=[f"id-{n}" for n in range(190_000)]),
        )
    ),
    "body on a path without one, 8 MB": Attack(repeat("/health", lambda i: b"x" * 8_000_000, key="")),
    "bodies without a key, 60 MB": Attack(repeat("/completion", lambda i: b" " * 60_000_000, key="none")),
    "long system_prompt": Attack(repeat("/completion", lambda i: SYSTEM_PROMPT), undo=NO_SYSTEM_PROMPT),
    "choices, 7 MB": Attack(
        repeat(
            "/v1/completions",
            lambda i: b'{"prompt":"x","structured_outputs":{"choice":["' + b"\\n" * 3_700_000 + b'"]}}',
        )
    ),
    "choices in a chat, 2 MB": Attack(
        repeat("/v1/chat/completions", lambda i: CHAT + b'"guided_choice":["' + b"\\n" * 1_000_000 + b'"]}')
    ),
    "slow schemas": Attack(repeat("/completion", _schema)),
    "enums of 100,000 strings": Attack(repeat("/completion", _enums)),
    "slow grammars": Attack(repeat("/completion", _grammar)),
    "large answers": Attack(
        repeat("/completion", lambda i: body_of(prompt="x", n_predict=100_000, ignore_eos=True, n_probs=100))
    ),
    "long chats": Attack(
        repeat(
            "/v1/chat/completions",
            lambda i: body_of(messages=[{"role": "user", "content": "word"}] * 20_000, max_tokens=1),
        )
    ),
    "item references": Attack(item_references),
    "queued bodies": Attack(at_once(N_QUEUED, _queued_body)),
    "queued biases": Attack(at_once(N_QUEUED, _queued_biases)),
    "queued grammars": Attack(at_once(N_QUEUED, _queued_grammar)),
    "images of 16 million pixels": Attack(at_once(16, _image), server=MEDIA),
}

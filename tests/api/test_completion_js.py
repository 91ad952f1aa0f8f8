"""/completion.js under node, over a real socket: its generator, promise, events, errors and aborts."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

BODY = {"n_predict": 8, "temperature": 0}
PRELUDE = """
import * as client from "./completion.mjs"
const { llama, llamaComplete, llamaEventTarget, llamaModelInfo, llamaPromise } = client
const params = { n_predict: 8, temperature: 0 }
const tell = (value) => console.log(JSON.stringify(value))
"""


def told(client, script: str, path: str = "/completion.js") -> list:
    """What a script that imports the file, as if from the server's address, prints with tell()."""
    source = client.get(path).body.decode()
    address = f"http://{client.host}:{client.port}{path}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "completion.mjs").write_text(source.replace("import.meta.url", json.dumps(address)))
        Path(folder, "script.mjs").write_text(PRELUDE + script)
        done = subprocess.run(
            ["node", "script.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_ways_give_the_same_text(client):
    expected = client.complete("Hello", **BODY)["content"]
    chunks, returned, whole, *rest = told(
        client,
        """
        const chunks = []
        const generator = llama("Hello", params)
        for (;;) {
          const { done, value } = await generator.next()
          if (done) { tell(chunks); tell(value); break }
          chunks.push(value)
        }
        tell(await llamaPromise("Hello", params))
        const called = []
        await llamaComplete({ prompt: "Hello", ...params }, null, (chunk) => called.push(chunk.data.content))
        tell(called.join(""))
        const target = llamaEventTarget("Hello", params)
        const seen = []
        target.addEventListener("message", (event) => seen.push(event.detail.content))
        for (const name of ["timings", "generation_settings"])
          target.addEventListener(name, (event) => tell([name, Object.keys(event.detail).length > 3]))
        const end = await new Promise((resolve) => target.addEventListener("done", resolve))
        tell([seen.join(""), end.detail.content])
        tell((await llamaModelInfo()).params.top_k)
        """,
    )
    assert "".join(chunk["data"]["content"] for chunk in chunks) == returned == whole == expected
    assert len(chunks) > 4
    assert [chunk["data"]["stop"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["data"]["timings"]["predicted_n"] == 8
    called, *named, texts, top_k = rest
    assert called == expected
    assert sorted(named) == [["generation_settings", True], ["timings", True]]
    assert texts == [expected, expected]
    assert top_k == 40


def test_leaving_and_aborting_end_the_request(live):
    """The fixture waits until the slots are idle: a request without a limit would keep one."""
    n_seen, error, called = told(
        live.client,
        """
        const endless = { n_predict: 100000, ignore_eos: true }
        let n = 0
        for await (const chunk of llama("Hello", endless)) if (++n == 3) break
        tell(n)
        const controller = new AbortController()
        try {
          for await (const chunk of llama("Hello", endless, { controller })) controller.abort()
        } catch (error) { tell(error.name) }
        const another = new AbortController()
        let called = 0
        await llamaComplete({ prompt: "Hello", ...endless }, another, () => { called++; another.abort() })
          .catch((error) => tell([called > 0, error.name]))
        """,
    )
    assert (n_seen, error, called) == (3, "AbortError", [True, "AbortError"])


def test_errors_are_thrown_with_their_words(client):
    wrong, event, refused = told(
        client,
        """
        const shown = (error) => tell([error instanceof Error, error.status, error.type, error.message])
        await llamaPromise("Hello", { temperature: "hot" }).catch(shown)
        const target = llamaEventTarget("Hello", { temperature: "hot" })
        shown((await new Promise((resolve) => target.addEventListener("error", resolve))).detail)
        await llamaPromise("Hello", {}, { api_url: "http://127.0.0.1:1/" }).catch((error) => tell(error.name))
        """,
    )
    assert wrong == event
    assert wrong[:3] == [True, 400, "invalid_request_error"]
    assert "temperature" in wrong[3]
    assert refused == "TypeError"  # as fetch() has it


def test_keys_and_prefixes():
    with Faked(Fake(), "--api-key", "k", "--api-prefix", "/llm") as server:
        status, text, other = told(
            server.client,
            f"""
            await llamaPromise("Hello", params).catch((error) => tell(error.status))
            tell(await llamaPromise("Hello", {{ ...params, api_key: "k" }}))
            const config = {{ api_url: "http://127.0.0.1:{server.client.port}/llm/" }}
            tell(await llamaPromise("Hello", {{ ...params, api_key: "k" }}, config))
            """,
            "/llm/completion.js",
        )
        assert status == 401
        assert text == other != ""


def test_events_that_come_byte_by_byte(client):
    """A server of its own, that cuts characters and lines, sends comments, and ends with an error."""
    texts, error = told(
        client,
        r"""
        import http from "node:http"
        const stream = ': ping\n\ndata: {"content":"Größe"}\r\n\r\n: ping\n\ndata: {"content":\ndata: "日本"}\n\n'
          + 'data: {"error":{"code":500,"message":"it broke","type":"server_error"}}\n\n'
        const server = http.createServer(async (request, response) => {
          for (const byte of Buffer.from(stream)) {
            response.write(Buffer.of(byte))
            await new Promise(setImmediate)
          }
          response.end()
        }).listen(0)
        const config = { api_url: `http://127.0.0.1:${server.address().port}` }
        const texts = []
        try {
          for await (const chunk of llama("x", {}, config)) texts.push(chunk.data.content)
        } catch (error) { tell(texts); tell([error.status, error.message]) }
        server.close()
        """,
    )
    assert texts == ["Größe", "日本"]
    assert error == [500, "it broke"]

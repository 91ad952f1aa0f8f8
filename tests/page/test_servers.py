"""The page with servers of every kind: loading, locked, thinking, calling tools, reading images, below a prefix."""

import base64
import json

import numpy as np
import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live
from support.media_files import image, sound
from support.models.tiny_adapters import write_lora
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector

from llamad.engine.testing.fake import Fake
from llamad.models.host_state import State
from llamad.protocol.control_messages import Progress

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}{# <think></think><tool_call> #}"
EXPORT = (
    "return import(new URL('js/data/library.js', document.baseURI)).then((library) => library.exportText())"
)
TOOLS = [{"name": "f", "parameters": {"type": "object"}}]
CALL = '<think>Let me see.</think><tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def scripted():
    """A model that writes what it is told to."""
    with Faked(Fake(n_ctx=2048), "--chat-template", TEMPLATE, n_ctx=2048) as server:
        yield server


def test_the_load_is_watched_and_the_page_then_works(open_page):
    with Faked(Fake(script=b"Yes."), load=False) as server:
        server.host._on_message(Progress(420))
        with open_page(server.client, sampling={"n_predict": 4}) as page:
            page.expected += ("503 (Service Unavailable)",)
            browser = page.browser
            browser.wait_for("document.querySelector('.banner').textContent.includes('loading: 42 %')")
            page.send("Hello")
            assert "Loading model" in browser.text(".error")
            server.loop.call_soon_threadsafe(lambda: server.loop.create_task(server.host.load()))
            browser.wait_for("document.querySelector('.banner').hidden")
            browser.click(".error .button")
            page.wait_idle()
            assert page.messages()[1] == ("assistant", "Yes.")


def test_a_model_that_failed_is_said_to_have_failed(open_page):
    with Faked(Fake(), load=False) as server:
        server.host.state, server.host.error = State.FAILED, "the file is broken"
        with open_page(server.client) as page:
            page.expected += ("500 (Internal Server Error)", "503 (Service Unavailable)")
            page.browser.wait_for(
                "document.querySelector('.banner.bad').textContent.includes('the file is broken')"
            )


def test_a_key_is_asked_for_and_used(open_page):
    with (
        Faked(Fake(script=b"Yes."), "--api-key", "secret") as server,
        open_page(server.client, sampling={"n_predict": 4}) as page,
    ):
        page.expected += ("401 (Unauthorized)", "501 (Not Implemented)")
        browser = page.browser
        page.send("Hello", wait=False)
        browser.type("dialog input[type=password]", "wrong")
        browser.press("Enter")
        browser.wait_for("document.querySelector('dialog p')?.textContent.includes('did not accept')")
        browser.type("dialog input[type=password]", "secret")
        browser.press("Enter")
        page.wait_idle()
        assert page.messages()[1] == ("assistant", "Yes.")
        assert browser.run("return localStorage.getItem('llamad.key')") is None  # of this tab only
        assert browser.run("return sessionStorage.getItem('llamad.key')") == "secret"
        page.go("live")
        browser.find(".note")
        assert browser.find_all("dialog") == []


def test_hidden_numbers_name_their_flags(open_page, scripted):
    page = open_page(scripted.client, path="live")
    page.expected += ("501 (Not Implemented)",)
    notes = page.browser.wait(lambda: page.browser.texts(".note"), "no notes")
    assert ["--metrics" in notes[0], "--slots" in notes[1]] == [True, True]
    assert page.browser.texts(".tile:not([hidden]) h3") == ["Busy slots"]


def test_thoughts_and_calls_are_folded_and_results_are_given(open_page, scripted):
    scripted.fake.script = CALL.encode()
    page = open_page(scripted.client, sampling={"temperature": 0})
    browser = page.browser
    browser.click(page.button("Settings"))
    browser.paste(".settings label:last-of-type textarea", json.dumps(TOOLS))
    browser.press("Escape")
    page.send("Call it")
    assert browser.texts(".message.assistant summary") == ["Thoughts", "Calls f"]
    assert browser.run(
        "return [...document.querySelectorAll('.message details')].every((fold) => !fold.open)"
    )
    browser.click(".message.assistant summary")
    browser.wait_for("document.querySelector('.thought').textContent === 'Let me see.'")
    assert json.loads(browser.text(".message.assistant pre")) == {"a": 1}
    scripted.fake.script = b"It is **7**."
    browser.fill(".result-form textarea", "seven")
    browser.click(".result-form .button")
    page.wait_idle()
    assert browser.texts(".message.tool summary") == ["Result of f"]
    assert page.messages()[-1] == ("assistant", "It is 7.")


def test_hostile_text_stays_text(open_page, scripted):
    script = (
        '<img src=x onerror="document.title=1"><script>document.title=2</script> [a](javascript:alert(1)) '
        "![pic](https://evil.example/p.png) [ok](https://example.org/)"
    )
    scripted.fake.script = script.encode()
    page = open_page(scripted.client, sampling={"temperature": 0})
    browser = page.browser
    page.send("Go")
    assert browser.run("return document.title") == "llamad"
    assert browser.find_all(".markdown img, .markdown script") == []
    links = browser.run(
        "return [...document.querySelectorAll('.markdown a')].map((a) => [a.href, a.rel, a.target, a.referrerPolicy])"
    )
    safe = ["noopener noreferrer", "_blank", "no-referrer"]
    assert links == [["https://evil.example/p.png", *safe], ["https://example.org/", *safe]]


def test_below_a_prefix(open_page):
    with (
        Faked(Fake(script=b"Yes."), "--api-prefix", "/llm") as server,
        open_page(server.client, prefix="llm/", sampling={"n_predict": 4}) as page,
    ):
        page.send("Hello")
        assert page.messages()[1] == ("assistant", "Yes.")


@pytest.fixture(scope="module")
def coder(tiny, tmp_path_factory):
    """A model that infills, and an adapter to choose."""
    adapter = write_lora(tmp_path_factory.mktemp("coder") / "style.gguf", tiny, 1)
    flags = ["-np", "1", "-c", "1024", "--alias", "base", "--lora", f"style={adapter}"]
    for at, name in enumerate(("pre", "suf", "mid")):
        flags += ["--override-kv", f"tokenizer.ggml.fim_{name}_token_id=int:{3 + at}"]
    with Live(*flags, model=tiny) as server:
        yield server


def test_infill_and_accept(open_page, coder):
    page = open_page(coder.client, path="infill", sampling={"temperature": 0})
    browser = page.browser
    browser.fill("main textarea", "def a():")
    browser.fill("main input[type=number]", "6")
    browser.press("Control", "Enter")
    browser.wait_for("document.querySelector('.stats').textContent.includes('tokens/s')")
    written = browser.text(".between")
    assert written.strip()
    browser.click(".row .button:nth-child(2)")
    assert browser.run("return document.querySelector('main textarea').value") == "def a():" + written


def test_a_model_is_chosen_from_several(open_page, coder):
    page = open_page(coder.client, sampling={"n_predict": 2})
    browser = page.browser
    assert browser.texts(".model-picker option") == ["base", "base:style"]
    browser.run(
        """const picker = document.querySelector('.model-picker select');
           picker.value = 'base:style';
           picker.dispatchEvent(new Event('change'));"""
    )
    page.send("Hello")
    told = json.loads(browser.run(EXPORT))
    assert [node.get("model") for node in told["conversations"][0]["nodes"].values()] == [None, "base:style"]
    browser.reload()
    browser.wait_for("document.querySelector('.model-picker select')?.value === 'base:style'")


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    model = write_model(folder / "model.gguf", "qwen2vl", np.float32)
    projector = write_projector(folder / "projector.gguf", "qwen2vl_merger", N_EMBD)
    with Live("-np", "1", "-c", "1024", "--no-warmup", "--mmproj", projector, model=model) as server:
        yield server


PASTE = """
const [css, kind, name, type, base64] = arguments;
const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], name, {type}));
const options = {bubbles: true, cancelable: true};
const event = kind === "drop" ? new DragEvent("drop", {...options, dataTransfer: data})
  : new ClipboardEvent("paste", {...options, clipboardData: data});
document.querySelector(css).dispatchEvent(event);
"""


def test_images_by_button_drop_and_paste(open_page, seeing, tmp_path):
    page = open_page(seeing.client, sampling={"n_predict": 4})
    browser = page.browser
    browser.wait_for("!document.querySelector('.composer-row .icon-button').hidden")
    file = tmp_path / "dot.png"
    file.write_bytes(image(1))
    browser.type(".composer input[type=file]", str(file))
    browser.find(".attachment:nth-child(1)")
    browser.run(PASTE, ".chat", "drop", "two.png", "image/png", base64.b64encode(image(2)).decode())
    browser.find(".attachment:nth-child(2)")
    browser.run(
        PASTE, "#composer", "paste", "three.jpg", "image/jpeg", base64.b64encode(image(3, "JPEG")).decode()
    )
    browser.find(".attachment:nth-child(3)")
    browser.click(page.button("Remove two.png"))
    assert browser.run("return [...document.querySelectorAll('.attachment img')].map((i) => i.alt)") == [
        "dot.png",
        "three.jpg",
    ]
    browser.run(PASTE, ".chat", "drop", "a.wav", "audio/wav", base64.b64encode(sound()).decode())
    browser.wait_for("document.querySelector('.composer .problem').textContent.includes('PNG')")
    page.send("What is it?")
    assert browser.find_all(".error") == []
    assert len(browser.find_all(".message.user img")) == 2
    told = json.loads(browser.run(EXPORT))
    assert [len(node.get("media", [])) for node in told["conversations"][0]["nodes"].values()] == [2, 0]


def test_sound(open_page, tiny, tmp_path):
    projector = write_projector(tmp_path / "ears.gguf", "gemma4ua", N_EMBD)
    file = tmp_path / "a.wav"
    file.write_bytes(sound())
    with (
        Live("-np", "1", "-c", "1024", "--mmproj", projector, model=tiny) as server,
        open_page(server.client, sampling={"n_predict": 4}) as page,
    ):
        page.browser.type(".composer input[type=file]", str(file))
        page.browser.find(".attachment audio")
        page.send("What is said?")
        assert page.browser.find_all(".error") == []
        assert len(page.browser.find_all(".message.user audio")) == 1


def test_a_model_without_eyes_says_so(open_page, scripted):
    page = open_page(scripted.client)
    page.browser.run(PASTE, ".chat", "drop", "a.png", "image/png", "AAAA")
    page.browser.wait_for("document.querySelector('.composer .problem').textContent.includes('text only')")


def test_a_browser_that_keeps_nothing_says_so(open_page, scripted):
    scripted.fake.script = b"Yes."
    page = open_page(scripted.client, sampling={"temperature": 0})
    browser = page.browser
    script = "Object.defineProperty(self, 'indexedDB', {value: null})"
    added = browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=script)
    page.go("")
    page.send("Hello")
    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    assert "keeps no conversations" in browser.text(".dock .problem")
    assert page.messages()[1] == ("assistant", "Yes.")
    browser.click(".new-chat")
    browser.click(".conversations a")
    browser.wait_for("document.querySelectorAll('.message').length === 2")  # as long as the page lives


def test_live_shows_what_was_computed_again(open_page, tiny):
    def ask(rules, **options):
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": "Hello?"}]
        body = {"messages": messages, "max_tokens": 2, **options}
        answer = server.client.post("/v1/chat/completions", body)
        assert answer.status == 200, answer.body

    rules = " ".join(f"Rule {i}: be brief." for i in range(40))
    with Live("-np", "1", "-c", "2048", "--metrics", "--slots", model=tiny) as server:
        ask(rules)
        with open_page(server.client, path="live") as page:
            browser = page.browser
            browser.find(".slots tbody tr")
            assert browser.find_all(".misses") == []
            assert browser.texts(".tile:not([hidden]) h3")[-1] == "Computed again"
            ask(rules.replace("Rule 3:", "<b>Law</b> 3:"))
            row = browser.wait(lambda: browser.texts(".misses tbody :is(th, td)"), "no row")
            assert row[0] == "0"
            assert int(row[1].replace(",", "")) >= 64
            assert row[2].startswith("system, token ")
            assert row[3] == "the prompt changed"
            assert row[4].lstrip().startswith("Rule 3:")
            assert row[5].lstrip().startswith("<b>Law</b> 3:")
            ask(rules, cache_prompt=False)
            browser.wait_for(
                "document.querySelector('.misses td:nth-child(4)').textContent.includes('did not use')"
            )
            ask(rules)
            browser.wait_for("!document.querySelector('.misses')")

"""The page of a server with many models: the choice of one, what is shown of them, loading and unloading by hand."""

import json
import os
import threading

import pytest
from support.browser import axe
from support.hub.server import Fault, HubServer
from support.live_daemon import Live, until

PRESET = """
[*]
ctx-size      = 1024
parallel      = 1
warmup        = off
default-model = second

[first]
model = {model}

[second]
model    = {model}
ctx-size = 512

[broken]
model = /none.gguf
"""
PICK = """
const picker = document.querySelector('.model-picker select');
picker.value = arguments[0];
picker.dispatchEvent(new Event('change'));
"""
EXPORT = (
    "return import(new URL('js/data/library.js', document.baseURI)).then((library) => library.exportText())"
)


@pytest.fixture(scope="module")
def preset(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "models.ini"
    path.write_text(PRESET.format(model=tiny))
    return path


def start(preset, *flags):
    environ = {"LLAMA_CACHE": str(preset.parent / "cache")}
    return Live("--models-preset", str(preset), *flags, env=environ)


@pytest.fixture
def router(preset):
    with start(preset, "--metrics", "--slots") as server:
        yield server


def weights(folder):
    """Return the GGUF files below a folder. Folders may go meanwhile, unlike in rglob()."""
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".gguf")]


def statuses(client):
    return {one["id"]: one["status"]["value"] for one in client.get("/models").json["data"]}


def options(*texts):
    """Return a condition: the list to choose from has these lines."""
    shown = "[...document.querySelectorAll('.model-picker option')].map((one) => one.textContent).join('|')"
    return f"{shown} === {json.dumps('|'.join(texts))}"


def test_a_model_is_chosen_and_loaded_by_a_chat(router, open_page):
    page = open_page(router.client, sampling={"n_predict": 2})
    browser = page.browser
    browser.wait_for(options("broken (failed)", "first (not loaded)", "second (not loaded)"))
    assert browser.run("return document.querySelector('.model-picker select').value") == "second"
    assert browser.run("return document.querySelector('.banner').hidden")
    assert set(statuses(router.client).values()) == {"unloaded"}  # looking at a page loads nothing
    browser.run(PICK, "first")
    page.send("Hello")
    assert browser.find_all(".error") == []
    browser.wait_for(options("broken (failed)", "first", "second (not loaded)"))
    told = json.loads(browser.run(EXPORT))
    assert [node.get("model") for node in told["conversations"][0]["nodes"].values()] == [None, "first"]
    browser.reload()
    browser.wait_for("document.querySelector('.model-picker select')?.value === 'first'")
    browser.click(".new-chat")
    browser.wait_for("document.querySelector('.empty-state p').textContent.includes('1,024 tokens')")


def test_models_are_loaded_and_unloaded_by_hand(router, open_page):
    page = open_page(router.client)
    browser = page.browser
    browser.click(page.button("Models"))
    browser.wait_for("document.querySelectorAll('.models li').length === 3")
    assert browser.texts(".models .state") == ["failed", "not loaded", "not loaded"]
    assert "/none.gguf" in browser.text(".models .problem:not([hidden])")
    browser.click(page.button("Load second"))
    browser.find(page.button("Unload second"))
    assert statuses(router.client)["second"] == "loaded"
    browser.click(page.button("Unload second"))
    browser.find(page.button("Load second"))
    until(lambda: statuses(router.client)["second"] == "unloaded")
    page.expected += ("500 (Internal Server Error)",)
    browser.click(page.button("Load broken"))
    browser.wait_for(
        "document.querySelector('dialog > .dialog-body > .problem').textContent.includes('/none.gguf')"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_is_for_everybody(router, open_page, theme):
    """By keyboard, on a phone, and as axe judges it."""
    page = open_page(router.client, theme=theme)
    browser = page.browser
    browser.resize(390, 844, is_phone=True)
    browser.click(page.button("Models"))
    browser.wait_for("document.querySelectorAll('.models li').length === 3")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    try:
        assert axe.problems(browser) == []
    except axe.Unavailable as reason:
        pytest.skip(str(reason))
    browser.run(f"document.querySelector('{page.button('Load second')}').focus()")
    browser.press("Enter")
    browser.find(page.button("Unload second"))
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "Unload second"


def test_what_others_do_is_shown_at_once(router, open_page):
    """The page follows the server's events, and shows why the chosen model cannot be used."""
    page = open_page(router.client)
    browser = page.browser
    browser.wait_for(options("broken (failed)", "first (not loaded)", "second (not loaded)"))
    router.client.post("/models/load", {"model": "second"})
    browser.wait_for(options("broken (failed)", "first (not loaded)", "second"))
    router.client.post("/models/unload", {"model": "second"})
    browser.wait_for(options("broken (failed)", "first (not loaded)", "second (not loaded)"))
    browser.run(PICK, "broken")
    browser.wait_for("document.querySelector('.banner.bad').textContent.includes('/none.gguf')")
    browser.run(PICK, "second")
    browser.wait_for("document.querySelector('.banner').hidden")


def test_the_live_view_is_about_the_chosen_model(router, open_page):
    router.client.post("/completion", {"model": "first", "prompt": "x", "n_predict": 2})
    page = open_page(router.client, path="live")
    browser = page.browser
    browser.wait_for("document.querySelector('.note')?.textContent === 'second is not loaded.'")
    browser.run(PICK, "first")
    browser.wait_for("document.querySelectorAll('.slots tbody tr').length === 1")
    assert browser.texts("main h2") == ["Live: first"]
    assert browser.find_all(".note") == []
    assert statuses(router.client)["second"] == "unloaded"


def test_a_model_that_sleeps_is_woken_by_a_chat(open_page, tiny, tmp_path):
    preset = tmp_path / "models.ini"
    preset.write_text(f"[drowsy]\nmodel = {tiny}\nctx-size = 512\nsleep-idle-seconds = 1\n")
    with start(preset) as server, open_page(server.client, sampling={"n_predict": 2}) as page:
        browser = page.browser
        browser.wait_for(options("drowsy (not loaded)"))  # a list, though there is one model
        for n in (2, 4):
            page.send("Hello")
            assert browser.find_all(".error") == []
            assert len(page.messages()) == n
            browser.wait_for(options("drowsy (asleep)"))


def test_with_a_key(open_page, preset):
    """Without the key the list is shown, but not why a model failed, and nothing can be loaded."""
    with start(preset, "--api-key", "secret") as server, open_page(server.client) as page:
        page.expected += ("401 (Unauthorized)",)
        browser = page.browser
        browser.wait_for(options("broken (failed)", "first (not loaded)", "second (not loaded)"))
        browser.click(page.button("Models"))
        browser.find(page.button("Load second"))
        assert "/none.gguf" not in browser.text(".models .problem:not([hidden])")
        browser.click(page.button("Load second"))
        browser.type("dialog input[type=password]", "secret")
        browser.press("Enter")
        browser.find(page.button("Unload second"))
        browser.wait_for("document.querySelector('.models .problem').textContent.includes('/none.gguf')")


REPO = "org/Tiny-GGUF"
NAME = f"{REPO}:Q8_0"


@pytest.fixture
def hub(tiny):
    server = HubServer()
    with open(tiny, "rb") as file:
        server.repos[REPO] = {"README.md": b"", "Tiny-Q8_0.gguf": file.read()}
    yield server
    server.close()


def start_with_hub(preset, hub, cache, *flags):
    environ = {"LLAMA_CACHE": str(cache), "HF_HUB_CACHE": str(cache)}
    environ |= {"HF_ENDPOINT": hub.url, "MODEL_ENDPOINT": hub.url}
    return Live("--models-preset", str(preset), *flags, env=environ)


def listed(*names):
    """Return a condition: the dialog lists these models."""
    shown = "[...document.querySelectorAll('.models .model-id')].map((one) => one.textContent).join('|')"
    return f"{shown} === {json.dumps('|'.join(names))}"


def test_a_model_is_downloaded_and_deleted(preset, hub, tmp_path, open_page):
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    with start_with_hub(preset, hub, tmp_path) as server, open_page(server.client) as page:
        browser = page.browser
        browser.click(page.button("Models"))
        browser.wait_for(listed("broken", "first", "second"))
        browser.type(".download input", NAME)
        browser.press("Enter")
        browser.wait_for(listed("broken", "first", NAME, "second"))
        browser.wait_for("document.querySelector('.models .downloading')?.textContent.includes('%')")
        assert browser.run("return document.querySelector('.download input').value") == ""
        browser.find(page.button(f"Cancel {NAME}"))
        assert not browser.run(
            f"return [...document.querySelectorAll({json.dumps(page.button(f'Delete {NAME}'))})]"
            ".some((one) => !one.hidden)"
        )
        hold.set()
        browser.find(page.button(f"Load {NAME}"))
        browser.wait_for(
            f"document.querySelector({json.dumps(page.button(f'Delete {NAME}'))})?.hidden === false"
        )
        # A file of the operator's cannot be deleted from here.
        assert browser.run(f"return document.querySelector({json.dumps(page.button('Delete first'))}).hidden")
        browser.click(page.button(f"Load {NAME}"))
        browser.find(page.button(f"Unload {NAME}"))
        browser.click(page.button(f"Delete {NAME}"))
        browser.wait_for("document.querySelectorAll('dialog').length === 2")
        browser.click("dialog:last-of-type .button.danger")
        browser.wait_for(listed("broken", "first", "second"))
        until(lambda: not weights(tmp_path))


def test_why_a_model_cannot_be_downloaded(preset, hub, tmp_path, open_page):
    """What the hub does not have is refused at once; a download that fails says why later."""
    with start_with_hub(preset, hub, tmp_path) as server, open_page(server.client) as page:
        page.expected += ("400 (Bad Request)",)
        browser = page.browser
        browser.click(page.button("Models"))
        problem = "document.querySelector('dialog > .dialog-body > .problem').textContent"
        browser.type(".download input", "org/unknown:Q8_0")
        browser.press("Enter")
        browser.wait_for(f"{problem}.includes('org/unknown')")
        assert browser.run("return document.querySelector('.download input').value") == "org/unknown:Q8_0"
        hub.always["/blobs/"] = Fault(garbled=True)
        hub.always[f"/{REPO}/resolve"] = Fault(status=404)
        browser.run("document.querySelector('.download input').value = arguments[0]", NAME)
        browser.run("document.querySelector('.download').requestSubmit()")
        browser.wait_for(f"{problem}.startsWith({json.dumps(NAME + ': ')})")
        browser.wait_for(listed("broken", "first", "second"))


def test_a_download_needs_the_key(preset, hub, tmp_path, open_page):
    with (
        start_with_hub(preset, hub, tmp_path, "--api-key", "secret") as server,
        open_page(server.client) as page,
    ):
        page.expected += ("401 (Unauthorized)",)
        browser = page.browser
        browser.click(page.button("Models"))
        browser.wait_for(listed("broken", "first", "second"))
        browser.type(".download input", NAME)
        browser.press("Enter")
        browser.type("dialog input[type=password]", "secret")
        assert NAME not in statuses(server.client)
        browser.press("Enter")
        browser.find(page.button(f"Load {NAME}"))
        browser.run("sessionStorage.clear(); localStorage.removeItem('llamad.key')")
        browser.wait_for(
            f"document.querySelector({json.dumps(page.button(f'Delete {NAME}'))})?.hidden === false"
        )
        browser.click(page.button(f"Delete {NAME}"))
        browser.click("dialog:last-of-type .button.danger")
        browser.wait_for("document.querySelector('dialog input[type=password]')")
        assert NAME in statuses(server.client)

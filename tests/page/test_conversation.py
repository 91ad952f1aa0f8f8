"""A conversation in a browser, with the default model: written, stopped, edited, branched, kept."""

import json

import pytest

pytestmark = pytest.mark.real_model

ANSWER = ".message.assistant:last-child"
QUESTION = ".message.user"


def test_a_whole_conversation_is_streamed_and_kept(page):
    browser = page.browser
    assert browser.text(".empty-state h2")
    page.send("What is the capital of France?")
    first = page.messages()
    assert first[0] == ("user", "What is the capital of France?")
    assert first[1][0] == "assistant"
    assert len(first[1][1]) > 20
    assert "tokens/s" in browser.text(f"{ANSWER} .stats")
    page.send("And of Italy?")
    assert [role for role, _ in page.messages()] == ["user", "assistant"] * 2
    assert "cached" in browser.text(f"{ANSWER} .stats")  # the second prompt begins with the first
    before = page.messages()
    assert browser.texts(".conversations a") == ["What is the capital of France?"]
    browser.reload()
    browser.wait_for("document.querySelectorAll('.message').length === 4")
    assert page.messages() == before


def test_stop_and_continue(page):
    browser = page.browser
    browser.run('localStorage.setItem("llamad.sampling", JSON.stringify({n_predict: 2000, temperature: 0}))')
    page.send("Write a very long story about a lighthouse.", wait=False)
    browser.wait_for(f"(document.querySelector('{ANSWER} .markdown')?.textContent ?? '').length > 20")
    assert browser.run("return document.querySelector('.send').getAttribute('aria-label')") == "Stop"
    browser.press("Escape")
    page.wait_idle()
    stopped = page.messages()[1][1]
    assert "stopped" in browser.text(f"{ANSWER} .stats")
    browser.run('localStorage.setItem("llamad.sampling", JSON.stringify({n_predict: 5, temperature: 0}))')
    browser.click(page.button("Continue", of=ANSWER))
    page.wait_idle()
    continued = page.messages()[1][1]
    assert continued.startswith(stopped)
    assert len(continued) > len(stopped)


def test_edit_regenerate_and_branches(page):
    browser = page.browser
    page.send("Name one fruit.")
    browser.click(page.button("Write again", of=ANSWER))
    page.wait_idle()
    assert page.versions() == ["2/2"]
    browser.click(page.button("Edit message", of=QUESTION))
    browser.fill(f"{QUESTION} textarea", "Name one river.")
    browser.press("Control", "Enter")
    page.wait_idle()
    assert page.messages()[0] == ("user", "Name one river.")
    assert page.versions() == ["2/2"]  # of the question; its answer is the only one
    browser.click(page.button("Previous version", of=QUESTION))
    assert page.messages()[0] == ("user", "Name one fruit.")
    assert page.versions() == ["1/2", "2/2"]
    browser.click(page.button("Edit message", of=ANSWER))
    browser.fill(f"{ANSWER} textarea", "A **quince**.")
    browser.click(f"{ANSWER} .button.primary")
    assert page.messages()[1] == ("assistant", "A quince.")
    assert page.versions() == ["1/2", "3/3"]
    browser.click(page.button("Delete message", of=ANSWER))
    browser.click("dialog .danger")
    browser.wait_for("document.querySelectorAll('.branches')[1].textContent === '2/2'")


def test_rename_export_delete_import(page):
    browser = page.browser
    page.send("Hello")
    before = page.messages()
    browser.click(".conversations .icon-button")
    browser.click("dialog .button:nth-child(1)")
    browser.fill("dialog input", "A greeting")
    browser.press("Enter")
    browser.wait_for("document.querySelector('.conversations a')?.textContent === 'A greeting'")
    browser.click(page.button("Export all conversations"))
    file = browser.folder / "conversations.json"
    browser.wait(file.exists, "nothing was downloaded")
    exported = json.loads(file.read_text())
    assert exported["conversations"][0]["title"] == "A greeting"
    browser.click(".conversations .icon-button")
    browser.click("dialog .danger-quiet")
    browser.click("dialog .danger")
    browser.wait_for("document.querySelectorAll('.conversations a').length === 0")
    assert page.messages() == []
    browser.type("nav input[type=file]", str(file))
    browser.click("dialog .primary")
    browser.click(".conversations a")
    browser.wait_for("document.querySelectorAll('.message').length === 2")
    assert page.messages() == before
    file.unlink()


def test_settings_shape_the_answer(page):
    browser = page.browser
    browser.click(page.button("Settings"))
    shown = browser.run(
        "return [...document.querySelectorAll('.number-fields label')].map((l) => [l.firstChild.textContent,"
        " l.querySelector('input').placeholder])"
    )
    assert {"Temperature": "0.8", "Top K": "40", "Top P": "0.95", "Seed": "-1"}.items() <= dict(shown).items()
    browser.run("document.querySelectorAll('dialog select')[0].focus()")
    browser.run(
        """const format = document.querySelectorAll('dialog select')[0];
           format.value = 'schema';
           format.dispatchEvent(new Event('change', {bubbles: true}));"""
    )
    schema = {
        "type": "object",
        "required": ["ok"],
        "properties": {"ok": {"const": 42}},
        "additionalProperties": False,
    }
    browser.fill(".settings label:nth-of-type(3) textarea", json.dumps(schema))
    browser.press("Escape")
    browser.wait_for("document.querySelector('.chip')?.textContent === 'JSON schema'")
    page.send("Anything")
    assert json.loads(page.messages()[1][1]) == {"ok": 42}


def test_a_schema_that_is_no_json_is_said_before_anything_is_sent(open_page, live):
    page = open_page(live.client)
    browser = page.browser
    browser.click(page.button("Settings"))
    browser.fill(".settings label:last-of-type textarea", "[{")
    assert browser.text(".settings .problem:not(:empty)")
    browser.press("Escape")
    page.send("Hello")
    assert "list of tools is not valid JSON" in browser.text(".error")


def test_an_error_of_the_server_is_shown_and_can_be_tried_again(page):
    browser = page.browser
    page.expected += ("400 (Bad Request)",)
    browser.paste("#composer", "word " * 9000)
    browser.click(".send")
    page.wait_idle()
    assert "context" in browser.text(".error")
    browser.click(".error .button")
    page.wait_idle()
    assert page.versions() == ["2/2"]

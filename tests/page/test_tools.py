"""The views beside the chat, with the default model: completion with alternatives, infill, live."""

import pytest

pytestmark = pytest.mark.real_model


def tokens(browser):
    return browser.texts(".token")


def test_a_completion_token_by_token_and_another_way_on(page):
    browser = page.browser
    page.go("completion")
    browser.fill("main textarea", "Once upon a time")
    browser.fill("main input[type=number]", "8")
    browser.press("Control", "Enter")
    browser.wait_for(
        "document.querySelectorAll('.token').length === 8 && !document.querySelector('.primary.busy')"
    )
    before = tokens(browser)
    browser.run("document.querySelectorAll('.token')[0].focus()")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    browser.press("Enter")
    choices = browser.texts(".choice code")
    assert len(choices) == 10
    browser.press("ArrowDown")  # the model took the first: the temperature is 0
    browser.press("ArrowDown")
    other = browser.run("return document.activeElement.querySelector('code').textContent").replace("␣", " ")
    browser.press("Enter")
    browser.wait_for(
        "document.querySelectorAll('.token').length === 11 && !document.querySelector('.primary.busy')"
    )
    after = tokens(browser)
    assert after[:2] == before[:2]
    assert (after[2], after[2] != before[2]) == (other, True)
    browser.click(".output .button")
    assert browser.run(
        "return document.querySelector('main textarea').value"
    ) == "Once upon a time" + "".join(after).replace("⏎", "")


def test_a_completion_can_be_stopped(page):
    browser = page.browser
    page.go("completion")
    browser.fill("main textarea", "One, two, three,")
    browser.fill("main input[type=number]", "2000")
    browser.click(".primary")
    browser.wait_for("document.querySelectorAll('.token').length > 2")
    browser.click(".primary")
    browser.wait_for("document.querySelector('.primary').textContent === 'Go on'")


def test_infill_says_what_the_model_lacks(page):
    browser = page.browser
    page.expected += ("501 (Not Implemented)",)
    page.go("infill")
    browser.click(".primary")
    browser.wait_for("document.querySelector('.problem').textContent.includes('cannot infill')")


def test_live(page, client):
    browser = page.browser
    page.go("live")
    browser.find(".slots tbody tr:nth-child(4)")
    events = client.events(
        "/completion", {"prompt": "x", "n_predict": 400, "stream": True, "ignore_eos": True}
    )
    next(events)
    browser.wait_for("[...document.querySelectorAll('.state')].some((e) => e.textContent === 'writing')")
    browser.wait_for("document.querySelectorAll('.chart-number')[2].textContent === '1 of 4'")
    browser.wait_for("parseFloat(document.querySelectorAll('.chart-number')[0].textContent) > 0")
    assert "tokens/s" in browser.run("return document.querySelector('.tile svg').getAttribute('aria-label')")
    events.close()

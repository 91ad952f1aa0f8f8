"""The page for everybody: by keyboard alone, on a phone, in the dark, and as axe judges it."""

import pytest
from support.browser import axe

pytestmark = pytest.mark.real_model

PHONE = (390, 844)
FOCUSED = """const e = document.activeElement;
if (e === document.body) return '';
return e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent"""


@pytest.fixture(scope="module")
def judge():
    try:
        axe.source()
    except axe.Unavailable as reason:
        pytest.skip(str(reason))
    return axe.problems


def tab_to(browser, label, *, back=False):
    """Press Tab until what has this name has the focus."""
    for _ in range(60):
        browser.press(*(["Shift"] if back else []), "Tab")
        if browser.run(FOCUSED).startswith(label):
            return
    raise AssertionError(f"Tab does not lead to {label!r}")


def test_by_keyboard_alone(page):
    browser = page.browser
    browser.write("Hi there")  # the composer has the focus
    browser.press("Enter")
    page.wait_idle()
    assert page.messages()[0] == ("user", "Hi there")
    tab_to(browser, "Write again", back=True)
    browser.press("Enter")
    page.wait_idle()
    assert page.versions() == ["2/2"]
    browser.run("document.querySelector('#composer').focus()")
    tab_to(browser, "Previous version", back=True)
    browser.press("Enter")
    assert page.versions() == ["1/2"]
    assert browser.run(FOCUSED) == "Next version"  # the focus is not lost with the button that was used up
    tab_to(browser, "Message")
    browser.press("ArrowUp")
    assert browser.run("return document.activeElement.value") == "Hi there"
    browser.press("Escape")
    assert browser.run(FOCUSED) == "Edit message"
    browser.press("Alt", "s")
    browser.find("dialog[open]")
    browser.press("Escape")
    browser.wait_for("!document.querySelector('dialog')")
    assert browser.run(FOCUSED) == "Edit message"  # where it was
    browser.press("Alt", "n")
    browser.find(".empty-state")
    assert browser.run("return document.activeElement.id") == "composer"


def test_the_skip_link_and_a_visible_focus(page):
    browser = page.browser
    browser.run("document.activeElement.blur()")
    tab_to(browser, "Skip to the content")
    assert browser.run("return document.activeElement.getBoundingClientRect().top >= 0")
    browser.press("Tab")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Shift", "Tab")
    browser.press("Enter")
    assert browser.run("return document.activeElement.id") == "composer"


def test_answers_are_announced(page):
    page.send("Hi")
    said = page.browser.texts("#announcements p")
    assert said[0] == "The answer is being written"
    assert said[-1] == "The answer is complete"
    assert page.messages()[1][1].strip()[:10] in "".join(said)


def test_light_and_dark(page):
    browser = page.browser

    def is_dark():
        return browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(23, 22, 20)"

    assert not is_dark()
    browser.prefer(prefers_color_scheme="dark")
    assert is_dark()
    browser.click(page.button("Theme: as the system"))
    assert not is_dark()
    browser.reload()
    browser.wait_for("document.documentElement.dataset.ready !== undefined")
    assert not is_dark()  # the choice is kept
    browser.click(page.button("Theme: light"))
    browser.prefer(prefers_color_scheme="light")
    assert is_dark()


def test_on_a_phone(page):
    browser = page.browser
    browser.resize(*PHONE, is_phone=True)
    browser.reload()
    browser.find(".empty-state")
    page.send("Hi")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    small = browser.run(
        """return [...document.querySelectorAll('button')].filter((b) => b.offsetParent && !b.closest('[inert]'))
             .filter((b) => b.offsetWidth < 24 || b.offsetHeight < 24).map((b) => b.outerHTML)"""
    )
    assert small == []
    assert browser.run("return document.querySelector('nav').inert")
    browser.click(page.button("Conversations"))
    browser.wait_for("document.querySelector('nav').getBoundingClientRect().left === 0")
    assert browser.run("return document.querySelector('.content').inert")
    browser.press("Escape")  # the focus is in the drawer
    browser.wait_for("document.querySelector('nav').getBoundingClientRect().right <= 0")
    browser.click(page.button("Conversations"))
    browser.click(".conversations a")
    browser.wait_for("document.querySelector('nav').getBoundingClientRect().right <= 0")


@pytest.mark.parametrize(("scheme", "size"), [("light", None), ("dark", PHONE)])
def test_axe_finds_nothing(page, judge, scheme, size):
    browser = page.browser
    browser.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    if size:
        browser.resize(*size, is_phone=True)
        browser.reload()
        browser.find(".empty-state")
    assert judge(browser) == []
    page.send("Hi")
    browser.click(page.button("Write again", of=".message.assistant"))
    page.wait_idle()
    assert judge(browser) == []
    browser.click(page.button("Settings"))
    assert judge(browser) == []
    page.go("completion")
    browser.fill("main textarea", "Once")
    browser.click(".primary")
    browser.wait_for("document.querySelectorAll('.token').length > 3")
    browser.click(".token")
    assert judge(browser) == []
    if size:
        return  # the other views have nothing more that a phone or the dark would change
    page.go("infill")
    assert judge(browser) == []
    page.go("live")
    browser.find(".slots")
    assert judge(browser) == []

"""A browser for a worker's tests of the page, and the page, opened anew for each test."""

import pytest
from support.browser.page import ChatPage
from support.browser.webdriver import Browser, missing


@pytest.fixture(scope="session")
def browser():
    if reason := missing():
        pytest.skip(reason)
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def open_page(browser):
    """A function that opens the page of a server, with nothing kept from before. What the page wrote to its console,
    but for what a test expects, fails the test."""
    opened = []

    def open_(client, **options):
        page = ChatPage(browser, client, **options)
        opened.append(page)
        return page

    yield open_
    for page in opened:
        page.end()


@pytest.fixture
def page(live, open_page):
    """The page of the shared server with the default model; answers are short, and always the same."""
    return open_page(live.client, sampling={"n_predict": 24, "temperature": 0})

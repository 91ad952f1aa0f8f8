"""Owns the page as a person sees it: what is written in the chat, sent, stopped, and what is shown."""

from __future__ import annotations

import json
from typing import Any, Self

from support.browser.webdriver import Browser
from support.http_client import Client

CLEAR = """
localStorage.clear();
sessionStorage.clear();
return new Promise((done) => {
  const request = indexedDB.deleteDatabase("llamad");
  request.onsuccess = request.onerror = request.onblocked = () => done(true);
});
"""
IDLE = "!document.querySelector('.send.busy') && !document.querySelector('.message[aria-busy=true]')"


class ChatPage:
    """A fresh page: `kept` are values that the browser has kept from an earlier visit. Within `with` it is left before
    its server ends; else what it asks a server that is gone stands in the browser's log."""

    def __init__(
        self, browser: Browser, client: Client, *, path: str = "", prefix: str = "", **kept: Any
    ) -> None:
        self.browser = browser
        self.address = f"http://{client.host}:{client.port}/{prefix}"
        self.expected: tuple[str, ...] = ("favicon",)  # what the console may say
        browser.resize(1280, 860)
        browser.prefer(prefers_color_scheme="light")
        browser.open(self.address + "completion.js")  # a page of this origin that runs nothing
        browser.run(CLEAR)
        for name, value in kept.items():
            browser.run(
                "localStorage.setItem(arguments[0], arguments[1])", f"llamad.{name}", json.dumps(value)
            )
        browser.log()
        self.left = False
        self.go(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def go(self, path: str) -> None:
        """Open a view, as from a bookmark."""
        self.browser.open("about:blank")
        self.browser.open(f"{self.address}#/{path}" if path else self.address)
        self.browser.wait_for("document.documentElement.dataset.ready !== undefined")

    def send(self, text: str, *, wait: bool = True) -> None:
        self.browser.fill("#composer", text)
        self.browser.click(".send")
        if wait:
            self.wait_idle()

    def wait_idle(self) -> None:
        self.browser.wait_for(IDLE)

    def messages(self) -> list[tuple[str, str]]:
        """Who said what, of the branch that is shown."""
        return [
            (role, text)
            for role, text in self.browser.run(
                """return [...document.querySelectorAll(".message")].map((message) => [
                     message.classList[1], message.querySelector(".message-body").textContent])"""
            )
        ]

    def button(self, label: str, *, of: str = "") -> str:
        """The selector of a button by its name, below another selector."""
        return f'{of} [aria-label="{label}"]'.strip()

    def versions(self) -> list[str]:
        return self.browser.texts(".branches span")

    def end(self) -> None:
        """Leave the page; what it wrote to its console fails the test, but for what was expected."""
        if self.left:
            return
        self.left = True
        said = [line for line in self.browser.log() if not any(part in line for part in self.expected)]
        self.browser.open("about:blank")
        assert said == [], said

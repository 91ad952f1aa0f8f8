"""Owns a headless Chromium, driven over the WebDriver protocol: chromedriver, which comes with it, and plain HTTP.
Selenium would be a package of 10 MB, and its manager looks for drivers on the network, for these few commands."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

WAIT_SECONDS = 60
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how the protocol marks a reference to an element
KEYS = {
    "Enter": "\ue007",
    "Tab": "\ue004",
    "Escape": "\ue00c",
    "ArrowUp": "\ue013",
    "ArrowDown": "\ue015",
    "ArrowLeft": "\ue012",
    "ArrowRight": "\ue014",
    "Shift": "\ue008",
    "Control": "\ue009",
    "Alt": "\ue00a",
}
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en",
    "--window-size=1280,860",
)


def missing() -> str:
    """Why there is no browser here, or an empty text."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return (
        f"there is no {' and no '.join(lacking)} here (Debian: chromium, chromium-driver)" if lacking else ""
    )


class DriverError(Exception):
    """The browser refused a command."""


class Browser:
    """One window. Elements are found by CSS; what is not there yet is waited for."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="llamad-browser-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        self._port = 0
        for line in self._driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self._port = int(found[1])
                break
        options = {
            "args": [*FLAGS, f"--user-data-dir={self.folder / 'profile'}"],
            "prefs": {"download.default_directory": str(self.folder)},
        }
        chrome = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._path = ""
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": chrome}})
        self._path = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * WAIT_SECONDS)
        try:
            data = None if method == "GET" else json.dumps(body or {})
            connection.request(method, self._path + path, data, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise DriverError(f"{value['error']}: {value.get('message', '').splitlines()[0]}")
        return value

    def open(self, address: str) -> None:
        self._ask("POST", "/url", {"url": address})

    def reload(self) -> None:
        self._ask("POST", "/refresh")

    def run(self, script: str, *arguments: Any) -> Any:
        """The result of a script, a function's body; a promise is awaited. Not bound by the page's policy."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def find(self, css: str) -> str:
        """The first element of a selector, as soon as there is one."""
        return self.wait(lambda: self.find_all(css), f"no {css}")[0]

    def find_all(self, css: str) -> list[str]:
        elements = self._ask("POST", "/elements", {"using": "css selector", "value": css})
        return [element[ELEMENT] for element in elements]

    def text(self, css: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", css)

    def texts(self, css: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def click(self, css: str) -> None:
        """Click the first element that a selector finds, when it can be clicked."""

        def clicked() -> bool:
            try:
                self._ask("POST", f"/element/{self.find(css)}/click")
            except DriverError as error:
                if "intercepted" in str(error) or "stale" in str(error) or "not interactable" in str(error):
                    return False
                raise
            return True

        self.wait(clicked, f"{css} cannot be clicked")

    def type(self, css: str, text: str) -> None:
        self._ask("POST", f"/element/{self.find(css)}/value", {"text": text})

    def fill(self, css: str, text: str) -> None:
        """Replace the text of a field."""
        self._ask("POST", f"/element/{self.find(css)}/clear")
        self.type(css, text)

    def paste(self, css: str, text: str) -> None:
        """Put a long text into a field at once: keys would take minutes."""
        script = "const [e, t] = arguments; e.value = t; e.dispatchEvent(new Event('input', {bubbles: true}))"
        self.run(script, {ELEMENT: self.find(css)}, text)

    def press(self, *names: str) -> None:
        """Keys for whatever has the focus; all but the last are held."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def write(self, text: str) -> None:
        """Type a text into whatever has the focus."""
        for letter in text:
            self.press(letter)

    def wait(self, condition: Any, what: str) -> Any:
        """Until a condition holds; returns what it returned."""
        t_end = time.monotonic() + WAIT_SECONDS
        while not (value := condition()):
            assert time.monotonic() < t_end, (
                f"{what}; the page: {self.text('main')[:500]!r}, log: {self.log()}"
            )
            time.sleep(0.03)
        return value

    def wait_for(self, script: str, *arguments: Any) -> Any:
        """Until a script, an expression, is true."""
        return self.wait(lambda: self.run(f"return {script}", *arguments), script)

    def log(self) -> list[str]:
        """What the page wrote to its console, and what the browser refused, since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=is_phone)

    def prefer(self, **features: str) -> None:
        """What the person prefers: prefers_color_scheme="dark", prefers_reduced_motion="reduce"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.devtools("Emulation.setEmulatedMedia", features=listed)

    def screenshot(self) -> bytes:
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def close(self) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(WAIT_SECONDS)
            assert self._driver.stdout is not None
            self._driver.stdout.close()
            self._folder.cleanup()

"""Write docs/images/: the page on a desktop and a phone, light and dark. `.venv/bin/python tests/tools/screenshots.py`

The chat's answer is scripted, for the default model is too small to say much; the other views show that model.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from PIL import Image  # noqa: E402
from support.browser.page import ChatPage  # noqa: E402
from support.browser.webdriver import Browser  # noqa: E402
from support.fake_daemon import Faked  # noqa: E402
from support.live_daemon import Live  # noqa: E402

from llamad.engine.testing.fake import Fake  # noqa: E402

FOLDER = ROOT / "docs" / "images"
BYTES_MAX = 200_000
TOKEN_US = 12_000
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> #}"
QUESTION = "Explain how a prefix cache makes a second question faster."
ANSWER = '''<think>Short, with an example.</think>A prefix cache keeps what the model computed for the *beginning* of \
a prompt. If the next one begins with the same words, only the **new part** is computed:

| turn | prompt | computed |
|---|--:|--:|
| 1 | 812 | 812 |
| 2 | 1,034 | 222 |

```python
def shared(a: list[int], b: list[int]) -> int:
    """Tokens that two prompts begin with."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n  # the rest is prefilled
```

1. A chat repeats its history with every turn.
2. System prompts are shared by all chats.
'''


def keep(browser: Browser, name: str) -> None:
    """With 256 colours, which a page like this does not exceed by much, and half the bytes."""
    time.sleep(0.4)  # transitions end
    shot = Image.open(io.BytesIO(browser.screenshot())).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    path = FOLDER / f"{name}.png"
    shot.save(path, optimize=True)
    assert path.stat().st_size < BYTES_MAX, f"{path} is too large"
    print(path.relative_to(ROOT), path.stat().st_size)


def chats(browser: Browser) -> None:
    fake = Fake(n_ctx=2048, script=ANSWER.encode(), token_us=TOKEN_US)
    with Faked(fake, "--chat-template", TEMPLATE, "--alias", "scripted", n_ctx=2048) as server:
        page = ChatPage(browser, server.client, sampling={"temperature": 0})
        page.send(QUESTION)
        keep(browser, "chat")
        browser.prefer(prefers_color_scheme="dark")
        keep(browser, "chat-dark")
        browser.resize(390, 780, is_phone=True)
        browser.prefer(prefers_color_scheme="light")
        browser.reload()
        browser.find(".message")
        keep(browser, "chat-phone")


def tools(browser: Browser) -> None:
    with Live("-np", "4", "-c", "8192", "--slots", "--metrics", "--alias", "SmolLM2-135M") as server:
        page = ChatPage(browser, server.client, sampling={"seed": 7}, path="completion")
        browser.fill("main textarea", "Once upon a time, in a small village by the sea,")
        browser.click(".primary")
        browser.wait_for("document.querySelectorAll('.token').length === 64")
        browser.click(".token:nth-child(8)")
        keep(browser, "completion")
        page.go("live")
        for n in (150, 250, 100):
            server.client.complete("A story:", n_predict=n, ignore_eos=True)
        keep(browser, "live")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    browser = Browser()
    try:
        chats(browser)
        tools(browser)
    finally:
        browser.close()


if __name__ == "__main__":
    main()

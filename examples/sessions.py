"""Park a conversation in the server's memory, use its slot for something else, and go on where it was.

Needs a server started with --slots: python sessions.py
"""

import os

import requests

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
SLOT, SESSION = 0, 1815
STORY = (
    "Ada had a cat named Byron. Byron liked to sleep on her papers, most of all on long tables of numbers. "
)


def post(path, **body):
    response = requests.post(f"{URL}{path}", json=body, timeout=600)
    if not response.ok:
        raise SystemExit(response.json()["error"]["message"])
    return response.json()


def complete(prompt):
    result = post("/completion", prompt=prompt, n_predict=16, temperature=0, id_slot=SLOT)
    timings = result["timings"]
    print(f"[read {timings['prompt_n']} tokens, {timings['cache_n']} were there] {result['content']!r}")


complete(STORY + "One day the cat")
saved = post(f"/sessions/{SESSION}?action=save&slot={SLOT}")
print(f"saved {saved['n_tokens']} tokens, {saved['n_bytes'] // 1024} KiB")

post(f"/slots/{SLOT}?action=erase")
complete("Something else entirely:")

restored = post(f"/sessions/{SESSION}?action=restore&slot={SLOT}")
print(f"restored {restored['n_bytes_read'] // 1024} KiB")
complete(STORY + "One day the cat")
post(f"/sessions/{SESSION}?action=remove")

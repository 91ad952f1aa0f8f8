"""Asks several models the same question, loads each when its turn comes, and shows what happens to them meanwhile.

Needs a server with many models: python many_models.py "Say hello." chat editor
"""

import json
import os
import sys
import threading

import requests

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")


def watch(response):
    """Print the events of the server: statuses of models, and how far their loads are."""
    for line in response.iter_lines():
        if line.startswith(b"data: "):
            event = json.loads(line[len(b"data: ") :])
            data = event.get("data") or {}
            progress = data.get("progress", {}).get("value")
            if progress is None:
                print(f"  {event['model']}: {data.get('status', event['event'])}", flush=True)


def status_of(model):
    if model["status"].get("failed"):
        return f"failed: {model['status']['reason']}"
    return model["status"]["value"]


listed = requests.get(f"{URL}/models", timeout=60).json()["data"]
for model in listed:
    print(f"{model['id']} ({status_of(model)})")

question = sys.argv[1] if len(sys.argv) > 1 else "What is the capital of France?"
names = sys.argv[2:] or [model["id"] for model in listed if not model["status"].get("failed")]

events = requests.get(f"{URL}/models/sse", stream=True, timeout=600)
events.raise_for_status()
threading.Thread(target=watch, args=[events], daemon=True).start()
for name in names:
    body = {"model": name, "messages": [{"role": "user", "content": question}], "max_tokens": 32}
    response = requests.post(f"{URL}/v1/chat/completions", json=body, timeout=600)
    if response.ok:
        print(f"{name}: {response.json()['choices'][0]['message']['content']}")
    else:
        print(f"{name}: {response.json()['error']['message']}")

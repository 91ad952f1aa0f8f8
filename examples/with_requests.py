"""A streamed completion with the requests package: python with_requests.py "Once upon a time" """

import json
import os
import sys

import requests

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
prompt = sys.argv[1] if len(sys.argv) > 1 else "The capital of France is"

body = {"prompt": prompt, "n_predict": 32, "temperature": 0, "stream": True}
with requests.post(f"{URL}/completion", json=body, stream=True, timeout=600) as response:
    response.raise_for_status()
    for line in response.iter_lines():
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[len(b"data: ") :])
        if "error" in event:
            sys.exit(event["error"]["message"])
        print(event["content"], end="", flush=True)
        if event["stop"]:
            timings = event["timings"]
            print(f"\n[{timings['predicted_n']} tokens, {timings['predicted_per_second']:.0f} per second]")

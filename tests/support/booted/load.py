"""Clients inside a booted machine: `python3 load.py URL KEY` asks for short answers and streams, a connection each,
until its input ends. It prints a line once every client has had an answer, and at last what became of all as JSON. Uses
nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import urllib.parse

N_CLIENTS = 3
SECONDS_MAX = 120


class Load:
    def __init__(self, url: str, key: str) -> None:
        self.address = urllib.parse.urlsplit(url).netloc
        self.headers = {"Authorization": f"Bearer {key}"}
        self.is_over = threading.Event()
        self.n_answers = 0
        self.failures: list[str] = []
        self.begun = threading.Barrier(N_CLIENTS + 1, timeout=SECONDS_MAX)

    def client(self, number: int) -> None:
        self.try_one(number)
        self.begun.wait()
        while not self.is_over.is_set():
            self.try_one(number)

    def try_one(self, number: int) -> None:
        try:
            self.ask(is_stream=number == 0)
            self.n_answers += 1
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def ask(self, is_stream: bool) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=SECONDS_MAX)
        body = {
            "prompt": "Once",
            "n_predict": 100 if is_stream else 4,
            "stream": is_stream,
            "ignore_eos": True,
        }
        connection.request("POST", "/completion", json.dumps(body), self.headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        if response.status != 200:
            raise ValueError(f"{response.status} {text[:200]}")
        last = text.rstrip().rsplit("data: ", 1)[-1]
        if not json.loads(last).get("stop"):
            raise ValueError(f"an answer was cut: {last[:200]}")


def main() -> None:
    load = Load(sys.argv[1], sys.argv[2])
    threads = [threading.Thread(target=load.client, args=(i,)) for i in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    load.begun.wait()
    print("begun", flush=True)
    sys.stdin.read()
    load.is_over.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"answers": load.n_answers, "failures": load.failures}))


if __name__ == "__main__":
    main()

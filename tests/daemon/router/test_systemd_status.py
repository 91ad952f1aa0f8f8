"""What systemd is told by a daemon with many models: it is ready before any of them is loaded, and its status has what
each of them does."""

from __future__ import annotations

from functools import partial

from support.live_daemon import Live, model_path
from support.many_models.calls import CHAT, chat
from support.many_models.files import Files
from support.many_models.streams import Background
from support.systemd.recorder import Recorder

PRESET = """
[*]
ctx-size = 4096
parallel = 1
warmup = off
[x]
model = {smol}
[y]
model = {smol}
ctx-size = 3840
"""
# Each of them takes about 300 MiB.
FLAGS = ("--models-memory-max", "450", "--models-wait-seconds", "1")


def test_the_status_says_what_each_model_does(files: Files) -> None:
    files.write(PRESET.replace("{smol}", model_path()))
    with Recorder() as told, Live(*files.flags, *FLAGS, env=files.environ | told.env) as live:

        def wait(*texts: str, after: int) -> int:
            return told.wait(lambda lines: all(one in lines.get("STATUS", "") for one in texts), after)

        i = told.wait_for("READY", "1")
        assert told.told[i][1]["STATUS"] == "no model is loaded"
        body = {"model": "x", "prompt": "x", "n_predict": 3500, "ignore_eos": True}
        stream = live.client.open_stream(body)
        assert stream.recv(1)  # it has begun
        other = Background(partial(live.client.post, CHAT, chat("y")))
        i = wait("x: serving: 1 of 1 slots, 0 waiting, ", "; y: waiting for memory", after=i)
        stream.close()
        assert other.result().status == 200
        i = wait("y: serving: 0 of 1 slots", after=i)
        assert "x: " not in told.told[i][1]["STATUS"]

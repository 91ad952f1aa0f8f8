"""The real program killed while it archives sessions: an archive is the old one or the new one, and restores."""

import contextlib
import http.client
import random
import signal
import threading
import time

from support.live_daemon import Live

from llamad.base.atomic_file import PREFIX

N_KILLS = 5
OCTETS = "application/octet-stream"
FLAGS = ("-np", "2", "-c", "16384", "--no-warmup", "--slots", "--slot-save-path")


def archive_on_and_on(client, statuses):
    """Archives the state of one slot, then of the other, under the same name, until the server is gone."""
    slot = 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            saved = client.post(f"/sessions/{slot}?action=save&slot={slot}")
            removed = client.post(f"/sessions/{slot}?action=remove", {"file": "archive"})
            statuses.append((saved.status, removed.status))
            slot = 1 - slot


def test_no_kill_leaves_half_an_archive(tmp_path, tiny):
    """The states are of some megabytes: a kill has time to come in the middle of one."""
    chance = random.Random(11)
    states = []
    for _ in range(N_KILLS):
        with Live(*FLAGS, str(tmp_path), model=tiny) as server:
            client = server.client
            assert not [path for path in tmp_path.iterdir() if path.name.startswith(PREFIX)]
            if not states:
                for slot, n_tokens in ((0, 4000), (1, 6000)):
                    client.complete([40 + slot] * n_tokens, n_predict=1, id_slot=slot)
                    answer = client.post(f"/slots/{slot}?action=save-state", headers={"Accept": OCTETS})
                    states.append(answer.body)
            else:  # what the kill left is one of the two, and is taken back
                restored = client.post("/sessions/9?action=restore&slot=0", {"file": "archive"})
                assert restored.json["n_bytes_read"] in map(len, states)
            for slot, state in enumerate(states):
                headers = {"Content-Type": OCTETS}
                assert (
                    client.post(f"/slots/{slot}?action=restore-state", state, headers=headers).status == 200
                )
            statuses = []
            thread = threading.Thread(target=archive_on_and_on, args=(client, statuses))
            thread.start()
            t_end = time.monotonic() + 60
            while not statuses and time.monotonic() < t_end:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.1))
            server.signal(signal.SIGKILL)
            server.wait_exit()
            thread.join(60)
        assert set(statuses) == {(200, 200)}
        assert (tmp_path / "archive").read_bytes() in states

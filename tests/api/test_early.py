"""Requests of a known form: their task is with the engine first, and nothing else about them differs."""

import json
import threading

import pytest
from support.faked import Faked
from support.live import Live

from llamad.api import early
from llamad.api.forms import FORMS_MAX
from llamad.engine.fake import Fake

OPTIONS = {"n_predict": 6, "temperature": 0.9, "cache_prompt": False}
STREAM = {"n_predict": 4, "stream": True}
# Bytes that no form is kept of: an escape of a letter. The option is unknown, and nobody minds.
UNKNOWN = {"note": "\u00e9"}


@pytest.fixture
def submitted(monkeypatch):
    """The requests that went the early way, in this process."""
    made = []

    class Counted(early.Early):
        __slots__ = ()

        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(early, "Early", Counted)
    return made


def settle(client, options) -> None:
    """Send what makes the form of these options known."""
    for i in range(2):
        client.complete(f"first {i}", **options)


def without_times(answer: dict) -> dict:
    answer = {name: value for name, value in answer.items() if name not in ("timings", "id_slot")}
    return json.loads(json.dumps(answer))


@pytest.fixture(scope="module")
def small(tiny):
    with Live("-np", "2", "-c", "1024", "--slots", "--metrics", model=tiny) as server:
        yield server.client


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS | {"seed": 5},
        OPTIONS | {"n_probs": 3, "seed": 5},
        OPTIONS | {"timings_per_token": True, "return_tokens": True, "seed": 5, "stop": ["\n\n"]},
        OPTIONS | {"logit_bias": [[11, -1.0]], "repeat_penalty": 1.3, "dry_multiplier": 0.8, "seed": 5},
        OPTIONS | {"temperature": 0, "ignore_eos": True, "id_slot": 1, "response_fields": ["content"]},
    ],
)
@pytest.mark.parametrize("prompt", ["Once upon a time", [40, 41, 42, 43]])
def test_the_answer_is_the_one_of_a_request_read_whole(small, options, prompt):
    settle(small, options)
    whole = small.complete(prompt, **options, **UNKNOWN)
    assert without_times(small.complete(prompt, **options)) == without_times(whole)


def test_a_stream_is_the_one_of_a_request_read_whole(small):
    options = OPTIONS | {"stream": True, "seed": 3}
    body = {"prompt": "Once upon", **options}
    for _ in range(2):
        list(small.events("/completion", body))
    whole = [without_times(event) for event in small.events("/completion", {**body, **UNKNOWN})]
    assert [without_times(event) for event in small.events("/completion", body)] == whole
    assert len(whole) > 2


def test_each_request_has_its_own_seed(small):
    said = OPTIONS | {"seed": 1}
    settle(small, said)
    for seed in (2, 3, 2**32 - 2):
        settings = small.complete("x", **(said | {"seed": seed}))["generation_settings"]
        assert settings["seed"] == seed
    texts = {
        small.complete("x", **(OPTIONS | {"n_predict": 12, "seed": seed}))["content"] for seed in range(8)
    }
    assert len(texts) > 1
    settle(small, OPTIONS)
    random = [small.complete("x", **OPTIONS)["generation_settings"]["seed"] for _ in range(4)]
    assert len(set(random)) == 4


def test_the_second_of_a_kind_is_remembered_and_the_third_goes_early(submitted):
    with Faked(Fake(script=b"fine")) as server:
        for i in range(2):
            assert server.client.complete(f"prompt {i}", n_predict=3)["content"] == "fin"
        assert not submitted
        for i in range(3):
            assert server.client.complete(f"prompt {i}", n_predict=3)["content"] == "fin"
        assert len(submitted) == 3
        # Other options are another form, and both are known from then on.
        for i in range(3):
            assert server.client.complete(f"prompt {i}", n_predict=2)["content"] == "fi"
        server.client.complete("x", n_predict=3)
        assert len(submitted) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"n": 2},
        {"grammar": 'root ::= "fine"'},
        {"json_schema": {"type": "string"}},
        {"system_prompt": {"prompt": "Be brief."}},
        UNKNOWN,
    ],
)
def test_what_means_more_than_its_bytes_is_always_read_whole(submitted, options):
    with Faked(Fake(script=b'"fine"' if "json_schema" in options else b"fine"), "-np", "2") as server:
        for _ in range(4):
            assert server.client.post("/completion", {"prompt": "x", "n_predict": 8, **options}).status == 200
    assert not submitted


def test_a_system_prompt_that_came_meanwhile_counts(submitted):
    with Faked(Fake(script=b"fine")) as server:
        settle(server.client, {"n_predict": 1})
        plain = server.client.complete("x", n_predict=1)
        assert len(submitted) == 1
        server.client.complete("y", n_predict=1, system_prompt={"prompt": "Be brief."})
        assert server.client.complete("x", n_predict=1)["prompt"].startswith("Be brief.")
        server.client.complete("", n_predict=1, system_prompt={"prompt": ""})
        assert server.client.complete("x", n_predict=1)["prompt"] == plain["prompt"]
        assert len(submitted) == 2


@pytest.mark.parametrize("prompt", ["x" * 2000, [1] * 600, [1, 10**6], [1, -1], [], "", None, {"a": 1}, 5])
def test_what_is_wrong_with_a_prompt_is_said_as_ever(prompt):
    with Faked(Fake(script=b"fine"), n_ctx=512) as server:
        expected = server.client.post("/completion", {"prompt": prompt, "n_predict": 1})
        settle(server.client, {"n_predict": 1})
        answer = server.client.post("/completion", {"prompt": prompt, "n_predict": 1})
        assert answer.status == expected.status
        if expected.status != 200:
            assert answer.json == expected.json
        assert server.client.complete("x", n_predict=1)["tokens_predicted"] == 1


def test_broken_json_around_a_prompt_is_refused():
    with Faked(Fake(script=b"fine")) as server:
        settle(server.client, {"n_predict": 1})
        for body in (
            b'{"prompt": "x", "n_predict": 1',
            b'{"prompt": "x\n", "n_predict": 1}',
            b'{"prompt": "\xff", "n_predict": 1}',
        ):
            assert server.client.post("/completion", body).status == 400


def in_background(server, prompt, **options):
    thread = threading.Thread(target=server.client.post, args=("/completion", {"prompt": prompt, **options}))
    thread.start()
    return thread


def behind_a_stuck_one(fake, server):
    """The form of a stream is known, and the only slot is busy."""
    for i in range(2):
        list(server.client.events("/completion", {"prompt": f"p{i}", **STREAM}))
    fake.block(True)
    running = in_background(server, "stuck", n_predict=1)
    server.until(lambda: server.engine.n_running == 1)
    return running


def test_a_full_queue_answers_429(submitted):
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1", "--queue-max", "1") as server:
        settle(server.client, {"n_predict": 1})
        fake.block(True)
        threads = [in_background(server, "x", n_predict=1) for _ in range(2)]
        server.until(lambda: len(server.engine.tasks) == 2)
        assert server.client.post("/completion", {"prompt": "x", "n_predict": 1}).status == 429
        fake.block(False)
        for thread in threads:
            thread.join(30)
        assert len(submitted) == 2


def test_a_stream_that_waits_for_a_slot_is_kept_alive_and_can_leave(submitted):
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1", "--ping-seconds", "0.1") as server:
        running = behind_a_stuck_one(fake, server)
        streams = [server.client.open_stream({"prompt": f"wait {i}", **STREAM}) for i in range(3)]
        server.until(lambda: len(submitted) == 3)
        seen = b""
        while seen.count(b": ping\n\n") < 2:
            seen += streams[0].recv(4096)
        streams[1].close()
        fake.block(False)
        for stream in (streams[0], streams[2]):
            while b'"stop":true' not in seen:
                seen += stream.recv(4096)
            seen = b""
            stream.close()
        running.join(30)
        server.until(lambda: not server.engine.tasks)
        assert not server.daemon.service.pings


def test_a_client_that_leaves_before_its_turn_takes_its_task_along(submitted):
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1") as server:
        running = behind_a_stuck_one(fake, server)
        stream = server.client.open_stream({"prompt": "gone", **STREAM})
        server.until(lambda: len(submitted) == 1)
        stream.close()
        server.until(lambda: server.daemon.http.n_active == 1)
        fake.block(False)
        running.join(30)
        server.until(lambda: not server.engine.tasks)
        assert not server.daemon.service.pings
        assert server.engine.core.stats()["n_aborted"] == 1


def test_a_failed_step_is_told(submitted):
    fake = Fake(script=b"fine")
    with Faked(fake) as server:
        settle(server.client, {"n_predict": 1})
        fake.fail_next(-3)
        assert server.client.post("/completion", {"prompt": "x", "n_predict": 1}).status == 500
        assert server.client.complete("x", n_predict=1)["content"] == "f"
        assert len(submitted) == 2


def test_a_job_that_cannot_be_made_is_one_500(submitted, monkeypatch, caplog):
    with Faked(Fake(script=b"fine")) as server:
        for stream in (False, True):
            options = {"n_predict": 1, "stream": stream}
            for i in range(2):
                server.client.post("/completion", {"prompt": f"p{i}", **options})
            with monkeypatch.context() as patch:
                patch.setattr(early.Job, "take_over", lambda *args: 1 / 0)
                assert server.client.post("/completion", {"prompt": "x", **options}).status == 500
            server.until(lambda: not server.engine.tasks)
            assert not server.daemon.service.pings
            assert server.client.post("/completion", {"prompt": "x", **options}).status == 200
    assert "ZeroDivisionError" in caplog.text
    assert len(submitted) == 4


def test_the_metrics_count_them(small):
    def counted() -> dict[str, float]:
        lines = small.get("/metrics").body.decode().splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }

    settle(small, OPTIONS)
    before = counted()
    for _ in range(3):
        small.complete("x y z", **OPTIONS)
    after = counted()
    for name in ("llamacpp:tokens_predicted_total", "llamad:queue_seconds_count"):
        assert after[name] > before[name], name
    assert after["llamad:queue_seconds_count"] == before["llamad:queue_seconds_count"] + 3


def test_forms_that_are_used_outlive_those_that_are_not(submitted):
    with Faked(Fake(script=b"fine")) as server:
        for n_predict in range(1, FORMS_MAX + 3):
            settle(server.client, {"n_predict": n_predict})
            server.client.complete("x", n_predict=1)  # the first form, again and again
        assert len(submitted) == FORMS_MAX + 2
        server.client.complete("x", n_predict=2)
        assert len(submitted) == FORMS_MAX + 2  # the second was dropped

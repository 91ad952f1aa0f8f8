"""What a real model cannot be made to do on demand: full queues, failures, stuck engines, slow readers."""

import json
import socket
import threading
import time

import pytest
from support.fake_daemon import Faked

from llamad.api.request.generation import sampling
from llamad.client.task import RequestContext, Task
from llamad.engine.testing.fake import Fake


def in_background(function, *args, **options):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args, **options)), daemon=True)
    thread.start()
    return thread, results


def jobs(server):
    """The jobs whose responses are streams."""
    return list(server.daemon.service.streams)


def test_a_full_queue_answers_429_and_others_go_on():
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "2", "--queue-max", "1") as server:
        fake.block(True)
        running = [in_background(server.client.post, "/completion", {"prompt": f"p{i}"}) for i in range(3)]
        server.until(lambda: len(server.engine.tasks) == 3)
        answer = server.client.post("/completion", {"prompt": "one too many"})
        assert answer.status == 429
        assert answer.error["type"] == "rate_limit_error"
        assert int(answer.headers["retry-after"]) >= 1
        # Two prompts in one request need two places.
        assert server.client.post("/completion", {"prompt": ["a", "b"]}).status == 429
        fake.block(False)
        for thread, results in running:
            thread.join(30)
            assert results[0].json["content"] == "fine"
        assert server.client.complete("again")["content"] == "fine"


KEYS = ("--api-key", "many", "--api-key", "one")


def keyed(server, key, prompt, **options):
    headers = {"Authorization": f"Bearer {key}"}
    return server.client.post("/completion", {"prompt": prompt, **options}, headers=headers)


def test_one_client_leaves_room_in_the_queue():
    """A client with many requests had the queue to itself."""
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1", "--queue-max", "8", *KEYS) as server:
        fake.block(True)
        running = []
        for i in range(7):
            running.append(in_background(keyed, server, "many", f"many {i}"))
            server.until(lambda i=i: len(server.engine.tasks) == i + 1)
        refused = keyed(server, "many", "one too many")
        assert refused.status == 429
        assert "for other clients" in refused.error["message"]
        for i in range(2):
            running.append(in_background(keyed, server, "one", f"one {i}"))
            server.until(lambda i=i: len(server.engine.tasks) == 8 + i)
        fake.block(False)
        for thread, results in running:
            thread.join(30)
            assert results[0].json["content"] == "fine"


def test_a_stalled_stream_gives_its_slot_to_others():
    fake = Fake(n_ctx=200_000)
    flags = ("-np", "1", "--stream-buffer-bytes", "4096", "--stall-seconds", "0.2")
    with Faked(fake, *flags, n_ctx=200_000) as server:
        body = {"prompt": "x", "n_predict": 150_000, "ignore_eos": True}
        stalled = server.client.open_stream(body)
        server.until(lambda: any(job.tasks.is_paused for job in jobs(server)))
        time.sleep(0.5)
        assert server.engine.n_running == 1  # nobody waits for its slot
        thread, results = in_background(server.client.post, "/completion", {"prompt": "y", "n_predict": 2})
        while thread.is_alive():
            stalled.recv(1)  # a byte now and then is not progress
            time.sleep(0.02)
        assert results[0].status == 200
        assert results[0].json["tokens_predicted"] == 2
        rest = b""
        while b"--stall-seconds" not in rest:
            rest = rest[-100:] + stalled.recv(1 << 20)
        stalled.close()


@pytest.mark.parametrize("n_probs", [0, 20])
def test_an_answer_has_a_size(n_probs):
    with Faked(Fake(n_ctx=100_000), "-np", "1", "--answer-max-bytes", "20000", n_ctx=100_000) as server:
        body = {"prompt": "x", "n_predict": 90_000, "ignore_eos": True, "n_probs": n_probs}
        answer = server.client.post("/completion", body)
        assert (answer.json["stop_type"], answer.json["truncated"]) == ("limit", True)
        assert 5_000 < len(answer.body) < 40_000
        assert 4 < answer.json["tokens_predicted"] < 5_000
        streamed = list(server.client.events("/completion", {**body, "n_predict": 5_000, "stream": True}))
        assert streamed[-1]["tokens_predicted"] == 5_000


def test_a_request_without_a_limit_ends_with_the_models_context():
    """It shifted its context, and went on for as long as its client stayed."""
    with Faked(Fake(), "-np", "1") as server:
        endless = server.client.complete("x", ignore_eos=True, n_predict=-1)
        assert (endless["stop_type"], endless["truncated"]) == ("limit", True)
        n_prompt = endless["tokens_evaluated"]
        assert endless["tokens_predicted"] + n_prompt == server.host.model.info.n_ctx_train == 8192
        longer = server.client.complete("x", ignore_eos=True, n_predict=9000)
        assert longer["tokens_predicted"] == 9000


def test_the_logprobs_of_a_prompt_count_before_they_are_computed():
    with Faked(Fake(), "--answer-max-bytes", "20000") as server:
        body = {"prompt": "word " * 40, "echo": True, "logprobs": 5, "max_tokens": 1}
        answer = server.client.post("/v1/completions", body)
        assert answer.status == 400
        assert "--answer-max-bytes" in answer.error["message"]


def test_health_answers_while_the_engine_is_blocked():
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1", "--metrics", "--slots") as server:
        fake.block(True)
        thread, results = in_background(server.client.post, "/completion", {"prompt": "stuck"})
        server.until(lambda: server.engine.n_running == 1)
        answer = server.client.get("/health")
        assert (answer.status, answer.json["slots_idle"], answer.json["slots_processing"]) == (200, 0, 1)
        answer = server.client.get("/health?fail_on_no_slot")
        assert (answer.status, answer.json["status"]) == (503, "no slot available")
        assert answer.error["type"] == "unavailable_error"
        assert server.client.get("/slots?fail_on_no_slot=1").status == 503
        ages = [age_of_last_step(server) for _ in range(2)]
        time.sleep(0.05)
        assert age_of_last_step(server) > ages[0]
        fake.block(False)
        thread.join(30)
        assert results[0].status == 200
        assert age_of_last_step(server) < 30


def age_of_last_step(server) -> float:
    text = server.client.get("/metrics").body.decode()
    return float(text.split("\nllamad:last_step_age_seconds ")[1].split()[0])


def test_a_decode_that_fails_once_costs_nobody_anything():
    fake = Fake()
    with Faked(fake) as server:
        fake.fail_next(-3)
        assert server.client.complete("x", n_predict=3)["content"] == "yz{"


def test_a_request_that_does_not_fit_alone_is_a_400():
    fake = Fake()
    with Faked(fake) as server:
        fake.refuse_more_than(0)
        answer = server.client.post("/completion", {"prompt": "too long"})
        assert answer.status == 400
        assert answer.error["type"] == "exceed_context_size_error"
        assert answer.error["n_prompt_tokens"] == 9
        assert answer.error["n_ctx"] > 9
        fake.refuse_more_than(-1)
        assert server.client.complete("x", n_predict=1)["content"] == "y"


def test_a_request_whose_decode_always_fails_is_a_500_and_the_next_one_works():
    fake = Fake(script=b"fine")
    with Faked(fake) as server:
        fake.fail_next(-3, n_times=2)
        answer = server.client.post("/completion", {"prompt": "x"})
        assert answer.status == 500
        assert answer.error["type"] == "server_error"
        assert server.client.complete("x")["content"] == "fine"


def test_a_failure_inside_a_stream_is_its_last_event():
    fake = Fake(script=b"many words " * 30, decode_us=2000)
    with Faked(fake) as server:
        events = []
        for event in server.client.events("/completion", {"prompt": "x", "stream": True}):
            if not events:
                fake.fail_next(-3, n_times=2)
            events.append(event)
        assert events[-1]["error"]["code"] == 500
        assert all("error" not in event for event in events[:-1])


def test_the_request_timeout_is_a_408():
    with Faked(Fake(decode_us=3000), "--request-timeout", "0.2") as server:
        answer = server.client.post("/completion", {"prompt": "for ever"})
        assert answer.status == 408
        assert "--request-timeout" in answer.error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("state", ["waiting", "reading", "writing"])
def test_a_client_that_leaves_frees_its_slot(state, stream):
    fake = Fake(n_ctx=4096, n_batch=16, decode_us=500)
    with Faked(fake, "-np", "1", "-b", "16", "--step-tokens-max", "16", n_ctx=4096, n_batch=16) as server:
        first = None
        if state == "waiting":
            first = server.client.open_stream({"prompt": "in the way"})
            server.until(lambda: server.engine.n_running == 1)
        prompt = "x" * (4000 if state == "reading" else 5)
        data = json.dumps({"prompt": prompt, "stream": stream, "n_predict": -1}).encode()
        leaver = socket.create_connection((server.client.host, server.client.port))
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        leaver.sendall(head.encode() + data)
        n_before = 1 if first else 0
        server.until(lambda: len(server.engine.tasks) == n_before + 1)
        if state == "writing":
            server.until(lambda: server.engine.slots()[0].n_decoded > 0)
        leaver.close()
        server.until(lambda: len(server.engine.tasks) == n_before)
        if first:
            first.close()
        server.until(lambda: server.engine.n_idle() == 1 and not server.engine.tasks)
        assert server.client.complete("after", n_predict=2)["tokens_predicted"] == 2


def test_a_slow_reader_is_paused_and_holds_nobody_back():
    fake = Fake(n_ctx=512, decode_us=20)
    flags = ("-np", "2", "--stream-buffer-bytes", "16384", "--timeout", "60")
    with Faked(fake, *flags) as server:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((server.client.host, server.client.port))
        data = json.dumps({"prompt": "slow", "stream": True, "n_predict": 10**6, "id_slot": 0}).encode()
        slow.sendall(
            f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        # It decodes until the buffers are full, the kernel's too, which grow for a while; then it stands still.
        n_seen = [-1] * 5

        def stands_still():
            n_seen[:] = [*n_seen[1:], server.engine.slots()[0].n_decoded]
            time.sleep(0.1)
            is_paused = any(job.tasks.is_paused for job in jobs(server))
            return is_paused and len(set(n_seen)) == 1

        server.until(stands_still)
        for _ in range(3):
            assert server.client.complete("fast", n_predict=50, id_slot=1)["tokens_predicted"] == 50
        assert server.engine.slots()[0].n_decoded == n_seen[1]
        slow.settimeout(30)
        while server.engine.slots()[0].n_decoded == n_seen[1]:
            assert slow.recv(65536), "it did not go on when it was read"
        slow.close()
        server.until(lambda: server.engine.n_idle() == 2)


def test_a_quiet_stream_is_kept_alive_by_comments():
    fake = Fake(script=b"fine")
    with Faked(fake, "--ping-seconds", "0.1") as server:
        fake.block(True)
        stream = server.client.open_stream({"prompt": "wait"})
        seen = b""
        while seen.count(b": ping\n\n") < 2:
            seen += stream.recv(4096)
        assert b"200 OK" in seen
        fake.block(False)
        while b'"stop":true' not in seen:
            seen += stream.recv(4096)
        stream.close()


def test_streams_that_wait_for_a_slot_are_kept_alive_and_can_leave():
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1", "--ping-seconds", "0.1") as server:
        fake.block(True)
        running, _ = in_background(server.client.post, "/completion", {"prompt": "stuck", "n_predict": 1})
        server.until(lambda: server.engine.n_running == 1)
        streams = [server.client.open_stream({"prompt": f"wait {i}"}) for i in range(3)]
        server.until(lambda: server.engine.n_waiting == 3)
        seen = b""
        while seen.count(b": ping\n\n") < 2:
            seen += streams[0].recv(4096)
        streams[1].close()
        server.until(lambda: server.daemon.http.n_active == 3)
        fake.block(False)
        for stream in (streams[0], streams[2]):
            while b'"stop":true' not in seen:
                seen += stream.recv(4096)
            seen = b""
            stream.close()
        running.join(30)
        server.until(lambda: not server.engine.tasks)
        assert not server.daemon.service.streams
        assert server.engine.stats()["n_aborted"] == 1


def test_caps_on_what_a_request_may_ask_for():
    with Faked(Fake(), "--n-predict-max", "10", "--prompts-max", "2", "--stop-max", "1") as server:
        client = server.client
        assert (
            "--n-predict-max" in client.post("/completion", {"prompt": "x", "n_predict": 11}).error["message"]
        )
        assert client.complete("x")["tokens_predicted"] == 10
        assert "--prompts-max" in client.post("/completion", {"prompt": ["a", "b", "c"]}).error["message"]
        assert (
            "--stop-max" in client.post("/completion", {"prompt": "x", "stop": ["a", "b"]}).error["message"]
        )


def test_a_cap_holds_for_the_servers_own_default_too():
    with Faked(Fake(), "--n-predict-max", "10", "-n", "20") as server:
        assert server.client.complete("x")["tokens_predicted"] == 10
        assert server.client.complete("x", n_predict=None, max_tokens=3)["tokens_predicted"] == 3
        answer = server.client.post("/v1/completions", {"prompt": "x"}).json
        assert answer["usage"]["completion_tokens"] == 10
        assert server.client.get("/props").json["default_generation_settings"]["n_predict"] == 10


def test_server_flags_are_the_requests_defaults():
    with Faked(Fake(), "--temp", "0.3", "--top-k", "7", "-n", "4", "--keep", "2", "-s", "9") as server:
        settings = server.client.complete("x")["generation_settings"]
        assert (settings["temperature"], settings["top_k"], settings["n_predict"]) == (0.3, 7, 4)
        assert (settings["n_keep"], settings["seed"]) == (2, 9)
        assert server.client.complete("x", n_predict=2, top_k=3)["generation_settings"]["top_k"] == 3


class Ear:
    """A sink that remembers."""

    def __init__(self):
        self.heard = []

    def on_admitted(self, *event):
        self.heard.append("admitted")

    def on_text(self, *event):
        self.heard.append("text")

    def on_done(self, done):
        self.heard.append("done")

    def on_failed(self, failure, code):
        self.heard.append("failed")

    def on_broken(self):
        self.heard.append("broken")


def test_a_task_the_engine_cannot_take_fails_alone():
    """A command that raised once stayed at the head of the backlog, and nothing reached the engine any more."""
    with Faked(Fake(script=b"fine")) as server:
        ear = Ear()
        options = sampling(server.served.defaults.options, server.served.ready()[0].info, 1)
        too_long = Task(RequestContext("id"), b"\0" * 4 * 600, options, vocab=server.served.ready()[0].vocab)
        server.loop.call_soon_threadsafe(server.engine.submit, too_long, ear)
        server.until(lambda: ear.heard)
        assert ear.heard == ["failed"]
        assert not server.engine.tasks
        assert server.client.complete("x")["content"] == "fine"


def test_a_sink_that_breaks_is_told_and_costs_nobody_else(caplog):
    class Broken(Ear):
        def on_done(self, done):
            raise RuntimeError("a bug")

        def on_broken(self):
            super().on_broken()
            raise RuntimeError("another bug")

    with Faked(Fake(script=b"fine")) as server:
        ear = Broken()
        options = sampling(server.served.defaults.options, server.served.ready()[0].info, 1)
        task = Task(RequestContext("id"), b"\3\0\0\0", options, vocab=server.served.ready()[0].vocab)
        other = Ear()

        def submit() -> None:
            server.engine.submit(task, ear)
            server.engine.submit(
                Task(
                    RequestContext("other"),
                    b"\3\0\0\0",
                    options,
                    vocab=server.served.ready()[0].vocab,
                ),
                other,
            )

        server.loop.call_soon_threadsafe(submit)
        server.until(lambda: "broken" in ear.heard and "done" in other.heard)
        assert server.client.complete("x")["content"] == "fine"
    assert "a bug" in caplog.text
    assert "another bug" in caplog.text


def test_one_failed_prompt_of_several_is_one_clean_500(caplog):
    fake = Fake(script=b"fine")
    with Faked(fake, "-np", "1") as server:
        fake.fail_next(-3, n_times=2)
        assert server.client.post("/completion", {"prompt": ["a", "b", "c"]}).status == 500
        server.until(lambda: not server.engine.tasks)
        assert not server.daemon.service.streams
    assert "Traceback" not in caplog.text


def test_a_blocked_engine_does_not_hold_the_exit_up():
    fake = Fake(script=b"fine")
    server = Faked(fake, "-np", "1")
    fake.block(True)
    thread, results = in_background(server.client.post, "/completion", {"prompt": "stuck"})
    server.until(lambda: server.engine.n_running == 1)
    local = server.host.local
    server.leave()
    thread.join(30)
    assert results[0].status == 503
    fake.block(False)
    server.until(lambda: not local.is_alive)


def test_first_token_and_gaps_are_right_for_plain_requests():
    with Faked(Fake(decode_us=5000), "--metrics") as server:
        server.client.complete("x", n_predict=50)
        text = server.client.get("/metrics").body.decode()
        values = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[0] != "#"}
        assert values["llamad:token_gap_seconds_count"] == 49
        assert values["llamad:time_to_first_token_seconds_sum"] < values["llamad:token_gap_seconds_sum"]

"""One file from a host that breaks off, lies, redirects and throttles: in the end the right bytes, or an error that
says what to do, and never a wrong file in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.hub.cache import Cache, gguf, wait_for
from support.hub.server import Fault, HubServer

from llamad.flags.parse import parse
from llamad.models.hub import client
from llamad.models.hub.errors import Cancelled, HubError
from llamad.models.hub.fetch import Fetch

MODEL = gguf()
NAME = "org/tiny-GGUF"


@pytest.fixture(autouse=True)
def repo(hub: HubServer) -> None:
    hub.repos[NAME] = {"tiny-Q4_K_M.gguf": MODEL}
    hub.files["tiny.gguf"] = MODEL


def fetched(cache: Cache) -> bytes:
    return Path(cache.fetch("-hf", NAME).model).read_bytes()


def from_url(cache: Cache, hub: HubServer) -> bytes:
    return Path(cache.fetch("-mu", f"{hub.url}files/tiny.gguf").model).read_bytes()


def ranges(hub: HubServer, start: str = "/blobs/") -> list[str | None]:
    return [one.headers.get("Range") for one in hub.asked_for(start)]


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000), Fault(cut=500), Fault(cut=0), None]
    assert fetched(cache) == MODEL
    assert ranges(hub) == [None, "bytes=1000-", "bytes=1500-", "bytes=1500-"]
    assert cache.parts() == []


def test_it_goes_on_in_another_process_later(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000)]
    hub.always["/blobs/"] = Fault(status=503)
    with pytest.raises(HubError, match="status 503"):
        cache.fetch("-hf", NAME)
    assert [part.stat().st_size for part in cache.parts()] == [1000]
    hub.always.clear()
    hub.asked.clear()
    assert fetched(cache) == MODEL
    assert ranges(hub) == ["bytes=1000-"]


def test_a_host_that_knows_no_ranges_sends_all_of_it(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000), Fault(ranges=False)]
    assert fetched(cache) == MODEL


def test_a_whole_part_needs_no_request(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000)]
    hub.always["/blobs/"] = Fault(status=503)
    with pytest.raises(HubError):
        cache.fetch("-hf", NAME)
    cache.parts()[0].write_bytes(MODEL)  # the process ended before it could rename it
    hub.asked.clear()
    assert fetched(cache) == MODEL
    assert ranges(hub) == []


@pytest.mark.parametrize("junk", [b"GGUF" + b"x" * 996, b"GGUF" + b"x" * 5000])
def test_a_part_that_is_wrong_is_dropped(hub: HubServer, cache: Cache, junk: bytes) -> None:
    hub.faults["/blobs/"] = [Fault(cut=10)]
    hub.always["/blobs/"] = Fault(status=503)
    with pytest.raises(HubError):
        cache.fetch("-hf", NAME)
    cache.parts()[0].write_bytes(junk)
    hub.always.clear()
    assert fetched(cache) == MODEL


def test_what_is_not_what_its_checksum_says_is_refused(hub: HubServer, cache: Cache) -> None:
    hub.always["/blobs/"] = Fault(garbled=True)
    with pytest.raises(HubError, match="does not match its checksum"):
        cache.fetch("-hf", NAME)
    assert [path for path in cache.root.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(data=MODEL + b"more"), "has 3004 bytes where the hub lists 3000"),
        (Fault(data=MODEL[:-9]), "has 2991 bytes where the hub lists 3000"),
        (Fault(headers={"Content-Length": ""}, data=MODEL + b"more"), "sends more than it said"),
        (Fault(headers={"Content-Length": ""}, data=MODEL[:-9]), "broke off|has a shorter"),
        (Fault(data=b"<html>sign in</html>", headers={"Content-Length": ""}), "is not a GGUF file"),
        (Fault(compressed=True), "compressed"),
    ],
)
def test_a_host_that_lies(hub: HubServer, cache: Cache, fault: Fault, words: str) -> None:
    hub.always["/blobs/"] = fault
    with pytest.raises(HubError, match=words):
        cache.fetch("-hf", NAME)


@pytest.mark.parametrize("headers", [{}, {"Content-Length": ""}])
def test_a_page_to_sign_in_at_costs_nothing_that_is_there(
    hub: HubServer, cache: Cache, headers: dict[str, str]
) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000), Fault(ranges=False, data=b"<html>", headers=headers)]
    with pytest.raises(HubError, match=r"is not a GGUF file|has 6 bytes where"):
        cache.fetch("-hf", NAME)
    assert [part.stat().st_size for part in cache.parts()] == [1000]


def test_a_range_that_was_not_asked_for_is_not_used(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000), Fault(headers={"Content-Range": "bytes 900-2999/3000"}), None]
    assert fetched(cache) == MODEL
    assert ranges(hub)[-1] is None


def test_a_host_that_has_less_than_what_is_there(hub: HubServer, cache: Cache) -> None:
    hub.faults["/blobs/"] = [Fault(cut=1000), Fault(status=416), None]
    assert fetched(cache) == MODEL


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_host_that_is_busy_is_asked_again(hub: HubServer, cache: Cache, status: int) -> None:
    hub.faults["/blobs/"] = [Fault(status=status, headers={"Retry-After": "0"}), Fault(status=status), None]
    hub.faults["/api/"] = [Fault(status=status), None, Fault(status=status)]
    assert fetched(cache) == MODEL


def test_a_host_that_falls_silent_is_asked_again(
    hub: HubServer, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SILENCE_SECONDS", 0.05)
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    hub.faults["/api/"] = [Fault(cut=0, hold=hold)]
    assert fetched(cache) == MODEL
    hold.set()
    assert ranges(hub)[-1] == "bytes=1000-"


def test_a_host_that_says_no_is_not(hub: HubServer, cache: Cache) -> None:
    hub.always["/blobs/"] = Fault(status=400)
    with pytest.raises(HubError, match="status 400"):
        cache.fetch("-hf", NAME)
    assert len(hub.asked_for("/blobs/")) == 1


def test_a_disk_that_is_too_small_is_known_before_the_first_byte(hub: HubServer, cache: Cache) -> None:
    entry = {"type": "file", "path": "huge-Q8_0.gguf", "size": 1 << 60, "oid": "0" * 40}
    hub.listed = [{**entry, "lfs": {"oid": "1" * 64, "size": 1 << 60}}]
    with pytest.raises(HubError, match=r"needs .* TiB, and .* free; make room"):
        cache.fetch("-hf", f"{NAME}:Q8_0")
    hub.always["/files/"] = Fault(headers={"Content-Length": str(1 << 60)})
    with pytest.raises(HubError, match=r"tiny.gguf needs .* TiB, and .* free; make room"):
        from_url(cache, hub)
    assert cache.parts() == []


def test_it_can_be_cancelled_and_goes_on_later(hub: HubServer, cache: Cache) -> None:
    hold, stop = threading.Event(), threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    fetch = Fetch(parse(["-hf", NAME], {}).settings.model, cache.environ, stop=stop)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            fetch.run()
        except HubError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: any(part.stat().st_size for part in cache.parts()))
    stop.set()
    hold.set()
    thread.join()
    assert isinstance(raised[0], Cancelled)
    assert len(cache.parts()) == 1
    assert fetched(cache) == MODEL


# Several at once.


def pull(cache: Cache) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "llamad", "pull", NAME],
        env={**os.environ, **cache.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_of_several_processes_one_downloads_and_the_others_wait(hub: HubServer, cache: Cache) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    processes = [pull(cache) for _ in range(3)]
    wait_for(lambda: len(hub.asked_for(f"/api/models/{NAME}/tree")) == 3)
    hold.set()
    said = [process.communicate() for process in processes]
    assert {Path(out.strip()).read_bytes() for out, _ in said} == {MODEL}
    assert len(hub.asked_for("/blobs/")) == 1
    assert cache.parts() == []


def test_a_process_that_is_killed_leaves_its_part_to_the_next(hub: HubServer, cache: Cache) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    process = pull(cache)
    wait_for(lambda: any(part.stat().st_size for part in cache.parts()))
    process.kill()
    process.communicate()
    hold.set()
    assert fetched(cache) == MODEL
    assert ranges(hub) == [None, "bytes=1000-"]


def test_an_interrupt_ends_at_once_and_keeps_what_is_there(hub: HubServer, cache: Cache) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    process = pull(cache)
    wait_for(lambda: any(part.stat().st_size for part in cache.parts()))
    process.send_signal(signal.SIGINT)
    said = process.communicate()  # nothing more comes: it does not wait for that
    hold.set()
    assert process.returncode == 130
    assert said[1].endswith(
        "llamad: stopped; what has arrived is kept, and the next download continues from there\n"
    )
    assert [part.stat().st_size for part in cache.parts()] == [1000]


# From an address, where an ETag takes the checksum's place.


def test_a_file_that_has_not_changed_is_not_downloaded_again(hub: HubServer, cache: Cache) -> None:
    assert from_url(cache, hub) == MODEL
    assert from_url(cache, hub) == MODEL
    first, second = hub.asked_for("/files/")
    assert "If-None-Match" not in first.headers
    assert second.headers["If-None-Match"] == (cache.root / "tiny.gguf.etag").read_text()


def test_one_that_has_changed_is(hub: HubServer, cache: Cache) -> None:
    assert from_url(cache, hub) == MODEL
    hub.files["tiny.gguf"] = gguf(seed=2)
    assert from_url(cache, hub) == gguf(seed=2)


def test_one_that_changes_between_two_tries_is_begun_anew(hub: HubServer, cache: Cache) -> None:
    hub.faults["/files/"] = [Fault(cut=1000), Fault(status=503), Fault(status=503)]
    hub.faults["/files/"] += [Fault(status=503)] * 5
    with pytest.raises(HubError):
        from_url(cache, hub)
    hub.files["tiny.gguf"] = gguf(seed=2)
    hub.asked.clear()
    hub.faults.clear()
    assert from_url(cache, hub) == gguf(seed=2)
    (asked,) = hub.asked
    assert (asked.headers["Range"], bool(asked.headers["If-Range"])) == ("bytes=1000-", True)


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_without_a_strong_etag_nothing_is_continued(hub: HubServer, cache: Cache, etag: str) -> None:
    hub.faults["/files/"] = [Fault(cut=1000, headers={"ETag": etag}), None]
    assert from_url(cache, hub) == MODEL
    assert ranges(hub, "/files/") == [None, None]


def test_a_file_that_somebody_else_put_there_is_left_alone(hub: HubServer, cache: Cache) -> None:
    cache.root.mkdir()
    (cache.root / "tiny.gguf").write_bytes(gguf(seed=3))
    assert from_url(cache, hub) == gguf(seed=3)


def test_the_checksum_that_a_hub_gives_on_the_way_is_used(hub: HubServer, cache: Cache) -> None:
    hub.always["/blobs/"] = Fault(garbled=True)
    with pytest.raises(HubError, match="does not match its checksum"):
        cache.fetch("-mu", f"{hub.url}{NAME}/resolve/main/tiny-Q4_K_M.gguf")


def test_a_file_goes_where_it_is_wanted(hub: HubServer, cache: Cache, tmp_path: Path) -> None:
    wanted = str(tmp_path / "models" / "mine.gguf")
    projector = str(tmp_path / "eyes.gguf")
    flags = ("-mu", f"{hub.url}files/tiny.gguf", "-m", wanted, "-mmu", f"{hub.url}files/tiny.gguf")
    files = cache.fetch(*flags, "-mm", projector)
    assert (files.model, files.projector) == (wanted, projector)
    assert Path(wanted).read_bytes() == Path(projector).read_bytes() == MODEL
    assert cache.fetch(*flags, "--no-mmproj").projector is None


def test_all_parts_of_a_split_model_come(hub: HubServer, cache: Cache) -> None:
    for i in (1, 2, 3):
        hub.files[f"m-0000{i}-of-00003.gguf"] = gguf(seed=i)
    first = Path(cache.fetch("-mu", f"{hub.url}files/m-00002-of-00003.gguf").model)
    assert first.name == "m-00001-of-00003.gguf"
    assert [path.read_bytes() for path in sorted(first.parent.glob("*.gguf"))] == [
        gguf(seed=i) for i in (1, 2, 3)
    ]


@pytest.mark.parametrize("path", ["", "x.bin", "%2e%2e%2fx.gguf", "..%2f..%2fx.gguf"])
def test_an_address_without_a_models_name(hub: HubServer, cache: Cache, path: str) -> None:
    with pytest.raises(HubError, match=r"must end with the name of a GGUF file|does not exist"):
        cache.fetch("-mu", f"{hub.url}files/{path}")
    assert not list(cache.root.parent.rglob("*.gguf"))


def test_a_file_without_a_checksum_is_said_to_be_unverified(
    hub: HubServer, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    assert fetched(cache) == MODEL
    assert "could not be verified" not in caplog.text
    assert from_url(cache, hub) == MODEL
    assert "tiny.gguf could not be verified: its host gives no checksum" in caplog.text

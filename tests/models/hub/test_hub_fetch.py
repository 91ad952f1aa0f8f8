"""Models by name: which files a repository's name means, where they lie, and what happens without the hub."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from support.hub.cache import Cache, gguf
from support.hub.server import COMMIT, NEXT_COMMIT, Fault, HubServer, oid_of

from llamad.models.hub.cache import hub_folder, url_folder
from llamad.models.hub.errors import HubError

NAME = "org/tiny-GGUF"
Q4, Q8, EYES = gguf(seed=4), gguf(seed=8), gguf(seed=16)


@pytest.fixture(autouse=True)
def repo(hub: HubServer) -> None:
    hub.repos[NAME] = {
        "README.md": b"# Tiny",
        "mmproj-F16.gguf": EYES,
        "sub/tiny-Q8_0.gguf": Q8,
        "tiny-Q4_K_M.gguf": Q4,
    }


def refused(cache: Cache, *flags: str) -> str:
    with pytest.raises(HubError) as raised:
        cache.fetch(*flags)
    return str(raised.value)


def test_files_lie_as_huggingface_hub_and_llama_server_keep_them(hub: HubServer, cache: Cache) -> None:
    files = cache.fetch("-hf", NAME)
    folder = cache.root / "models--org--tiny-GGUF"
    snapshot = folder / "snapshots" / COMMIT
    assert files.model == str(snapshot / "tiny-Q4_K_M.gguf")
    assert files.projector == str(snapshot / "mmproj-F16.gguf")
    assert os.readlink(files.model) == f"../../blobs/{oid_of(Q4)}"
    assert Path(files.model).read_bytes() == Q4
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert sorted(path.name for path in (folder / "blobs").iterdir()) == sorted([oid_of(Q4), oid_of(EYES)])


def test_quantizations_and_files_by_name(hub: HubServer, cache: Cache) -> None:
    assert Path(cache.fetch("-hf", f"{NAME}:q8_0").model).read_bytes() == Q8
    assert Path(cache.fetch("-hf", NAME, "-hff", "sub/tiny-Q8_0.gguf").model).read_bytes() == Q8
    assert refused(cache, "-hf", f"{NAME}:Q2_K") == f"{NAME} has no model of Q2_K; it has Q4_K_M, Q8_0"
    assert refused(cache, "-hf", NAME, "-hff", "x.gguf").endswith(
        "it has sub/tiny-Q8_0.gguf, tiny-Q4_K_M.gguf"
    )


def test_projectors(hub: HubServer, cache: Cache) -> None:
    assert cache.fetch("-hf", NAME, "--no-mmproj").projector is None
    assert cache.fetch("-hf", NAME, "--mmproj", "mine.gguf").projector == "mine.gguf"
    assert not hub.asked_for(f"/blobs/{oid_of(EYES)}")
    assert cache.fetch("-hf", NAME).projector is not None


def test_all_parts_of_a_split_model(hub: HubServer, cache: Cache) -> None:
    parts = {f"big-Q6_K-0000{i}-of-00003.gguf": gguf(seed=i) for i in (1, 2, 3)}
    hub.repos[NAME] |= parts
    model = Path(cache.fetch("-hf", f"{NAME}:Q6_K").model)
    assert model.name == "big-Q6_K-00001-of-00003.gguf"
    assert {name: (model.parent / name).read_bytes() for name in parts} == parts
    del hub.repos[NAME]["big-Q6_K-00002-of-00003.gguf"]
    hub.commit = NEXT_COMMIT
    shutil.rmtree(cache.root)
    assert "big-Q6_K-00002-of-00003.gguf is missing" in refused(cache, "-hf", f"{NAME}:Q6_K")


def test_what_is_there_is_not_downloaded_again(hub: HubServer, cache: Cache) -> None:
    first = cache.fetch("-hf", NAME)
    hub.asked.clear()
    assert cache.fetch("-hf", NAME) == first
    assert not hub.asked_for("/blobs/")
    hub.commit = NEXT_COMMIT  # of the same files
    assert Path(cache.fetch("-hf", NAME).model).parent.name == NEXT_COMMIT
    assert not hub.asked_for("/blobs/")


def test_a_new_version_is(hub: HubServer, cache: Cache) -> None:
    cache.fetch("-hf", NAME)
    hub.commit = NEXT_COMMIT
    hub.repos[NAME]["tiny-Q4_K_M.gguf"] = gguf(seed=5)
    assert Path(cache.fetch("-hf", NAME).model).read_bytes() == gguf(seed=5)


def test_a_file_that_a_program_left_half_done_is_downloaded_anew(hub: HubServer, cache: Cache) -> None:
    model = Path(cache.fetch("-hf", NAME).model)
    model.resolve().write_bytes(Q4[:100])
    assert Path(cache.fetch("-hf", NAME).model).read_bytes() == Q4


@pytest.mark.parametrize("fault", [Fault(status=429), Fault(status=500), Fault(status=404), Fault(cut=3)])
def test_without_the_hub_the_cache_will_do(
    hub: HubServer, cache: Cache, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    first = cache.fetch("-hf", NAME)
    hub.always["/api/"] = fault
    hub.asked.clear()
    with caplog.at_level(logging.WARNING):
        assert cache.fetch("-hf", NAME) == first
    assert f"; using what is in the cache: {first.model}" in caplog.text
    assert len(hub.asked) == 1  # nobody waits for it


def test_a_hub_that_cannot_be_reached(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    first = cache.fetch("-hf", NAME)
    with caplog.at_level(logging.WARNING):
        assert cache.fetch("-hf", NAME, HF_ENDPOINT="http://127.0.0.1:1") == first
    assert "cannot be reached" in caplog.text


def test_a_new_version_that_cannot_be_had_leaves_the_old_one(hub: HubServer, cache: Cache) -> None:
    first = cache.fetch("-hf", NAME)
    hub.commit = NEXT_COMMIT
    hub.repos[NAME]["tiny-Q4_K_M.gguf"] = gguf(seed=5)
    hub.always["/blobs/"] = Fault(status=503)
    assert cache.fetch("-hf", NAME) == first
    assert cache.fetch("-hf", NAME, "--offline") == first


def test_offline_asks_nobody(hub: HubServer, cache: Cache) -> None:
    words = refused(cache, "-hf", f"{NAME}:Q8_0", "--offline")
    assert words.endswith(f"; download it with `llamad pull {NAME}:Q8_0`")
    address = f"{hub.url}files/tiny.gguf"
    hub.files["tiny.gguf"] = Q4
    assert "start without --offline" in refused(cache, "-mu", address, "--offline")
    assert hub.asked == []
    files = [cache.fetch("-hf", f"{NAME}:Q8_0"), cache.fetch("-mu", address)]
    hub.asked.clear()
    assert [
        cache.fetch("-hf", f"{NAME}:Q8_0", "--offline"),
        cache.fetch("-mu", address, "--offline"),
    ] == files
    assert hub.asked == []


def test_offline_finds_what_only_an_older_version_has(hub: HubServer, cache: Cache) -> None:
    cache.fetch("-hf", f"{NAME}:Q8_0")
    hub.commit = NEXT_COMMIT
    cache.fetch("-hf", f"{NAME}:Q4_K_M")
    assert Path(cache.fetch("-hf", f"{NAME}:Q8_0", "--offline").model).parts[-3] == COMMIT


@pytest.mark.parametrize(
    ("status", "token", "words"),
    [
        (401, None, "does not exist, or needs a token: check the name, or set HF_TOKEN"),
        (401, "hf_x", "the token is not enough .* accept the model's licence at http"),
        (403, "hf_x", "accept the model's licence at http"),
        (404, None, "does not exist at http.*; check the name"),
        (418, None, "answers with status 418"),
    ],
)
def test_a_hub_that_refuses(hub: HubServer, cache: Cache, status: int, token: str | None, words: str) -> None:
    hub.always["/api/"] = Fault(status=status)
    with pytest.raises(HubError, match=words):
        cache.fetch("-hf", NAME, *(("-hft", token) if token else ()))
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"branches":[]}',
        b'{"branches":[{"name":"main","targetCommit":"../../x"}]}',
        b"\xff",
    ],
)
def test_an_answer_that_is_none_of_a_hub(hub: HubServer, cache: Cache, data: bytes) -> None:
    hub.always["/api/"] = Fault(status=200, data=data or b" ")
    assert refused(cache, "-hf", NAME)
    assert not cache.root.exists()


def test_an_answer_that_is_compressed(hub: HubServer, cache: Cache) -> None:
    hub.always["/api/"] = Fault(compressed=True)
    assert "compressed" in refused(cache, "-hf", NAME)


def test_names_that_lead_out_of_the_cache_are_none(hub: HubServer, cache: Cache) -> None:
    hub.repos[NAME] = {"../../../evil-Q4_K_M.gguf": Q4, "/evil-Q8_0.gguf": Q4, "a/../evil-F16.gguf": Q4}
    hub.listed = [{"type": "file", "path": "evil-F32.gguf", "size": 3000, "oid": "../../../evil"}]
    assert "has no GGUF files" in refused(cache, "-hf", NAME)


def test_a_long_listing_comes_on_several_pages(hub: HubServer, cache: Cache) -> None:
    hub.pages = 3
    assert Path(cache.fetch("-hf", NAME).model).read_bytes() == Q4
    assert len(hub.asked_for(f"/api/models/{NAME}/tree")) == 3


def test_no_page_of_a_listing_lies_elsewhere(hub: HubServer, cache: Cache) -> None:
    hub.faults[f"/api/models/{NAME}/tree"] = [Fault(headers={"Link": f'<{hub.other_url}x>; rel="next"'})]
    assert "at another host" in refused(cache, "-hf", NAME, "-hft", "hf_x")
    assert {one.host for one in hub.asked} == {"127.0.0.1"}


def test_a_preset_of_several_models_is_refused(hub: HubServer, cache: Cache) -> None:
    hub.repos[NAME]["preset.ini"] = b"[a]"
    assert "is a preset of several models" in refused(cache, "-hf", NAME)


def test_a_file_without_a_checksum(hub: HubServer, cache: Cache) -> None:
    """As other hubs than Hugging Face may list it: the hub's redirect says its checksum."""
    hub.repos[NAME] = {"tiny-Q4_K_M.gguf": Q4}
    hub.faults[f"/api/models/{NAME}/tree"] = [
        Fault(status=200, data=b'[{"type":"file","path":"tiny-Q4_K_M.gguf","size":3000}]')
    ]
    files = cache.fetch("-hf", NAME)
    assert Path(files.model).read_bytes() == Q4
    assert not Path(files.model).is_symlink()


@pytest.mark.parametrize(
    ("environ", "hub_at", "urls_at"),
    [
        ({"LLAMA_CACHE": "/l", "HF_HOME": "/h"}, "/l", "/l"),
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h", "HOME": "/home/me"}, "/c", "/home/me/.cache/llama.cpp"),
        ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub", "/x/llama.cpp"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub", "/x/llama.cpp"),
        ({"LLAMA_CACHE": "", "HOME": "/me"}, "/me/.cache/huggingface/hub", "/me/.cache/llama.cpp"),
    ],
)
def test_the_folders_are_those_of_llama_server(environ: dict[str, str], hub_at: str, urls_at: str) -> None:
    assert (str(hub_folder(environ)), str(url_folder(environ))) == (hub_at, urls_at)


def test_a_folder_that_cannot_be_written_to(hub: HubServer, cache: Cache) -> None:
    cache.root.write_bytes(b"")
    words = refused(cache, "-hf", NAME)
    assert "Not a directory" in words
    assert "LLAMA_CACHE names another folder" in words

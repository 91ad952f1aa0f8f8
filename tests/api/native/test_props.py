"""/props, on the real program."""

import re

import pytest
from support.live_daemon import Live, model_path


@pytest.mark.real_model
def test_props(client):
    props = client.get("/props").json
    assert props["total_slots"] == 4
    assert props["model_path"] == model_path()
    assert props["assistant_name"] == props["user_name"] == ""
    assert "<|im_start|>" in props["chat_template"]
    # A build of sources that came without their git history does not know the commit.
    assert re.fullmatch(r"b\d+-([0-9a-f]{7,}|unknown)", props["build_info"])
    default = props["default_generation_settings"]
    assert default["n_ctx"] == 2048
    assert default["params"]["temperature"] == default["temperature"] == 0.8
    assert (default["top_k"], default["top_p"], default["min_p"]) == (40, 0.95, 0.05)
    assert default["next_token"]["n_decoded"] == 0


def test_default_settings_are_shown_as_documented(client, tiny):
    """A client that reads them finds what llama-server documents where nothing was set, and what counts."""
    shown = client.get("/props").json["default_generation_settings"]["params"]
    assert (shown["seed"], shown["stream"], shown["n_predict"]) == (4294967295, True, -1)
    assert [shown[f"speculative.{name}"] for name in ("n_max", "n_min", "p_min")] == [16, 5, 0.9]
    assert shown["dry_penalty_last_n"] == shown["n_ctx"] == 2048
    idle = client.get("/slots").json[0]["params"]
    assert (idle["seed"], idle["stream"]) == (4294967295, True)
    told = client.complete("a", n_predict=1)["generation_settings"]
    assert 0 <= told["seed"] < 4294967295
    assert told["stream"] is False
    with Live("-s", "7", "--dry-penalty-last-n", "100", model=tiny) as server:
        shown = server.client.get("/props").json["default_generation_settings"]["params"]
        assert (shown["seed"], shown["dry_penalty_last_n"]) == (7, 100)


def test_post_props_is_behind_its_flag(client):
    assert client.post("/props", {}).json == {"success": True}

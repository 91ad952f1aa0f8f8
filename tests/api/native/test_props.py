"""/props, on the real program."""

import re

import pytest
from support.live_daemon import model_path


@pytest.mark.real_model
def test_props(client):
    props = client.get("/props").json
    assert props["total_slots"] == 4
    assert props["model_path"] == model_path()
    assert props["assistant_name"] == props["user_name"] == ""
    assert "<|im_start|>" in props["chat_template"]
    assert re.fullmatch(r"b\d+-[0-9a-f]{7,}", props["build_info"])
    default = props["default_generation_settings"]
    assert default["n_ctx"] == 2048
    assert default["params"]["temperature"] == default["temperature"] == 0.8
    assert (default["top_k"], default["top_p"], default["min_p"]) == (40, 0.95, 0.05)
    assert default["next_token"]["n_decoded"] == 0


def test_post_props_is_behind_its_flag(client):
    assert client.post("/props", {}).json == {"success": True}

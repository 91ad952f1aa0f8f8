"""What strangers see of a server with API keys: enough for clients to work with, nothing of the operator's."""

import json

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.models.host_state import State

SECRETS = ("/srv/secret", "you serve Mallory", "TEMPLATE-TEXT", "GRAMMAR-TEXT")
PUBLIC = ("/props", "/models", "/v1/models", "/v1/models/x", "/health", "/v1/health", "/health?include_slots")
KEY = {"Authorization": "Bearer k"}


@pytest.fixture
def flags(tmp_path):
    prompt = tmp_path / "prompt.json"
    text = {
        "system_prompt": {"prompt": "you serve Mallory", "anti_prompt": "User:", "assistant_name": "Bot:"}
    }
    prompt.write_text(json.dumps(text))
    template = "TEMPLATE-TEXT{% for m in messages %}{{ m.content }}{% endfor %}"
    return (
        *("-m", "/srv/secret/model.gguf", "--system-prompt-file", str(prompt), "--chat-template", template),
        *("--slot-save-path", str(tmp_path), "--grammar", 'root ::= "GRAMMAR-TEXT"', "--slots"),
    )


def test_without_a_key_nothing_of_the_operators_is_shown(flags, tmp_path):
    with Faked(Fake(), "--api-key", "k", *flags) as server:
        for path in PUBLIC:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                text = server.client.get(path, headers=headers).body.decode()
                assert not any(secret in text for secret in (*SECRETS, str(tmp_path))), path
        props = server.client.get("/props").json
        assert props["model_path"] == props["model_alias"] == "model.gguf"
        assert (props["assistant_name"], props["user_name"]) == ("Bot:", "User:")
        assert props["total_slots"] == 1
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert props["default_generation_settings"]["params"]["temperature"] == 0.8
        assert {"chat_template", "system_prompt", "bos_token", "eos_token", "build_info"} <= props.keys()
        (listed,) = server.client.get("/v1/models").json["data"]
        assert listed["id"] == "model.gguf"
        assert listed["meta"]["n_ctx_train"] == 8192
        assert server.client.get("/v1/models/model.gguf").json == listed


@pytest.mark.parametrize(("keys", "headers"), [((), {}), (("--api-key", "k"), KEY)])
def test_with_a_key_or_where_none_is_needed_all_is_shown(flags, keys, headers):
    with Faked(Fake(), *keys, *flags) as server:
        props = server.client.get("/props", headers=headers).json
        assert props["model_path"] == props["settings"]["model"] == "/srv/secret/model.gguf"
        assert props["system_prompt"] == "you serve Mallory"
        (listed,) = server.client.get("/v1/models", headers=headers).json["data"]
        assert listed["id"] == "/srv/secret/model.gguf"
        assert server.client.get("/v1/models/%2Fsrv%2Fsecret%2Fmodel.gguf", headers=headers).json == listed


def test_the_reason_of_a_failed_load_needs_a_key():
    with Faked(Fake(), "--api-key", "k", load=False) as server:
        server.host.state, server.host.error = State.FAILED, "/srv/secret/model.gguf: no such file"
        for path in ("/health", "/props"):
            answer = server.client.get(path)
            assert answer.status == 500
            assert "/srv/secret" not in answer.body.decode()
            assert "log" in answer.error["message"]
            assert "/srv/secret" in server.client.get(path, headers=KEY).error["message"]
        assert server.client.get("/v1/models").status == 200

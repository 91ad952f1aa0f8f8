"""/models and /v1/models, on the real program."""

from urllib.parse import quote

import anthropic
import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live

from llamad.engine.testing.fake import Fake


@pytest.mark.real_model
def test_models(client):
    for path in ("/v1/models", "/models"):
        listed = client.get(path).json
        (model,) = listed["data"]
        assert listed["object"] == "list"
        assert (model["id"], model["object"], model["owned_by"]) == ("smol", "model", "llamacpp")
        assert model["meta"]["n_vocab"] == 49152
        assert model["meta"]["n_ctx_train"] == 8192
        assert model["meta"]["n_params"] > 10**8
        assert (model["meta"]["n_ctx"], model["meta"]["ftype"]) == (2048, "Q4_1")
        assert model["status"] == {"value": "loaded"}
        (other,) = listed["models"]
        assert (other["name"], other["model"], other["capabilities"]) == ("smol", "smol", ["completion"])
        assert other["size"] == model["meta"]["size"]
        details = other["details"]
        assert (details["family"], details["quantization_level"]) == ("llama", "Q4_1")
        assert details["parameter_size"] == "134.52M"


def test_the_file_type_of_a_model_that_does_not_tell_it(client):
    listed = client.get("/v1/models").json
    details = listed["models"][0]["details"]
    assert (details["family"], details["parameter_size"]) == ("llama", "3.22M")
    guessed = "(guessed) F16"
    assert details["quantization_level"] == listed["data"][0]["meta"]["ftype"] == guessed
    assert client.get("/props").json["model_ftype"] == guessed


def test_for_the_anthropic_client(client):
    official = anthropic.Anthropic(
        base_url=f"http://{client.host}:{client.port}", api_key="none", max_retries=0
    )
    (model,) = official.models.list()
    assert (model.id, model.type, model.display_name) == ("smol", "model", "smol")
    assert official.models.retrieve("smol") == model
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        official.models.retrieve("another")


def test_one_model(client):
    for path in ("/v1/models", "/models"):
        (listed,) = client.get(path).json["data"]
        assert client.get(path + "/smol").json == listed
        refused = client.get(path + "/another/one")
        assert refused.status == 404
        assert refused.json["error"]["type"] == "not_found_error"
        assert '"another/one"' in refused.json["error"]["message"]
        assert '"smol"' in refused.json["error"]["message"]
    assert client.get("/v1/models/").status == 404


def test_a_model_whose_name_is_its_path():
    with Live("-c", "256") as live:
        (listed,) = live.client.get("/v1/models").json["data"]
        assert listed["id"].endswith(".gguf")
        for name in (listed["id"], quote(listed["id"], safe="")):
            assert live.client.get("/v1/models/" + name).json == listed


def test_several_names_and_tags():
    with Faked(Fake(), "-a", "one,two", "--tags", "small, chat") as server:
        (listed,) = server.client.get("/v1/models").json["data"]
        assert (listed["id"], listed["aliases"], listed["tags"]) == ("one", ["one", "two"], ["small", "chat"])
        for name in ("one", "two"):
            assert server.client.get(f"/v1/models/{name}").json == listed
        assert server.client.get("/v1/models/three").status == 404
        assert server.client.get("/props").json["model_alias"] == "one"
    with Faked(Fake()) as server:
        (listed,) = server.client.get("/v1/models").json["data"]
        assert (listed["id"], listed["aliases"], listed["tags"]) == ("fake.gguf", [], [])

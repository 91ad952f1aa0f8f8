"""/models and /v1/models, on the real program."""

from urllib.parse import quote

import pytest
from support.live_daemon import Live


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

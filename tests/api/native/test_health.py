"""GET /health, on the real program."""


def test_health(client):
    for path in ("/health", "/v1/health"):
        answer = client.get(path)
        assert (answer.status, answer.json) == (200, {"status": "ok", "slots_idle": 4, "slots_processing": 0})


def test_health_includes_slots_where_asked(client):
    assert [slot["id"] for slot in client.get("/health?include_slots").json["slots"]] == [0, 1, 2, 3]

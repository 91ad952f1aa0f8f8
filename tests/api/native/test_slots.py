"""GET /slots, on the real program."""


def test_slots_show_the_running_request(live, client):
    stream = client.open_stream(
        {"prompt": "Tell me a story", "n_predict": 400, "ignore_eos": True, "seed": 5}
    )
    stream.recv(4096)
    busy = [slot for slot in client.get("/slots").json if slot["is_processing"]]
    stream.close()
    (slot,) = busy
    assert slot["prompt"] == "Tell me a story"
    assert slot["state"] == 1
    assert slot["params"]["seed"] == slot["seed"] == 5
    assert slot["next_token"]["n_decoded"] > 0
    assert slot["next_token"]["n_remain"] == 400 - slot["next_token"]["n_decoded"]
    assert slot["id_task"] == slot["task_id"] > 0
    live.wait_idle()
    assert all(not slot["is_processing"] and slot["id_task"] == -1 for slot in client.get("/slots").json)

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


def test_an_idle_slot_tells_how_its_last_task_ended(client):
    body = {"prompt": "One two three", "n_predict": 6, "id_slot": 2, "grammar": 'root ::= "a\\nb" [c-z]*'}
    first = client.post("/completion", body | {"cache_prompt": False}).json
    slot = client.get("/slots").json[2]
    n_prompt = first["tokens_evaluated"]
    assert slot["n_prompt_tokens"] == slot["n_tokens"] == first["tokens_cached"]
    assert (slot["n_prompt_tokens_processed"], slot["n_prompt_tokens_cache"]) == (n_prompt, 0)
    assert (slot["next_token"]["n_decoded"], slot["next_token"]["n_remain"]) == (0, -1)
    assert slot["next_token"]["has_new_line"] is first["has_new_line"] is True
    assert (slot["next_token"]["stopped_limit"], slot["next_token"]["stopped_word"]) == (True, False)
    second = client.post("/completion", body | {"stop": ["b"]}).json
    slot = client.get("/slots").json[2]
    assert slot["n_prompt_tokens_cache"] == second["timings"]["cache_n"] > 0
    assert slot["n_prompt_tokens_processed"] == second["timings"]["prompt_n"]
    assert (slot["next_token"]["stopped_limit"], slot["next_token"]["stopped_word"]) == (False, True)
    assert slot["next_token"]["stopping_word"] == "b"

"""Every option out of its range is a 400 that names the option and the bound; null is the same as absent; and each
value that is taken is echoed in `generation_settings`."""

import pytest

BIG = 2**31 - 1


@pytest.mark.parametrize(
    ("name", "wrong", "bound"),
    [
        ("dynatemp_range", -0.1, "at least 0"),
        ("top_p", 1.01, "between 0 and 1"),
        ("top_p", -0.01, "between 0 and 1"),
        ("min_p", 1.01, "between 0 and 1"),
        ("typical_p", -1, "between 0 and 1"),
        ("tfs_z", 1.5, "between 0 and 1"),
        ("tfs_z", -0.5, "between 0 and 1"),
        ("xtc_probability", 2, "between 0 and 1"),
        ("xtc_threshold", -1, "between 0 and 1"),
        ("top_k", 2**31, f"at most {BIG}"),
        ("top_k", -(2**31), f"at least {-BIG}"),
        ("repeat_last_n", -2, "at least -1"),
        ("repeat_last_n", 2**40, f"at most {BIG}"),
        ("repeat_penalty", 0, "greater than 0"),
        ("repeat_penalty", -1, "greater than 0"),
        ("dry_multiplier", -1, "at least 0"),
        ("dry_base", 0.5, "at least 1"),
        ("dry_allowed_length", -1, "at least 0"),
        ("dry_penalty_last_n", -2, "at least -1"),
        ("mirostat", 3, "between 0 and 2"),
        ("mirostat", -1, "between 0 and 2"),
        ("mirostat_tau", -1, "at least 0"),
        ("mirostat_eta", -1, "at least 0"),
        ("min_keep", -1, "at least 0"),
        ("seed", 2**63, f"at most {2**63 - 1}"),
        ("n_predict", -3, "at least -2"),
        ("max_tokens", -3, "at least -2"),
        ("n_keep", -2, "at least -1"),
        ("n_discard", -1, "at least 0"),
        ("t_max_predict_ms", -2, "at least -1"),
        ("stop", ["x" * 5000], "4096 bytes"),
        ("stop", ["x"] * 65, "at most 64"),
        ("samplers", ["top_k"] * 33, "at most 32"),
        ("dry_sequence_breakers", [str(i) for i in range(65)], "at most 64"),
        ("logit_bias", [[289, 1]], "289"),
        ("logit_bias", [[-1, 1]], "-1"),
    ],
)
def test_a_value_out_of_range_names_the_option_and_the_bound(bigram, name, wrong, bound):
    bigram.refused({"prompt": "a", name: wrong}, f'"{name}"', bound)


NUMBERS = """temperature dynatemp_range dynatemp_exponent top_p min_p typical_p tfs_z top_n_sigma xtc_probability
xtc_threshold repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base mirostat_tau mirostat_eta
""".split()
WHOLES = """top_k repeat_last_n dry_allowed_length dry_penalty_last_n mirostat min_keep seed n_predict max_tokens n_keep
n_discard t_max_predict_ms id_slot slot_id""".split()
SWITCHES = "penalize_nl ignore_eos stream cache_prompt return_tokens timings_per_token".split()
LISTS = "samplers stop response_fields dry_sequence_breakers logit_bias".split()


@pytest.mark.parametrize(
    ("name", "wrong", "kind"),
    [
        *((name, "1", "a number") for name in NUMBERS),
        *((name, True, "a number") for name in NUMBERS),
        *((name, 1e39, "a finite number") for name in NUMBERS),
        *((name, 1.5, "an integer") for name in WHOLES),
        *((name, "1", "an integer") for name in WHOLES),
        *((name, 1, "true or false") for name in SWITCHES),
        *((name, 7, "array") for name in LISTS),
    ],
)
def test_a_wrong_type_names_the_option_and_the_type(bigram, name, wrong, kind):
    bigram.refused({"prompt": "a", name: wrong}, f'"{name}" must be', kind)


@pytest.mark.parametrize("name", [*NUMBERS, *WHOLES, *SWITCHES, *LISTS, "system_prompt"])
def test_null_is_the_same_as_absent(bigram, name):
    """The same answer and the same echo, but for a random seed. After "r" an end is near."""
    absent = {"prompt": "r", "seed": 9, "n_predict": 6}
    absent.pop(name, None)
    first, second = (
        bigram.client.post("/completion", body).json for body in (absent, {**absent, name: None})
    )
    for result in (first, second):
        if name == "seed":
            del result["generation_settings"]["seed"]
    assert first["generation_settings"] == second["generation_settings"]
    if name != "seed":
        assert first["content"] == second["content"]


TAKEN = {
    "temperature": 0.7,
    "dynatemp_range": 0.3,
    "dynatemp_exponent": 1.5,
    "top_k": 17,
    "top_p": 0.6,
    "min_p": 0.02,
    "typical_p": 0.9,
    "tfs_z": 0.95,
    "top_n_sigma": 2.5,
    "xtc_probability": 0.25,
    "xtc_threshold": 0.2,
    "repeat_last_n": 33,
    "repeat_penalty": 1.25,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "penalize_nl": True,
    "dry_multiplier": 0.75,
    "dry_base": 1.5,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 44,
    "dry_sequence_breakers": ["x"],
    "mirostat": 2,
    "mirostat_tau": 4.5,
    "mirostat_eta": 0.25,
    "min_keep": 2,
    "samplers": ["top_k", "temperature"],
    "seed": 42,
    "stop": ["stop"],
    "n_predict": 3,
    "n_keep": 5,
    "n_discard": 6,
    "ignore_eos": True,
    "stream": False,
    "cache_prompt": False,
    "return_tokens": True,
    "timings_per_token": True,
    "t_max_predict_ms": 60000,
    "id_slot": 1,
}


def test_every_option_is_echoed(bigram):
    settings = bigram.client.complete("a", **TAKEN)["generation_settings"]
    assert settings.items() >= TAKEN.items()
    assert settings["max_tokens"] == 3
    assert settings["n_ctx"] == 256


def test_an_option_that_this_version_does_not_have_is_refused(bigram):
    bigram.refused({"prompt": "a", "image_data": [{"data": "", "id": 1}]}, "image_data", status=501)

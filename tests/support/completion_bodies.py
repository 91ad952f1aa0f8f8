"""Request bodies for /completion: mostly sensible, partly absurd. Shared by a short test and the fuzz target."""

from hypothesis import strategies as st

NUMBERS = """temperature dynatemp_range dynatemp_exponent top_p min_p typical_p tfs_z top_n_sigma xtc_probability
xtc_threshold repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base mirostat_tau mirostat_eta
""".split()
WHOLES = """top_k n_predict n_keep n_discard repeat_last_n dry_allowed_length dry_penalty_last_n mirostat min_keep seed
n_probs n_indent t_max_predict_ms id_slot n max_tokens slot_id""".split()
FLAGS = (
    "stream ignore_eos cache_prompt return_tokens timings_per_token penalize_nl post_sampling_probs".split()
)
OTHERS = """prompt stop samplers logit_bias response_fields dry_sequence_breakers grammar json_schema system_prompt
image_data lora penalty_prompt""".split()
SAMPLERS = "dry top_k typ_p top_p min_p xtc temp penalties".split()
GRAMMARS = [
    "",
    'root ::= "yes" | "no"',
    "root ::= [a-z]+ .{0,9}",
    "root ::= <[65]> !<[66]>*",
    'root ::= ("a"* "b"*)* root | "x"',
    'root ::= "\\uD800"',
]
SCHEMAS = [
    {},
    True,
    False,
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
    {"enum": ["é", 1, None, 2**70, 1e300]},
    {"type": "integer", "minimum": -(2**70), "maximum": 2**70},
    {"type": "string", "pattern": "^[a-c]{2,4}$"},
    {"anyOf": [{"type": "number"}, {"type": "boolean"}], "x": 2**64},
]

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=12),
        st.sampled_from(
            ["top_k", "dry", "kfpmt", "", "\0", "é🦙", "content", "generation_settings/n_predict"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
prompts = st.one_of(
    st.text(max_size=40),
    st.lists(st.integers(0, 258), min_size=1, max_size=20),
    st.lists(st.one_of(st.text(max_size=8), st.integers(0, 300)), min_size=1, max_size=5),
    anything,
)
bodies = st.builds(
    lambda prompt, sane, wild: {"prompt": prompt, "n_predict": 4, **sane, **wild},
    prompts,
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.floats(-2, 3, allow_nan=False) for name in NUMBERS},
            **{name: st.integers(-3, 50) for name in WHOLES},
            **{name: st.booleans() for name in FLAGS},
            "stop": st.one_of(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=5)),
            "samplers": st.lists(
                st.sampled_from(["dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temp"]), max_size=9
            ),
            "logit_bias": st.lists(st.tuples(st.integers(0, 258), st.floats(-9, 9)).map(list), max_size=4),
            "response_fields": st.lists(st.sampled_from(["content", "timings/cache_n", "stop"]), max_size=3),
            "grammar": st.one_of(
                st.sampled_from(GRAMMARS), st.text('root:=|"ab[]()*{}1, \n<>!', max_size=20)
            ),
            "json_schema": st.one_of(st.sampled_from(SCHEMAS), anything),
            "strict": st.booleans(),
            "penalty_prompt": st.one_of(st.text(max_size=20), st.lists(st.integers(-1, 260), max_size=9)),
            "system_prompt": st.one_of(
                st.text(max_size=20),
                st.fixed_dictionaries(
                    {"prompt": st.text(max_size=9)},
                    optional={"anti_prompt": anything, "assistant_name": st.text()},
                ),
            ),
        },
    ),
    st.dictionaries(st.sampled_from([*NUMBERS, *WHOLES, *FLAGS, *OTHERS]), anything, max_size=2),
)


def check_answer(server, body) -> None:
    """Invariant: every body gets a whole answer: 200, or an error that says what is wrong; never a 500."""
    if isinstance(body.get("n_predict"), (int, float)) and not 0 <= body["n_predict"] <= 64:
        body["n_predict"] = 4  # endless generations are not what is looked for here
    if body.get("n_predict") is None and body.get("max_tokens") != 4:
        body["n_predict"] = 4
    answer = server.client.post("/completion", body)
    if answer.status == 200:
        assert answer.body
        return
    assert answer.status in (400, 501), (answer.status, answer.body, body)
    assert answer.error["message"]
    assert answer.error["type"] in (
        "invalid_request_error",
        "exceed_context_size_error",
        "not_supported_error",
    )

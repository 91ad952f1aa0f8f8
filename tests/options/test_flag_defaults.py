"""Server flags are the defaults of requests that leave an option out, and are echoed; a request that says something
itself is not touched by them."""

import pytest
from support.live_daemon import Live
from support.models.bigram_model import EOS, token

FLAGS = {
    "--temp": ("temperature", 0.7),
    "--dynatemp-range": ("dynatemp_range", 0.3),
    "--dynatemp-exp": ("dynatemp_exponent", 1.5),
    "--top-k": ("top_k", 17),
    "--top-p": ("top_p", 0.6),
    "--min-p": ("min_p", 0.02),
    "--typical": ("typical_p", 0.9),
    "--tfs": ("tfs_z", 0.95),
    "--top-nsigma": ("top_n_sigma", 2.5),
    "--xtc-probability": ("xtc_probability", 0.25),
    "--xtc-threshold": ("xtc_threshold", 0.2),
    "--repeat-last-n": ("repeat_last_n", 33),
    "--repeat-penalty": ("repeat_penalty", 1.25),
    "--presence-penalty": ("presence_penalty", 0.5),
    "--frequency-penalty": ("frequency_penalty", -0.5),
    "--dry-multiplier": ("dry_multiplier", 0.75),
    "--dry-base": ("dry_base", 1.5),
    "--dry-allowed-length": ("dry_allowed_length", 3),
    "--dry-penalty-last-n": ("dry_penalty_last_n", 44),
    "--mirostat": ("mirostat", 2),
    "--mirostat-ent": ("mirostat_tau", 4.5),
    "--mirostat-lr": ("mirostat_eta", 0.25),
    "--min-keep": ("min_keep", 2),
    "--seed": ("seed", 42),
    "-n": ("n_predict", 3),
    "--keep": ("n_keep", 5),
}


@pytest.fixture(scope="module")
def flagged(bigram_path):
    flags = [text for name, (_, value) in FLAGS.items() for text in (name, str(value))]
    flags += ["--sampling-seq", "kt", "--dry-sequence-breaker", "x", "--ignore-eos", "--penalize-nl"]
    flags += ["--no-cache-prompt", "-l", "5-inf", "-l", "6+1.5"]
    with Live("-np", "1", "-c", "256", *flags, model=bigram_path) as server:
        yield server.client


EXPECTED = {
    **dict(FLAGS.values()),
    "samplers": ["top_k", "temperature"],
    "dry_sequence_breakers": ["x"],
    "ignore_eos": True,
    "penalize_nl": True,
    "cache_prompt": False,
    # --ignore-eos shows as a bias.
    "logit_bias": [{"token": 5, "bias": None}, {"token": 6, "bias": 1.5}, {"token": EOS, "bias": None}],
}


def test_every_flag_is_the_default_of_its_option(flagged):
    assert flagged.complete("a")["generation_settings"].items() >= EXPECTED.items()
    assert flagged.get("/props").json["default_generation_settings"]["params"].items() >= EXPECTED.items()


def test_a_request_has_the_last_word(flagged):
    options = {"temperature": 0.1, "top_k": 3, "n_predict": 2, "ignore_eos": False, "penalize_nl": False}
    options |= {"samplers": ["temperature"], "seed": 4, "cache_prompt": True}
    settings = flagged.complete("a", **options, logit_bias=[[7, 1.0]])["generation_settings"]
    assert settings.items() >= options.items()
    assert settings["logit_bias"] == [{"token": 7, "bias": 1.0}]
    assert flagged.complete("a", logit_bias=[])["generation_settings"]["logit_bias"] == [
        {"token": EOS, "bias": None}
    ]


def test_flags_change_what_is_written(started):
    server = started("--temp", "0", "-n", "4", "-l", f"{token('a')}-inf", "--no-cache-prompt", "--ignore-eos")
    assert server.client.complete("a")["content"] == "bbbb"
    assert server.client.complete("a", logit_bias={}, n_predict=2)["content"] == "aa"
    assert server.client.complete("q")["content"] == "rqrq"
    assert server.client.complete("q", ignore_eos=False)["stop_type"] == "eos"
    assert server.client.complete("abc")["timings"]["cache_n"] == 0
    server.client.complete("abc")
    assert server.client.complete("abc", cache_prompt=True)["timings"]["cache_n"] == 3


def test_a_bias_beyond_the_vocabulary_is_said_at_the_start(bigram_path):
    """It would be written outside of the row of logits."""
    with Live("-c", "256", "-l", "100000+1", model=bigram_path, ready=False) as server:
        server.wait_line("--logit-bias 100000: this model's tokens are 0 to 288")
        assert "--logit-bias 100000" in server.client.get("/health").json["error"]["message"]

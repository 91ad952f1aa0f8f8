"""What projectors make of images and sound: their rows, and the text behind them, are those that NumPy computes. And
projectors that cannot be used."""

import asyncio
import base64
import io
import platform

import numpy as np
import pytest
import soundfile
from support.live_daemon import Live
from support.media_files import image, pixels, sound
from support.models import media_reference
from support.models.tiny_kv_models import EXACT, N_EMBD, write_model
from support.models.tiny_projectors import IMAGE, write_projector

from llamad.flags.parse import parse
from llamad.media.messages import Open
from llamad.media.reader import Limits, MediaReader, ProjectorError
from llamad.models.projector import ProjectorFileError, with_projector

LIMITS = Limits(pixels_max=1_000_000, seconds_max=10.0, tokens_max=1000, cache_bytes=1 << 20)
# llama.cpp convolves in F16, and ARM64's instructions for that sum in F16, too. The rows are of the order of 1.
ROWS_WITHIN = 1e-4 if platform.machine() == "x86_64" else 3e-2
PICTURE = image(5, size=(IMAGE, IMAGE))
NOISE = sound(5, n=2000)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "llama.gguf", "llama", np.float32)


async def read(model, projector, data=None, *, is_sound=False):
    """The file's encoding; without one the projector is opened only."""
    reader = MediaReader(Open(model, projector, 1, False, None, -1, -1, "off"), LIMITS)
    reader.n_at_once = 512
    try:
        await reader.open()
        return None if data is None else await reader.read(0, 0, data, is_sound=is_sound)
    finally:
        reader.close()


def expected(kind, projector):
    if kind == "janus_pro":
        return media_reference.image_rows(projector, pixels(5, IMAGE, IMAGE))
    samples, _ = soundfile.read(io.BytesIO(NOISE))
    return media_reference.sound_rows(projector, samples)


@pytest.mark.parametrize(("kind", "data"), [("janus_pro", PICTURE), ("gemma4ua", NOISE)])
def test_rows_and_text_are_as_numpy_has_them(llama, tmp_path, kind, data):
    projector = write_projector(tmp_path / "projector.gguf", kind, N_EMBD)
    encoding = asyncio.run(read(llama, projector, data, is_sound=kind == "gemma4ua"))
    wanted = expected(kind, projector)
    rows = np.frombuffer(memoryview(encoding.rows), np.float32, wanted.size).reshape(wanted.shape)
    assert np.allclose(rows, wanted, atol=ROWS_WITHIN)
    with Live("--mmproj", projector, "-np", "1", "-c", "1024", "--no-warmup", *EXACT, model=llama) as server:
        texts = ["Look:", " and tell"]
        tokens = [np.array(server.client.post("/tokenize", {"content": one}).json["tokens"]) for one in texts]
        prompt = {
            "prompt_string": "<__media__>".join(texts),
            "multimodal_data": [base64.b64encode(data).decode()],
        }
        body = {"prompt": prompt, "n_predict": 1, "n_probs": 20, "temperature": 0.0}
        answer = server.client.post("/completion", body).json
    around = [np.array(piece.tokens) if piece.tokens else rows for piece in encoding.pieces]
    reference = media_reference.logprobs(llama, [np.array([1]), tokens[0], *around, tokens[1]])
    top = answer["completion_probabilities"][0]["top_logprobs"]
    assert [one["id"] for one in top[:3]] == [int(one) for one in np.argsort(-reference)[:3]]
    assert np.allclose([one["logprob"] for one in top], reference[[one["id"] for one in top]], atol=1e-3)


@pytest.mark.parametrize(("kind", "arch"), [("hunyuanvl", "qwen2vl"), ("deepseek4v", "llama")])
def test_images_that_depend_on_their_place_are_refused(tmp_path, kind, arch):
    """HunyuanVL numbers the images of a prompt, DeepSeek fills up blocks: kept rows would be wrong elsewhere."""
    model = write_model(tmp_path / "model.gguf", arch)
    projector = write_projector(tmp_path / "projector.gguf", kind, N_EMBD)
    with pytest.raises(ProjectorError, match="depend on what stands before them"):
        asyncio.run(read(model, projector))


def test_self_extend_needs_a_model_without_images(tmp_path):
    """It groups positions, however the projector was found."""
    model = write_model(tmp_path / "model.gguf", "llama")
    projector = write_projector(tmp_path / "mmproj-tiny.gguf", "janus_pro", N_EMBD)

    def chosen(*flags):
        return with_projector(parse(["-m", model, *flags], {}).settings.model).mmproj

    for flags in (("--mmproj", projector), ("--mmproj-auto",)):
        assert chosen(*flags) == projector
        with pytest.raises(ProjectorFileError, match="groups positions"):
            chosen(*flags, "-gan", "2")
    assert chosen("--mmproj", projector, "--no-mmproj", "-gan", "2") is None

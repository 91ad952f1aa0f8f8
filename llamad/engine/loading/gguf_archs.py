"""Architectures whose graphs the pinned llama.cpp builds only for heads of certain shapes, and aborts on others.

The lists follow the unconditional asserts at the start of each graph in llama.cpp's src/models, and the shapes of
attn_q there; they must be checked again when the pin moves. An architecture that is not listed is only checked less.
"""

# The keys and the values of a head must have the same size.
EQUAL_HEADS = frozenset(
    """
    afmoe apertus arcee arctic baichuan bailingmoe2 bert bitnet bloom chameleon chatglm codeshell cogvlm cohere2
    cohere2moe command-r dbrx deci deepseek dots1 dream ernie4_5 eurobert exaone falcon glm4 glm4moe gpt2 gptneox
    granite granite_swa granitehybrid graniteswitch grok grovemoe hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2
    laguna llada llada-moe llama llama4 maincoder mellum minimax-01 minimax-m2 minimax-m3 mistral3 modern-bert mpt
    muse-glimmer nanbeige nemotron nemotron_h neo-bert olmo olmo2 olmoe openelm orion pangu-embedded phi2 phi3 plamo
    qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe qwen4exp refact rnd1
    seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 xverse
    """.split()
)

# All dimensions of a value must be rotated.
WHOLE_ROPE = frozenset(
    """
    apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream ernie4_5 exaone
    exaone-moe exaone4 falcon granite granite_swa graniteswitch grok grovemoe hunyuan-moe hunyuan_vl hy_v3 internlm2
    jais2 llada llada-moe llama llama4 maincoder mellum mistral3 olmo olmo2 olmoe orion pangu-embedded plamo qwen2
    qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 talkie xverse
    """.split()
)

# attn_q has as many rows as the embedding, so all heads together must be as large as the embedding.
SQUARE_QUERIES = frozenset(
    """
    arctic baichuan bert chameleon codeshell cohere2 command-r deepseek deepseek2-ocr dream eurobert grok internlm2
    jamba jina-bert-v2 jina-bert-v3 lfm2 lfm2moe llada-moe nemotron nomic-bert nomic-bert-moe olmo olmo2 olmoe orion
    phi2 phi3 phimoe plamo qwen2 qwen2moe qwen2vl stablelm starcoder2 xverse
    """.split()
)

# ssm.inner_size must be twice the embedding.
DOUBLE_INNER = frozenset(("granitehybrid", "jamba"))

# There must be experts.
WITH_EXPERTS = frozenset(("bailingmoe2", "glm4moe", "grovemoe", "lfm2moe", "llada-moe", "smallthinker"))

# Files that only work together with a model.
NO_MODELS = {
    "clip": "a multimodal projector",
    "dflash": "a draft head",
    "eagle3": "a draft head",
}

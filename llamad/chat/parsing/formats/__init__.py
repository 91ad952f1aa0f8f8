"""The formats of tool calls, one class each: how it is recognized, written, parsed, and forced by a grammar.

Constants and pure functions; any thread. The docstring of base.py and CONTRIBUTING.md say how to add a format.
"""

from __future__ import annotations

from llamad.chat.parsing.formats.apertus import Apertus
from llamad.chat.parsing.formats.base import CallFormat, Format
from llamad.chat.parsing.formats.command_r import CommandR
from llamad.chat.parsing.formats.command_r_plus import CommandRPlus
from llamad.chat.parsing.formats.deepseek import DeepSeek
from llamad.chat.parsing.formats.dsml import DeepSeekV4, DeepSeekV32
from llamad.chat.parsing.formats.functionary import Functionary
from llamad.chat.parsing.formats.gemma import Gemma
from llamad.chat.parsing.formats.generic import Generic
from llamad.chat.parsing.formats.gigachat import GigaChat
from llamad.chat.parsing.formats.glm import Glm
from llamad.chat.parsing.formats.gpt_oss import GptOss
from llamad.chat.parsing.formats.granite import Granite
from llamad.chat.parsing.formats.hermes import Hermes
from llamad.chat.parsing.formats.hunyuan import Hunyuan
from llamad.chat.parsing.formats.kimi_k2 import KimiK2
from llamad.chat.parsing.formats.kimi_k3 import KimiK3
from llamad.chat.parsing.formats.lfm2 import Lfm2
from llamad.chat.parsing.formats.lists import ToolList
from llamad.chat.parsing.formats.llama3 import Llama3
from llamad.chat.parsing.formats.minicpm5 import MiniCpm5
from llamad.chat.parsing.formats.minimax import MiniMax
from llamad.chat.parsing.formats.mistral import Mistral
from llamad.chat.parsing.formats.qwen3_coder import Qwen3Coder
from llamad.chat.parsing.formats.reasoning import think_tags
from llamad.chat.parsing.formats.solar import Solar

__all__ = ["FORMATS", "CallFormat", "Format", "detect"]

# The first that is in a template decides. Templates often mention the tags of other formats as well: formats that one
# text identifies come first.
FORMATS: tuple[type[CallFormat], ...] = (
    GptOss,
    DeepSeekV32,
    DeepSeekV4,
    Hunyuan,
    MiniMax,
    MiniCpm5,
    KimiK3,
    Gemma,
    Lfm2,
    Apertus,
    Solar,
    GigaChat,
    CommandRPlus,
    DeepSeek,
    KimiK2,
    CommandR,
    Mistral,
    Glm,
    Qwen3Coder,
    Granite,
    ToolList,  # before Hermes: Apriel's template mentions both tags and writes these
    Hermes,
    Functionary,
    Llama3,
    Generic,  # any template; its calls must be described in the prompt
)


def detect(template_source: str) -> Format:
    """Detects the format of tool calls and the reasoning tags from a chat template's source."""
    has = template_source.__contains__
    return next(one for one in FORMATS if one.is_in(has)).found_in(has, think_tags(has))

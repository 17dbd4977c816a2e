"""Ways in which published models have learned the turns of chats."""

from __future__ import annotations

from collections.abc import Mapping

CONTENT = "{}"
"""Stands for what is said in a turn."""
LAYOUTS: Mapping[str, Mapping[str, str | bool]] = {
    "chatml": {
        "system": "<|im_start|>system\n{}<|im_end|>\n",
        "user": "<|im_start|>user\n{}<|im_end|>\n",
        "assistant": "<|im_start|>assistant\n{}<|im_end|>\n",
    },
    "gemma": {
        "begin": "<bos>",
        "user": "<start_of_turn>user\n{}<end_of_turn>\n",
        "assistant": "<start_of_turn>model\n{}<end_of_turn>\n",
        "trim": True,
    },
    "llama-3": {
        "begin": "<|begin_of_text|>",
        "system": "<|start_header_id|>system<|end_header_id|>\n\n{}<|eot_id|>",
        "user": "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
        "assistant": "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>",
        "trim": True,
    },
}
"""Known ones, by what the fields of ``tokenizer.turns`` say."""

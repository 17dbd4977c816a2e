"""One small model a kind of backbone, and what it is given to go on from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from kosmos import Document, Media, Text
from kosmos.compose import Composition, compose
from support.runs import small_run, ticks_registry

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
}
BACKBONES = {
    "decoder": {"layers": 2, "kv_heads": 1},
    "kosmos-1": {"layers": 2, "positions": "xpos", "norm": "layer", "activation": "gelu", "sub_ln": True},
    "hf": {"name": "hf", "config": LLAMA},
}
SERIES = np.linspace(-1, 1, 13, dtype=np.float32)


def composed(name: str) -> Composition:
    parts = compose(small_run(backbone=BACKBONES[name]), ticks_registry())
    parts.model.eval()
    with torch.no_grad():  # initial logits are too even for a test of which token is the most likely
        for parameter in parts.model.parameters():
            parameter.mul_(2)
    return parts


def documents() -> Iterator[Document]:
    yield Document("text", (Text("one plus"),))
    yield Document("ticks", (Media("ticks", SERIES),))
    yield Document("both", (Text("a"), Media("ticks", SERIES), Text("b"), Media("ticks", -SERIES[:5]), Text("c")))

"""Folders of small neural audio codecs with random weights, as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

RATE_HZ = 800
HOPS = {"mimi": 16, "encodec": 8, "dac": 10}
"""Samples of a frame."""
SIZES: dict[str, dict[str, Any]] = {
    "mimi": {
        "hidden_size": 16, "num_filters": 4, "upsampling_ratios": [4, 2], "codebook_dim": 8, "num_quantizers": 10,
        "vector_quantization_hidden_dimension": 8, "upsample_groups": 16, "num_hidden_layers": 1, "sliding_window": 8,
        "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
    },
    "encodec": {
        "hidden_size": 8, "num_filters": 4, "upsampling_ratios": [4, 2], "target_bandwidths": [0.4, 0.8, 1.6],
    },
    "dac": {
        "encoder_hidden_size": 4, "decoder_hidden_size": 16, "downsampling_ratios": [2, 5], "n_codebooks": 3,
        "codebook_dim": 4,
    },
}  # fmt: skip
CODEBOOK_SIZE = 16
LOST = {"mimi": 0, "encodec": 0, "dac": 2}
"""Samples that a decoded sound has less than its frames: an odd stride of DAC loses one, times those behind it."""


def save_codec(kind: str, folder: Path, *, seed: int = 0, **fields: Any) -> Any:
    """Save one, and give it: the model of transformers, with codebooks that are drawn."""
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    names = {"mimi": "Mimi", "encodec": "Encodec", "dac": "Dac"}
    options = {"sampling_rate": RATE_HZ, "codebook_size": CODEBOOK_SIZE, **SIZES[kind], **fields}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{names[kind]}Model")(getattr(transformers, f"{names[kind]}Config")(**options))
        _draw_codebooks(kind, model)
    model.save_pretrained(folder)
    return model.eval()


def _draw_codebooks(kind: str, model: Any) -> None:
    """Those of Mimi and EnCodec are zeros, of which every code would be the first."""
    if kind == "mimi":
        for name, buffer in model.named_buffers():
            if name.endswith("embed_sum"):
                buffer.normal_(std=0.1)
    if kind == "encodec":
        with torch.no_grad():
            heard = model.eval().encoder(torch.randn(1, 1, 4000))[0].T  # [T, D]
        for number, layer in enumerate(model.quantizer.layers):
            drawn = torch.randn_like(layer.codebook.embed) * heard.std(0) / (number + 1)
            layer.codebook.embed.copy_(drawn + (heard.mean(0) if number == 0 else 0))

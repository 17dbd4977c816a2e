"""Refuse models of transformers whose packed documents would not be what they are alone."""

from __future__ import annotations

from typing import Any

import torch

from kosmos.data.foreign import first_line
from kosmos.errors import ConfigError, is_out_of_memory
from kosmos.model import huggingface_attention
from kosmos.model.own_losses import output_of
from kosmos.model.segments import Segments

LAYER_KINDS = {"full_attention", "sliding_attention"}
TOLERANCE = 1e-3
"""Relative error of packed logits; a leak changes them by a tenth or more. Measured: below 1e-6, in fp64 too,
because transformers rotates and norms in fp32."""
ROUGH = 0.05
"""The same for half precision."""


def check_stated(name: str, config: Any, kind: Any) -> None:
    """Raises ConfigError for what the configuration and its class tell, before a model is built."""
    strange = set(getattr(config, "layer_types", None) or ()) - LAYER_KINDS
    if strange:
        raise ConfigError(f"hf: {name} has layers of {', '.join(sorted(strange))}; documents in a row would mix")
    if "dynamic" in rope_types(config):
        raise ConfigError(
            f"hf: {name} stretches its positions by the longest document that it has met (rope_type dynamic), so that "
            "documents would hang on each other; set rope_type to linear, yarn or default"
        )
    if not kind._supports_attention_backend:
        raise ConfigError(f"hf: {name} ({kind.__name__}) takes no other attention; documents would mix")
    if getattr(config, "attn_logit_softcapping", None):
        raise ConfigError(f"hf: {name} caps its attention logits, which packed rows do not support")
    if getattr(config, "final_logit_softcapping", None):
        raise ConfigError(f"hf: {name} caps its output logits, which the chunked loss does not support")


def check_head(name: str, model: Any) -> None:
    """Raises ConfigError where the output is not a product with a weight alone."""
    head = model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        raise ConfigError(f"hf: {name} needs an output projection without a bias")


def rope_types(config: Any) -> set[str]:
    """Kinds of rotary positions that a configuration asks for, of which some models have one for each kind of layer."""
    stated = getattr(config, "rope_parameters", None) or {}
    each = [stated, *(part for part in stated.values() if isinstance(part, dict))]
    return {str(part["rope_type"]) for part in each if part.get("rope_type")}


@torch.no_grad()
def check_apart(name: str, backbone: Any) -> None:
    """Compare logits of two packed documents with transformers' own of each alone.

    Catches what no configuration tells: state that runs through the row, positions by row, masks of the model's
    own. Two small passes; left out where weights have no values yet (the meta device).

    Raises:
        ConfigError: they differ.
    """
    model, weight = backbone.model, backbone.output_weight()
    if any(parameter.is_meta for parameter in model.parameters()):
        return
    training = model.training
    model.eval()
    device = weight.device
    documents = [torch.arange(start, start + 5, device=device) % weight.shape[0] for start in (7, 20)]
    try:
        model.set_attn_implementation("eager")
        alone = [model(input_ids=ids[None], use_cache=False).logits[0] for ids in documents]
        model.set_attn_implementation(huggingface_attention.NAME)
        positions = torch.arange(5, device=device).repeat(2)
        hidden = output_of(backbone(backbone.embed(torch.cat(documents)), positions, Segments((5, 5))))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ConfigError(f"hf: {name} does not run as a packed causal language model: {first_line(error)}") from error
    finally:
        model.train(training)
    expected, got = torch.cat(alone).float(), (hidden @ weight.T.to(hidden.dtype)).float()
    difference = float((got - expected).norm() / expected.norm())
    if not difference <= (TOLERANCE if weight.dtype in (torch.float32, torch.float64) else ROUGH):
        raise ConfigError(f"hf: {name}: packed logits differ from the model's own by {difference:.1%}; documents mix")

"""Adapters as PEFT writes them: a folder with tensors of low-rank updates, and what they are, of a model elsewhere."""

from __future__ import annotations

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter."""
PREFIX = "base_model.model."
"""What stands in front of a name of the model's in an adapter."""

"""Encoders, connectors and backbones, and the model that they make together. May know a batch."""

import logging

# What transformers imports of torchao, where that is installed, torch 2.14 calls deprecated. It is not the user's.
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)

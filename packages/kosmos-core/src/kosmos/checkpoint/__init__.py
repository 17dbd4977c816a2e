"""Checkpoints: whole or invisible. Tensors in safetensors, the rest in JSON; nothing is unpickled.

``folder`` commits, verifies and prunes, ``tensors`` writes and reads shards by PyTorch's distributed checkpoint,
``saver`` does it beside the training.
"""

AVERAGED = "averaged"
"""In the state of a mean of checkpoints: their steps. There is no state of an optimizer beside it."""

"""Checkpoints: whole or invisible. Tensors in safetensors, the rest in JSON; nothing is unpickled.

``folder`` commits, verifies and prunes, ``tensors`` writes and reads shards by PyTorch's distributed checkpoint,
``saver`` does it beside the training.
"""

import kosmos.runtime  # noqa: F401  silences what torch notes as its checkpoints are imported

AVERAGED = "averaged"
"""In the state of a mean of checkpoints: their steps. There is no state of an optimizer beside it."""

"""What a dry run of a timm model shows, and what it says of pictures that the model cannot take."""

from __future__ import annotations

import pytest

from kosmos import ConfigError
from kosmos_vision.timm_encoder import TimmEncoder

TINY = {"embed_dim": 32, "depth": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("vit_tiny_patch16_224", TINY, "patches of 16 x 16 px, and 100 x 100 px are no whole number of them"),
        ("naflexvit_base_patch16_gap", TINY, "patches of 16 x 16 px, and 100 x 100 px"),
        ("mixer_s32_224", {}, "patches of 32 x 32 px, and 100 x 100 px"),
        ("convnext_atto", {}, "gives 3 x 3 positions for 100 x 100 px, no whole number of pixels each"),
    ],
)
def test_of_a_size_that_leaves_a_rest_the_message_says_what_to_choose(model, options, said):
    with pytest.raises(ConfigError, match=f"{said}.*; choose an image_size that its stride divides$"):
        TimmEncoder(model=model, image_size=100, model_options=options)

"""Features of an earlier layer, as LLaVA takes those of the last but one."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from kosmos import ConfigError
from kosmos_vision.timm_encoder import TimmEncoder
from support.rebuilt import rebuilt
from support.timm_models import SWIN, TINY, alone, grid, pictures

NAFLEX = {"model": "naflexvit_base_patch16_gap", "model_options": {**TINY, "depth": 3}}
CASES: dict[str, dict[str, Any]] = {
    "vit": {"model": "test_vit", "layer": -2},
    "vit's last, without its norm": {"model": "test_vit", "layer": -1},
    "vit's first": {"model": "test_vit", "layer": 0},
    "naflex": {**NAFLEX, "layer": -2},
    "convnext": {"model": "test_convnext", "layer": -2},
    "swin": {"model": "swin_tiny_patch4_window7_224", "model_options": SWIN, "layer": 0},
}


def of_timm(options: dict[str, Any], encoder: TimmEncoder, values: Tensor) -> Tensor:
    """What timm's own intermediates are, of one picture: [rows x columns, width]."""
    size = {} if "convnext" in options["model"] else {"img_size": 64}
    whole = timm.create_model(options["model"], num_classes=0, **size, **options.get("model_options", {})).eval()
    missing = whole.load_state_dict(encoder.model.state_dict(), strict=False)
    assert not missing.unexpected_keys
    (_, rows, columns), (height, width) = grid(encoder), encoder.input.patch_px
    cells = values.view(1, rows, columns, 3, height, width).permute(0, 3, 1, 4, 2, 5)
    picture = encoder._normalised(cells.reshape(1, 3, rows * height, columns * width))
    (found,) = whole.forward_intermediates(
        picture, indices=[options["layer"]], norm=False, intermediates_only=True, output_fmt="NCHW"
    )
    return found[0].flatten(1).T  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_features_are_timms_own_of_that_layer(options: dict[str, Any]) -> None:
    encoder = TimmEncoder(**options, image_size=64).eval()
    values, grids = pictures(encoder, [grid(encoder)])
    found = encoder(values, grids)
    expected = of_timm(options, encoder, values)
    assert found.shape == (len(values), encoder.width)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("variable", [False, True])
def test_what_comes_behind_costs_nothing_and_all_that_is_left_learns(variable: bool) -> None:
    whole, encoder = (TimmEncoder(model="test_vit", image_size=64, variable=variable, layer=n) for n in (None, -2))
    count = [sum(p.numel() for p in e.parameters() if p.requires_grad) for e in (whole, encoder)]
    assert count[1] < count[0] and len(encoder.blocks) == len(whole.blocks) - 1
    values, grids = pictures(encoder, [grid(encoder)] * 2)
    features = encoder(values, grids)
    torch.testing.assert_close(features, alone(encoder, values, grids), atol=2e-5, rtol=0)
    (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())] == []


def test_weights_of_the_whole_model_are_read(tmp_path) -> None:
    model = timm.create_model("test_vit")
    torch.save(model.state_dict(), tmp_path / "vit.pt")
    encoder = TimmEncoder(model="test_vit", weights=str(tmp_path / "vit.pt"), layer=-2)
    own = dict(encoder.model.named_parameters())
    assert all(torch.equal(own[name], p) for name, p in model.named_parameters() if name in own)
    assert len(own) < len(dict(model.named_parameters()))
    rebuilt(encoder, model="test_vit", weights=str(tmp_path / "vit.pt"), layer=-2)


def test_layers_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"layer 40: timm model test_vit: expected 0 to 5, or -1 to -6"):
        TimmEncoder(model="test_vit", layer=40)
    monkeypatch.delattr(type(timm.create_model("test_vit")), "prune_intermediate_layers")
    with pytest.raises(ConfigError, match=r"layer -1: timm model .* gives the features of its last layer alone"):
        TimmEncoder(model="test_vit", layer=-1)

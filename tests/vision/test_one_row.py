"""Vision transformers of timm on pictures of any shapes as one row."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from kosmos import ConfigError, recurring_size
from kosmos.testing.fake_gpu import CUDA
from kosmos_vision.timm_encoder import TimmEncoder
from support.programs import check_programs, programs
from support.timm_models import MODELS, SHAPES, TINY, pictures, wake

NAFLEX: dict[str, dict[str, Any]] = {  # kinds of attention and of positions in timm's NaFlex models
    "class-token": {"class_token": True, "reg_tokens": 2, "global_pool": "token"},
    "axial": {"rope_type": "axial", "class_token": True, "global_pool": "token"},
    "mixed": {"rope_type": "mixed", "reg_tokens": 1},
    "mrope": {"rope_type": "mrope", "rope_mrope_section": (2, 3, 3), "reg_tokens": 1},
    "dinov3": {"rope_type": "dinov3", "reg_tokens": 4},
    "factorized": {"pos_embed": "factorized"},
    "convolution": {"embed_proj_type": "conv"},
    "differential": {"attn_layer": "diff"},
    "grouped-heads": {"attn_type": "rope", "num_kv_heads": 1, "qkv_fused": False},
    "eva": {"attn_type": "eva", "swiglu_mlp": True},
    "norm-first": {"pre_norm": True},
}
PLAIN: dict[str, dict[str, Any]] = {  # kinds of plain vision transformers
    "plain": {},
    "plain, registers": {"reg_tokens": 2, "no_embed_class": True},
    "plain, norm-first": {"pre_norm": True, "class_token": False, "global_pool": "avg", "qk_norm": True},
    "plain, layer scale": {"init_values": 0.1},
}
IN_A_ROW: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("naflexvit_base_patch16_gap", {**TINY, **kind}) for name, kind in NAFLEX.items()},
    **{name: ("vit_base_patch16_224", {**TINY, **kind}) for name, kind in PLAIN.items()},
    "dinov3": ("vit_small_patch16_dinov3", TINY),
    "eva": ("eva02_tiny_patch14_224", {**TINY, "patch_size": 16}),
    "mixed rotations": ("vit_small_patch16_rope_mixed_224", TINY),
}


@pytest.mark.parametrize(("model", "options"), IN_A_ROW.values(), ids=IN_A_ROW)
def test_a_row_of_pictures_gives_what_timm_gives_for_each(model: str, options: dict[str, Any]) -> None:
    encoder = TimmEncoder(model=model, image_size=64, variable=True, model_options=options)
    wake(encoder)
    own = {} if "naflex" in model else {"dynamic_img_size": True}
    theirs = timm.create_model(model, num_classes=0, img_size=64, **own, **options)
    theirs.load_state_dict(encoder.model.state_dict(), strict=False)
    values, grids = pictures(encoder, SHAPES)
    mean, std = (torch.tensor(x)[:, None, None] for x in (encoder.input.mean, encoder.input.std))
    expected = []
    for picture, (t, h, w) in zip(torch.split(values, grids.prod(1).tolist()), grids.tolist(), strict=True):
        pixels = picture.view(t, h, w, 3, 16, 16).permute(0, 3, 1, 4, 2, 5).reshape(t, 3, h * 16, w * 16)
        raw = theirs.forward_features((pixels / 255 - mean) / std)
        expected.append(raw[:, theirs.num_prefix_tokens :].flatten(0, 1))
    calls: list[int] = []
    encoder.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    # measured: at most 7.2e-7 on features of size 1 to 4
    torch.testing.assert_close(encoder(values, grids), torch.cat(expected), atol=5e-6, rtol=0)
    assert calls == [1]


@pytest.mark.parametrize("options", [{}, {"drop_path_rate": 0.1}], ids=["in a row", "drops: by shape"])
def test_plain_models_run_pictures_of_all_shapes_at_once_unless_they_drop_parts_of_them(options: Any) -> None:
    encoder = TimmEncoder(
        model="vit_base_patch16_224", image_size=64, variable=True, model_options={**TINY, **options}
    ).train()
    rows: list[int] = []
    encoder.blocks[0].register_forward_hook(lambda module, given, out: rows.append(out.shape[0] * out.shape[1]))
    row = pictures(encoder, SHAPES)
    encoder(*row)
    counts = [h * w + 1 for t, h, w in SHAPES for _ in range(t)]
    shapes = [(h, w) for t, h, w in SHAPES for _ in range(t)]
    each = [
        sum(n for n, other in zip(counts, shapes, strict=True) if other == shape) for shape in dict.fromkeys(shapes)
    ]
    assert rows == (each if options else [sum(counts)])
    assert encoder.takes_threads == (not options)


@pytest.mark.parametrize("option", ["attn_drop_rate", "drop_path_rate"])
def test_what_drops_parts_of_pictures_is_refused_where_they_share_a_row(option: str) -> None:
    options = {"model": "naflexvit_base_patch16_gap", "image_size": 64, "model_options": {**TINY, option: 0.1}}
    one_shape, any_shape = TimmEncoder(**options), TimmEncoder(**options, variable=True)
    row = pictures(one_shape, [(1, 4, 4)])
    one_shape(*row)
    any_shape.eval()(*row)  # which drops nothing
    with pytest.raises(ConfigError, match=f"{option} cannot be used with variable: true"):
        any_shape.train()(*row)


@pytest.mark.parametrize("option", ["pos_embed_use_grid_sample", "pos_embed_align_corners"])
def test_other_ways_to_look_up_positions_are_refused_in_a_row(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} cannot be used with variable: true"):
        TimmEncoder(
            model="naflexvit_base_patch16_gap", image_size=64, variable=True, model_options={**TINY, option: True}
        )


def test_a_row_of_pictures_does_not_depend_on_how_timm_attends(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = TimmEncoder(**MODELS["naflex-fixed"], variable=True)
    monkeypatch.setattr(timm.layers.attention, "use_fused_attn", lambda: False)
    torch.manual_seed(0)
    other = TimmEncoder(**MODELS["naflex-fixed"], variable=True)
    row = pictures(encoder, SHAPES)
    torch.testing.assert_close(other(*row), encoder(*row), atol=0, rtol=0)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # of torch, at a norm inside differential attention
@pytest.mark.parametrize(("model", "options"), IN_A_ROW.values(), ids=IN_A_ROW)
def test_a_row_that_is_padded_for_products_in_bf16_gives_the_same(model: str, options: dict[str, Any]) -> None:
    encoder = TimmEncoder(model=model, image_size=64, variable=True, model_options=options)
    wake(encoder)
    values, grids = pictures(encoder, SHAPES)
    exact = encoder(values, grids)
    with torch.autocast("cpu", torch.bfloat16):
        assert recurring_size(len(values), exact) > len(values)
        rough = encoder(values, grids)
    # bf16: measured 0.0029 to 0.0035
    assert float(((rough - exact).norm() / exact.norm()).detach()) < 0.006
    rough.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(*pictures(encoder, [])).shape == (0, encoder.width)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
@pytest.mark.parametrize("kind", ["plain", "mixed", "dinov3", "eva"])
def test_on_a_gpu_a_block_is_one_program_that_holds_attention_and_serves_any_shapes(kind: str) -> None:
    model, options = IN_A_ROW[kind]

    def call(encoder: Any, shapes: list[tuple[int, int, int]]) -> None:
        grids = torch.tensor(shapes)
        cells = int(grids.prod(1).sum())
        values = torch.zeros(cells, 3, *encoder.input.patch_px, dtype=torch.uint8, device=CUDA)
        assert encoder(values, grids).shape == (cells, encoder.width)

    rows = [SHAPES, [(1, 8, 8)] * 4, [(1, 1, 1)], [(1, 14, 14), (1, 9, 14)], SHAPES[:2]]
    check_programs(programs(TimmEncoder(model=model, image_size=64, variable=True, model_options=options), rows, call))

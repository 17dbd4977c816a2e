"""timm models as encoders: one feature a cell, whatever the model's layout, and no picture sees another."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from kosmos import ConfigError, PlanMismatch
from kosmos.plugins import load_plugins
from kosmos_vision.anatomy import as_cells
from kosmos_vision.cell_projection import reads_cells, takes_cells
from kosmos_vision.timm_encoder import TimmEncoder
from support.rebuilt import rebuilt
from support.thorough import thorough
from support.timm_models import MODELS, SHAPES, TINY, alone, grid, pictures, wake

VARIABLE: dict[str, dict[str, Any]] = {
    name: {**options, "variable": True} for name, options in MODELS.items() if name != "resnet-frozen"
}


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_packed_pictures_give_the_features_of_each_alone(options: dict[str, Any]) -> None:
    encoder = TimmEncoder(**options)
    wake(encoder)
    values, grids = pictures(encoder, [grid(encoder)] * 3)
    packed = encoder.train()(values, grids)
    assert packed.shape == (len(values), encoder.width)
    # measured: at most 6e-6 on features of size 1, from other summation orders in matrix products
    torch.testing.assert_close(packed, alone(encoder, values, grids), atol=2e-5, rtol=0)


@pytest.mark.parametrize("options", VARIABLE.values(), ids=VARIABLE)
def test_pictures_of_any_shapes_in_any_order_give_the_features_of_each_alone(options: dict[str, Any]) -> None:
    encoder = TimmEncoder(**options)
    wake(encoder)
    assert encoder.input.size_px is None
    values, grids = pictures(encoder, SHAPES)
    packed = encoder(values, grids)
    assert packed.shape == (len(values), encoder.width)
    # measured: at most 4.1e-6, as above
    torch.testing.assert_close(packed, alone(encoder, values, grids), atol=2e-5, rtol=0)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_trainable_parameter_gets_a_gradient(options: dict[str, Any]) -> None:
    encoder = TimmEncoder(**options)
    wake(encoder)
    values, grids = pictures(encoder, [grid(encoder)] * 2)
    features = encoder(values, grids)
    (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    dead = [key for key, p in encoder.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert dead == []


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.05), (torch.float16, 0.01), (torch.float64, 1e-5)])
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_an_encoder_brought_to_another_type_gives_features_of_it(
    options: dict[str, Any], dtype: torch.dtype, most: float
) -> None:
    torch.manual_seed(0)
    encoder = TimmEncoder(**options).eval()
    values, grids = pictures(encoder, [grid(encoder)] * 2)
    expected = encoder(values, grids)
    encoder.to(dtype)
    found = encoder(values, grids)
    assert (found.dtype, encoder(*pictures(encoder, [])).dtype) == (dtype, dtype)
    # Measured, of the largest feature: bf16 0.019, fp16 0.0024, fp64 7e-7.
    assert (found - expected).abs().max() <= most * expected.abs().max()


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("recompute", [False, True, "selective"])
@pytest.mark.parametrize("options", [*MODELS.values(), *VARIABLE.values()])
def test_no_pictures_run_forward_and_backward(options: dict[str, Any], recompute: Any, bf16: bool) -> None:
    encoder = TimmEncoder(**options)
    encoder.set_gradient_checkpointing(recompute)
    values, grids = pictures(encoder, [])
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        nothing = encoder(values, grids)
    assert nothing.shape == (0, encoder.width)
    nothing.float().sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())
    for parameter in encoder.parameters():
        parameter.requires_grad_(False)
    assert encoder(values, grids).shape == (0, encoder.width)


@pytest.mark.parametrize("case", ["vit-class-token", "vit-registers-rope", "siglip-map-head", "convnext-nchw"])
def test_features_equal_those_of_timm_itself(case: str) -> None:
    torch.manual_seed(0)
    options = MODELS[case]
    encoder = TimmEncoder(**options).eval()
    _, h, w = grid(encoder)
    values, grids = pictures(encoder, [(1, h, w)] * 2)
    picture = values.view(2, h, w, 3, 64 // h, 64 // w).permute(0, 3, 1, 4, 2, 5).reshape(2, 3, 64, 64)
    size = {} if case == "convnext-nchw" else {"img_size": 64}
    theirs = timm.create_model(options["model"], num_classes=0, **size, **options.get("model_options", {})).eval()
    theirs.load_state_dict(encoder.model.state_dict(), strict=False)  # what nothing trains is left out of ours
    mean, std = (torch.tensor(x)[:, None, None] for x in (encoder.input.mean, encoder.input.std))
    expected = as_cells(theirs, theirs.forward_features((picture / 255 - mean) / std), (h, w)).flatten(0, 1)
    # measured at most 3.1e-6: the normalisation multiplies in another order, and products of cells sum in another
    torch.testing.assert_close(encoder(values, grids), expected, atol=1e-5, rtol=0)


def test_only_models_that_do_nothing_else_with_a_picture_are_given_its_cells() -> None:
    reads = {case: takes_cells(TimmEncoder(**options).model) for case, options in MODELS.items()}
    assert {case for case, cells in reads.items() if cells} == {
        "vit-class-token", "vit-registers-rope", "siglip-map-head",
    }  # fmt: skip

    class Twice(nn.Module):
        patch_embed = timm.layers.PatchEmbed(64, 16)

        def forward_features(self, picture: Tensor) -> Tensor:
            return self.patch_embed(picture) + picture.mean()

    assert not reads_cells(Twice(), torch.zeros(1, 3, 64, 64), (16, 16))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own parts
@pytest.mark.parametrize(
    ("case", "backend"),
    [
        ("vit-class-token", "inductor"),
        ("naflex-fixed", "aot_eager"),
        pytest.param("naflex-fixed", "inductor", marks=thorough),
    ],
)
def test_compiled_blocks_give_the_same_and_are_compiled_for_no_new_picture(case: str, backend: str) -> None:
    torch._dynamo.reset()
    encoder = TimmEncoder(**MODELS[case], variable=True)
    wake(encoder)
    random = Random(0)
    rows = [[(1, random.randint(1, 4), random.randint(1, 5)) for _ in range(random.randint(1, 9))] for _ in range(24)]
    expected = [encoder(*pictures(encoder, row)) for row in rows]
    for block in encoder.blocks:
        block.compile(backend=backend)
    counts = []
    for row, features in zip(rows, expected, strict=True):
        # measured: at most 7.2e-7
        torch.testing.assert_close(encoder(*pictures(encoder, row)), features, atol=5e-6, rtol=0)
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert counts[1:] == [counts[1]] * 23 and counts[0]  # for one row, and for any


def test_only_stacks_of_like_blocks_are_compiled() -> None:
    assert {name for name, options in MODELS.items() if TimmEncoder(**options).compiles} == {
        "vit-class-token", "vit-registers-rope", "siglip-map-head", "naflex-fixed",
    }  # fmt: skip


def test_training_from_scratch_knows_no_batch_statistics_and_frozen_ones_never_move() -> None:
    assert not [m for m in TimmEncoder(model="test_resnet", image_size=64).modules() if isinstance(m, nn.BatchNorm2d)]
    encoder = TimmEncoder(model="test_resnet", image_size=64, norm="frozen").train()
    before = {key: value.clone() for key, value in encoder.named_buffers()}
    assert before
    encoder(*pictures(encoder, [grid(encoder)] * 2))
    assert all(torch.equal(value, before[key]) for key, value in encoder.named_buffers())


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "vit_base_patch16_siglip_224"])
@pytest.mark.parametrize("form", ["file", "folder", "torch"])
def test_local_weights_load_exactly(name: str, form: str, tmp_path: Path) -> None:
    extra = TINY if "siglip" in name else {}
    source = timm.create_model(name, num_classes=10 if "siglip" not in name else 0, **extra)
    state = {key: value.contiguous() for key, value in source.state_dict().items()}
    file = tmp_path / ("model.safetensors" if form != "torch" else "model.pth")
    torch.save(state, file) if form == "torch" else save_file(state, file)
    encoder = TimmEncoder(model=name, weights=str(tmp_path if form == "folder" else file), model_options=extra)
    loaded = encoder.model.state_dict()
    assert loaded
    assert all(torch.equal(value, state[key]) for key, value in loaded.items())
    assert (
        not {key.split(".")[0] for key in state} - {key.split(".")[0] for key in loaded} - {"head", "fc", "attn_pool"}
    )


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_with_the_weights_of_a_checkpoint_the_file_is_not_needed_again(name: str, tmp_path: Path) -> None:
    source = timm.create_model(name, num_classes=0)
    save_file({key: value.contiguous() for key, value in source.state_dict().items()}, tmp_path / "model.safetensors")
    options: dict[str, Any] = {"model": name, "image_size": 64, "weights": str(tmp_path / "model.safetensors")}
    encoder = TimmEncoder(**options)
    (tmp_path / "model.safetensors").unlink()
    again = rebuilt(encoder, **options)
    row = pictures(encoder, [grid(encoder)] * 2)
    assert torch.equal(again(*row), encoder(*row))
    assert TimmEncoder(model=name, image_size=64).without_files == {}


def test_weights_that_do_not_fit_or_hold_code_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file(timm.create_model("test_convnext").state_dict(), other)
    with pytest.raises(ConfigError, match="do not fit timm model test_resnet"):
        TimmEncoder(model="test_resnet", weights=str(other))
    part = timm.create_model("test_resnet").state_dict()
    del part["layer2.0.conv1.weight"]
    save_file(part, other)
    with pytest.raises(ConfigError, match=r"lack 1 tensors, first layer2\.0\.conv1\.weight"):
        TimmEncoder(model="test_resnet", weights=str(other))
    torch.save({"code": Path}, tmp_path / "code.pth")
    with pytest.raises(ConfigError, match="cannot be read as tensors"):
        TimmEncoder(model="test_resnet", weights=str(tmp_path / "code.pth"))
    with pytest.raises(ConfigError, match="no such file"):
        TimmEncoder(model="test_resnet", weights=str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "resnet19"}, "timm has no model resnet19; did you mean resnet"),
        ({"model": "test_resnet", "model_options": {"depht": 3}}, "cannot be built with .*depht"),
        ({"model": "test_vit", "model_options": {"checkpoint_path": "x.pth"}}, "checkpoint_path: .* option weights"),
        ({"model": "test_vit", "model_options": {"pretrained": True}}, "pretrained: .* of the encoder itself"),
        ({"model": "test_vit", "model_options": {"num_classes": 5}}, "num_classes: .* without a classifier"),
        ({"model": "pit_ti_224"}, "need one per position"),
        ({"model": "xcit_nano_12_p16_224"}, "class attention"),
        ({"model": "test_vit", "image_size": 70}, "choose an image_size that its stride divides"),
        ({"model": "test_vit", "image_size": 0}, "image_size 0 x 0: need at least one pixel a side"),
        ({"model": "test_resnet", "image_size": (64, 0)}, "image_size 64 x 0: need at least one pixel a side"),
        ({"model": "test_resnet", "image_size": 70}, "choose an image_size"),
        ({"model": "mixer_s32_224", "variable": True}, "pictures of one size only"),
        ({"model": "test_vit", "pretrained": True, "weights": "x.safetensors"}, "exclude each other"),
    ],
)
def test_what_a_model_cannot_do_is_one_clear_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TimmEncoder(**options)


def test_a_name_that_timm_does_not_know_is_refused_before_anything_is_built() -> None:
    def check(model: str) -> dict[str, Any]:
        return load_plugins().check("encoder", "timm", {"model": model}, path="streams.image.encoder", positional=0)

    with pytest.raises(ConfigError, match=r"^streams\.image\.encoder\.model: timm has no model resnet19; did you mean"):
        check("resnet19")
    for known in ("resnet18.a1_in1k", "hf-hub:owner/model"):
        assert check(known) == {"model": known}


def test_a_wrong_number_of_cells_is_named() -> None:
    encoder = TimmEncoder(model="test_vit", image_size=64)
    values, grids = pictures(encoder, [(1, 4, 4)])
    with pytest.raises(PlanMismatch, match="15 cells of pictures, planned 16"):
        encoder(values[:15], grids)


@pytest.mark.parametrize("case", ["vit-class-token", "naflex-fixed"])
def test_gradient_checkpointing_changes_no_gradient(case: str) -> None:
    encoder = TimmEncoder(**MODELS[case], variable=True)
    values, grids = pictures(encoder, [(1, 4, 4)] * 2)
    found, runs = [], []
    encoder.blocks[0].register_forward_pre_hook(lambda *unused: runs.append(1))
    for enabled in (False, True):
        encoder.set_gradient_checkpointing(enabled)
        encoder.zero_grad()
        encoder(values, grids).square().sum().backward()
        assert len(runs) == (3 if enabled else 1)  # once more in the backward pass
        found.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_an_encoder_can_be_built_on_the_meta_device() -> None:
    with torch.device("meta"):
        encoder = TimmEncoder(model="test_vit", image_size=64)
    assert next(encoder.parameters()).is_meta
    assert encoder.input == TimmEncoder(model="test_vit", image_size=64).input


def test_attention_in_bf16_on_a_cpu_is_two_products_and_gives_the_same() -> None:
    encoder = TimmEncoder(**MODELS["vit-class-token"])
    wake(encoder)
    values, grids = pictures(encoder, [grid(encoder)] * 3)
    exact = encoder(values, grids)
    assert all(module.fused_attn for module in encoder._attentions)
    with torch.autocast("cpu", torch.bfloat16):
        rough = encoder(values, grids)
    assert encoder._attentions
    assert not any(module.fused_attn for module in encoder._attentions)
    assert float(((rough - exact).norm() / exact.norm()).detach()) < 0.01  # bf16: measured 0.0026


def test_large_pictures_keep_an_attention_that_holds_no_shares() -> None:
    encoder = TimmEncoder(model="test_vit", image_size=16 * 21)  # 441 cells
    values, grids = pictures(encoder, [(1, 21, 21)])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        encoder(values, grids)
    assert encoder._attentions
    assert all(module.fused_attn for module in encoder._attentions)


def test_a_model_is_tried_once_a_process_and_another_of_its_name_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing a run builds an encoder several times, most of which was to run it without data."""
    known, built = timm.models._registry._model_entrypoints, []
    own = known["test_vit"]

    def noted(**options: Any) -> nn.Module:
        built.append(options)
        return own(**options)

    monkeypatch.setitem(known, "test_vit", noted)
    encoders = []
    for options in ({}, {}, {"image_size": 64}, {"model_options": {"depth": 2}}, {}):
        before = len(built)
        encoders.append((TimmEncoder(model="test_vit", variable=True, **options), len(built) - before))
    assert [times == 1 for _, times in encoders] == [False, True, False, False, True]
    assert [len(encoder.model.blocks) for encoder, _ in encoders].count(2) == 1
    monkeypatch.setitem(known, "test_vit", lambda **options: own(**options, patch_size=8))
    assert {encoder.input.patch_px for encoder, _ in encoders} == {(16, 16)}
    assert TimmEncoder(model="test_vit", variable=True).input.patch_px == (8, 8)

"""Any timm model as an encoder of pictures.

N = cells of all pictures, one feature each; B = pictures of one shape, of h x w cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import AfterValidator
from torch import Tensor, nn

from kosmos import ConfigError, PlanMismatch, WithKernels, to_device
from kosmos_vision import one_row
from kosmos_vision.anatomy import Anatomy, as_cells, examine
from kosmos_vision.cell_projection import project_cells, takes_cells
from kosmos_vision.images import ImageInput
from kosmos_vision.item_norms import batch_norms, replace_batch_norms
from kosmos_vision.lean_timm import timm
from kosmos_vision.stated_colours import FIELDS, OVERLAY, with_stated_colours
from kosmos_vision.timm_attention import PictureAttention, attend_by_kernels, of_products
from kosmos_vision.timm_build import HUB, STATISTICS, build, drop, resized_positions, unknown_model
from kosmos_vision.transformers_names import refuse_other_size, stated_options


def _known(model: str) -> str:
    if fault := unknown_model(model):
        raise ValueError(fault)
    return model


Model = Annotated[str, AfterValidator(_known)]
"""Checked with the other options of a run file, before anything is built: by ``kosmos launch``, too."""
Norm = Literal["auto", "group", "frozen"]
FEW_CELLS = 400
"""Cells of a picture up to which a CPU in bf16 may hold what each pays to each: 12 heads of 400 take 4 MB a picture and
layer."""


class TimmEncoder(WithKernels):
    """Pictures as uint8 cells to features, one a cell. A cell is the square of pixels behind one output position."""

    input: ImageInput

    def __init__(
        self,
        *,
        model: Model = "vit_base_patch16_224",
        pretrained: bool = False,
        weights: str | None = None,
        image_size: int | tuple[int, int] | None = None,
        variable: bool = False,
        norm: Norm = "auto",
        layer: int | None = None,
        model_options: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            model: name in timm, or ``hf-hub:owner/model``.
            pretrained: load the weights that timm names for the model, from the hub or its cache.
            weights: a local safetensors (or torch) file, a folder with one, or ``hf-hub:owner/model``. Names may be
                timm's, or transformers' of SigLIP, CLIP, ViT, DeiT and DINOv2. Where timm's ``config.json`` or
                ``preprocessor_config.json`` is beside them, pictures are brought to the mean and std that it states.
            image_size: side, or (height, width), of a picture in pixels; None takes the model's own. With ``variable``,
                the size that position embeddings start from.
            variable: let each picture keep its own shape, where the model can. NaFlex models, plain vision
                transformers, EVA and DINOv3 take pictures of all shapes as one row without padding, if they drop no
                parts of them at random; other models run a batch for each shape.
            norm: what becomes of BatchNorm, which would mix the pictures of a pack: ``group`` puts GroupNorm in its
                place, ``frozen`` keeps its running statistics as they are; ``auto`` is ``frozen`` with weights and
                ``group`` from scratch.
            layer: the layer (block, or stage) whose output is taken as it is, without the last norm, counted from 0, or
                from -1 backwards: -2 is the last but one, as LLaVA has it. Those behind it are left out. None takes the
                model's own output.
            model_options: further arguments of the timm model, such as ``{"patch_size": 8, "depth": 4}``.

        Raises:
            ConfigError: no such model or weights, or a model that cannot do what was asked.

        On torch's meta device nothing is loaded.
        """
        super().__init__()
        if pretrained and weights is not None:
            raise ConfigError(f"pretrained and weights {weights} exclude each other")
        kind = norm if norm != "auto" else ("frozen" if pretrained or weights is not None else "group")
        self.without_files: dict[str, Any] = {}
        """Options that build it again where its weights are not to be had."""
        wanted = {**stated_options(weights, model), **(model_options or {})}
        extra = with_stated_colours(model, wanted, weights)
        if pretrained or weights is not None:
            self.without_files = {"pretrained": False, "weights": None}
            if extra:
                self.without_files["model_options"] = extra
        options, size, anatomy = _plan(Asked(model, image_size, variable, kind, extra, layer))
        if weights is not None and image_size is None and "img_size" not in extra:
            refuse_other_size(weights, size, model)
        on_meta = torch.get_default_device().type == "meta"
        self.model = build(
            model, pretrained=pretrained and not on_meta, weights=None if on_meta else weights, options=options,
            layer=layer, spare=_Spare(anatomy.unused, statistics=kind == "group"),
        )  # fmt: skip
        _item_norms(self.model, kind)
        drop(self.model, anatomy.unused)
        if anatomy.reads_cells:
            project_cells(self.model)
        self._frozen_norms = batch_norms(self.model)
        if self.without_files and self._frozen_norms:  # without weights they would be others
            self.without_files["norm"] = kind
        attend_by_kernels(self.model)
        self._attentions = [m for m in self.model.modules() if getattr(m, "fused_attn", False)]
        self._in_a_row = variable and (one_row.is_naflex(self.model) or one_row.takes_rows(self.model))
        self._name, self._drops = model, None
        if self._in_a_row:
            one_row.prepare(self.model, model)
            self._drops = one_row.drops(self.model)
            self._attentions = []
        self.takes_threads = not (variable and self._attentions)  # of which each row picks one way
        self.width = anatomy.width
        config = getattr(self.model, "pretrained_cfg", {})
        mean, std = config.get("mean") or (0.5,) * 3, config.get("std") or (0.5,) * 3
        self.input = ImageInput(anatomy.patch_px, None if variable else size, tuple(mean), tuple(std))
        self._start_cells = (size[0] // anatomy.patch_px[0], size[1] // anatomy.patch_px[1])
        self.train()
        self._takes_nothing = self._try_nothing()

    @staticmethod
    def in_effect(options: dict[str, Any]) -> dict[str, Any]:
        """Options with the size and the colours that the model has by its name, to compare two encoders."""
        own = timm.get_pretrained_cfg(options["model"]) if not options["model"].startswith(HUB) else None
        size, extra = options["image_size"], options["model_options"] or {}
        if size is None and "img_size" not in extra and own is not None:
            size = own.input_size[1:]
        if own is not None:
            known = {field: getattr(own, field) for field in FIELDS}
            extra = {**extra, OVERLAY: {**known, **(extra.get(OVERLAY) or {})}}
        sides = (size, size) if isinstance(size, int) else size
        return {**options, "image_size": sides, "model_options": extra}

    def train(self, mode: bool = True) -> TimmEncoder:
        """As ever, but frozen BatchNorms stay with their running statistics."""
        super().train(mode)
        for module in self._frozen_norms:
            module.eval()
        return self

    def resized(self, name: str, weight: Tensor, options: Mapping[str, Any]) -> Tensor | None:
        """Position embeddings of the model for pictures of another size, interpolated as timm does for its own
        weights; None of other weights, or where ``options`` do not tell the size."""
        size = options.get("image_size") or (options.get("model_options") or {}).get("img_size")
        sides = (size, size) if isinstance(size, int) else tuple(size or ())
        return resized_positions(self.model, name.removeprefix("model."), weight, sides)

    @property
    def blocks(self) -> list[nn.Module]:
        """The model's transformer blocks where it is a stack of them, else none: a run compiles these."""
        blocks = list(getattr(self.model, "blocks", ()))
        alike = len({type(block) for block in blocks}) == 1
        return blocks if alike and all(hasattr(block, "attn") for block in blocks) else []

    @property
    def compiles(self) -> bool:
        return bool(self.blocks)

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep less for the backward pass and compute it again there.

        Raises:
            ConfigError: the model has no such switch.
        """
        try:
            self.model.set_grad_checkpointing(enabled)  # type: ignore[operator]
        except (AttributeError, AssertionError) as error:
            raise ConfigError(f"timm model {type(self.model).__name__} has no gradient checkpointing") from error

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """Features of all cells.

        Args:
            values: uint8 [N, 3, patch height, patch width], pictures one after another.
            grids: [items, 3] int64 (t, h, w) on the CPU; the t frames of an item are pictures of their own.

        Returns:
            [N, width], in the order of ``values``. Pictures of one shape run as one batch; with ``variable``
            those that ``one_row`` knows take all as one row.

        Raises:
            PlanMismatch: N disagrees with ``grids``.
            ConfigError: in training, a NaFlex model that drops parts of pictures and keeps each picture's shape.
        """
        if self._drops is not None and self.training:
            raise one_row.refused(self._name, self._drops)
        shapes = [(h, w) for t, h, w in grids.tolist() for _ in range(t)]
        if shapes:
            self._pick_attention(values.device, max(h * w for h, w in shapes))
        if sum(h * w for h, w in shapes) != len(values):
            raise PlanMismatch(f"{len(values)} cells of pictures, planned {sum(h * w for h, w in shapes)}")
        if not shapes:
            return self._nothing(values)
        if len(set(shapes)) == 1:
            return self._features([values], shapes[:1])[0]
        pieces = torch.split(values, [h * w for h, w in shapes])
        members: dict[tuple[int, int], list[int]] = {}
        for number, shape in enumerate(shapes):
            members.setdefault(shape, []).append(number)
        groups = self._features([torch.cat([pieces[i] for i in own]) for own in members.values()], list(members))
        features: list[Tensor] = [values] * len(shapes)
        for (h, w), own, group in zip(members, members.values(), groups, strict=True):
            for i, piece in zip(own, torch.split(group, h * w), strict=True):
                features[i] = piece
        return torch.cat(features)

    def _pick_attention(self, device: torch.device, cells: int) -> None:
        """Torch's attention, or on a CPU ours, where that is faster; else in bf16, where torch's is slow, two products
        and a softmax for pictures of few cells.

        Forward and backward of 16 pictures of 197 tokens, 3 heads of 64, on two cores: products 5.6 ms, against 14.1
        for torch's attention in bf16 and 10.9 in fp32 (Intel Xeon with AMX). Above ``FEW_CELLS`` the shares of
        attention, which are kept for the backward pass, would take too much memory.
        """
        dtype = next(self.model.parameters()).dtype  # they may be elsewhere: see ``parallel.offload``
        products = device.type == "cpu" and of_products(device, dtype) == torch.bfloat16 and cells <= FEW_CELLS
        for module in self._attentions:
            ours = isinstance(module, PictureAttention) and module.attends(device, dtype)
            module.fused_attn = ours or not products  # type: ignore[assignment]

    def _normalised(self, values: Tensor) -> Tensor:
        """uint8 [..., 3, height, width] to the model's type, with mean and std of its training."""
        scales = torch.tensor((self.input.mean, self.input.std))[..., None, None] * 255
        mean, std = to_device(scales, values.device)
        return values.float().sub_(mean).div_(std).to(next(self.model.parameters()).dtype)

    def _features(self, groups: list[Tensor], shapes: list[tuple[int, int]]) -> list[Tensor]:
        """[B x h x w, 3, patch height, patch width] of the pictures of each shape -> [B x h x w, width] of each."""
        pictures = [self._pictures(cells, shape) for cells, shape in zip(groups, shapes, strict=True)]
        if self._in_a_row:
            found = one_row.features(self.model, pictures, by_kernels=self.by_kernels)
            return [cells.flatten(0, 1) for cells in found]
        raw = [self.model.forward_features(batch) for batch in pictures]  # type: ignore[operator]
        return [as_cells(self.model, x, shape).flatten(0, 1) for x, shape in zip(raw, shapes, strict=True)]

    def _pictures(self, cells: Tensor, shape: tuple[int, int]) -> Tensor:
        """[B x h x w, 3, patch height, patch width] -> [B, 3, height, width], normalised.

        Where the model reads cells, the memory holds these one after another.
        """
        h, w = shape
        count, (height, width) = len(cells) // (h * w), cells.shape[2:]
        if takes_cells(self.model):
            return self._normalised(cells).reshape(count, 3, h * height, w * width)
        cells = cells.view(count, h, w, 3, height, width).permute(0, 3, 1, 4, 2, 5)
        return self._normalised(cells.reshape(count, 3, h * height, w * width))  # bytes are moved fast

    def _nothing(self, values: Tensor) -> Tensor:
        """[0, width], through the model, so that sharded parameters are gathered on this rank as on the others.

        Models that cannot run on no pictures run on one grey picture, of which no feature is kept: its gradients are
        exactly zero.
        """
        if self._takes_nothing:
            return self._features([values], [self._start_cells])[0]
        rows, columns = self._start_cells
        grey = torch.full((rows * columns, *values.shape[1:]), 128, dtype=torch.uint8, device=values.device)
        return self._features([grey], [self._start_cells])[0][:0]

    def _try_nothing(self) -> bool:
        """Whether the model runs forward and backward on no pictures; some reshape with -1 and cannot."""
        first = next(self.model.parameters())
        try:
            with torch.enable_grad():
                cells = torch.zeros(0, 3, *self.input.patch_px, dtype=torch.uint8, device=first.device)
                out = self._features([cells], [self._start_cells])[0]
                trained = [p for p in self.model.parameters() if p.requires_grad]
                torch.autograd.grad(out.sum(), trained, allow_unused=True)
        except RuntimeError:
            return False
        return out.shape == (0, self.width)


class _Spare(set[str]):
    """Names of tensors of which nothing is made: those that features do not depend on, and statistics of batches."""

    def __init__(self, unused: Iterable[str], *, statistics: bool) -> None:
        super().__init__(unused)
        self._statistics = statistics

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (self._statistics and str(name).endswith(STATISTICS))


class Asked(NamedTuple):
    """A model of timm, as the options of an encoder say it."""

    name: str
    image_size: int | tuple[int, int] | None
    variable: bool
    norm: str
    extra: dict[str, Any]
    layer: int | None


Plan = tuple[dict[str, Any], tuple[int, int], Anatomy]
"""A model's arguments, the size of its pictures, and what a dry run found."""
_planned: dict[Any, Plan] = {}
"""Of the models that this process has built: one is composed several times in a run. A dry run takes 0.1 s to 0.6 s,
which is most of what it takes to build a small one."""


def _plan(asked: Asked) -> Plan:
    own_name = asked.name.split(".")[0]
    if not timm.is_model(own_name) or not _is_plain(asked.extra):  # of one on the hub, another may be there next time
        return _planned_anew(asked)
    key = timm.model_entrypoint(own_name), repr(asked)
    if key not in _planned:
        _planned[key] = _planned_anew(asked)
    options, size, anatomy = _planned[key]
    return deepcopy(options), size, anatomy


def _is_plain(value: Any) -> bool:
    """Whether it is of what a run file can hold, so that what is written the same is the same."""
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _planned_anew(asked: Asked) -> Plan:
    """Nothing is allocated."""
    name, image_size, variable, norm, extra, layer = asked
    with torch.device("meta"):
        model = build(name, pretrained=False, weights=None, options=extra)
        size, options = _sized(model, image_size, extra)
        found = _examined(name, options, size, norm, layer, other_sizes=variable)
        ways: list[dict[str, Any]] = [{"dynamic_img_size": True}, {"strict_img_size": False}]
        while variable and not found.any_size and ways:
            changed = {**options, **ways.pop(0)}
            try:
                found = _examined(name, changed, size, norm, layer, other_sizes=True)
            except ConfigError:
                continue  # the model has no such argument
            options = changed if found.any_size else options
    if variable and not found.any_size:
        raise ConfigError(f"timm model {name} takes pictures of one size only; leave variable off, or take a naflexvit")
    return options, size, found


def _sized(
    model: nn.Module, image_size: int | tuple[int, int] | None, extra: dict[str, Any]
) -> tuple[tuple[int, int], dict[str, Any]]:
    """(height, width) of a picture, and the model's arguments with it where it has to know."""
    config = getattr(model, "pretrained_cfg", {})
    own = config.get("input_size", (3, 224, 224))[1:]
    asked = next(size for size in (image_size, extra.get("img_size"), own) if size is not None)
    size = (asked, asked) if isinstance(asked, int) else (int(asked[0]), int(asked[1]))
    if min(size) < 1:
        raise ConfigError(f"image_size {size[0]} x {size[1]}: need at least one pixel a side")
    told = image_size is not None and config.get("fixed_input_size") and not one_row.is_naflex(model)
    return size, {**extra, "img_size": size} if told else dict(extra)


def _examined(
    name: str, options: dict[str, Any], size: tuple[int, int], norm: str, layer: int | None, *, other_sizes: bool
) -> Anatomy:
    model = build(name, pretrained=False, weights=None, options=options, layer=layer)
    _item_norms(model, norm)
    return examine(model, size, name=name, other_sizes=other_sizes)


def _item_norms(model: nn.Module, norm: str) -> None:
    if norm == "group":
        replace_batch_norms(model)
    for module in batch_norms(model):
        module.eval()

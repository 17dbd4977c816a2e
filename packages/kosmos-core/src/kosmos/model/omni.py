"""The omni-modal model: streams write into the token slots of a row, the backbone reads the row.

There is no branch on modality: every stream runs on every row, with zero-length input where the row has none of it.
Calling the model gives the losses, so that whoever shards or wraps it sees one call from embeddings to loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from kosmos.data.batch import MediaArrays, PackedBatch
from kosmos.data.processor import Grid
from kosmos.data.slots import SlotCount
from kosmos.errors import KosmosError, PluginError, cause, is_out_of_memory
from kosmos.model import products
from kosmos.model.cpu_kernels import WithKernels
from kosmos.model.failures import named, raise_as_its_own
from kosmos.model.loss import TokenLosses, linear_cross_entropy
from kosmos.model.norms import sum_in_fp32
from kosmos.model.objectives import Learning
from kosmos.model.own_losses import (
    WithLosses,
    apart,
    losses_of,
    output_of,
    refuse_padded,
    refuse_shared,
    says_losses,
    with_own,
)
from kosmos.model.protocols import Backbone, Connector, Encoder
from kosmos.model.recurring import padded_rows, recurring_size
from kosmos.model.segments import Segments
from kosmos.model.sequence import RowPart, SequenceGroup, of_whole_row, part_of


class _Touched(torch.autograd.Function):
    """The first argument as it is; every other one gets a gradient, of zeros where it has no other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.like = [(p.shape, p.dtype, p.device) for p in parameters]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        zeros = (torch.zeros((), dtype=dtype, device=device).expand(shape) for shape, dtype, device in ctx.like)
        return (gradients[0], *zeros)


def touched(x: Tensor, module: nn.Module, *, leave: Iterable[nn.Module] = ()) -> Tensor:
    """``x``, so connected that backward gives every trainable parameter of ``module`` a gradient, but those of parts
    that it is to leave.

    Ranks that exchange gradients have to agree on which ones there are; one whose row left a parameter out sends zeros.
    """
    left = {id(p) for part in leave for p in part.parameters()}
    parameters = [p for p in module.parameters() if p.requires_grad and id(p) not in left]
    if not parameters or not torch.is_grad_enabled():
        return x
    result: Tensor = _Touched.apply(x, *parameters)  # type: ignore[no-untyped-call]
    return result


class Stream(nn.Module):
    """An encoder with its connector."""

    def __init__(
        self,
        encoder: Encoder,
        connector: Connector,
        *,
        width: int,
        freeze: bool = False,
        freeze_connector: bool = False,
        titles: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            width: D, of the backbone that the connector writes for.
            freeze: train none of the encoder's parameters; it then runs in evaluation mode.
            freeze_connector: likewise of the connector.
            titles: what errors call ``encoder`` and ``connector``: their places in the run file and their names.
        """
        super().__init__()
        self.width = width
        self.encoder_width = encoder.width
        self.takes_empty = bool(getattr(encoder, "takes_empty", True))
        # Padding would be a part of losses, which nothing can take out of a sum.
        self.takes_padding = bool(getattr(encoder, "takes_padding", False)) and not says_losses(encoder, connector)
        self.touch = False
        """Whether every trainable parameter gets a gradient from every row: see ``touched``."""
        self.learns: bool | None = None
        """Whether features of the encoder, where it is to be trained, ever led to its parameters; None before any."""
        self.encoder = cast(nn.Module, encoder)
        self.connector = cast(nn.Module, connector)
        self.slots = connector.slots
        parts = {"encoder": encoder, "connector": connector}
        self.titles = titles or {part: f"{part} {type(module).__name__}" for part, module in parts.items()}
        self.frozen, self.frozen_connector = freeze, freeze_connector
        for part in self._frozen_parts():
            part.requires_grad_(False)

    def train(self, mode: bool = True) -> Stream:
        super().train(mode)
        for part in self._frozen_parts():
            part.eval()
        return self

    def _frozen_parts(self) -> list[nn.Module]:
        return [self.encoder] * self.frozen + [self.connector] * self.frozen_connector

    def padding(self, cells: int) -> int:
        """Cells of zeros with which a row of so many is run; see ``kosmos.model.recurring``."""
        return recurring_size(cells, next(self.connector.parameters())) - cells if self.takes_padding else 0

    def forward(self, values: Tensor, grids: Tensor) -> Tensor | WithLosses:
        """values [N, *cell], grids int64 [items, 3] on the CPU -> [M, D]; with losses where its parts hand on some
        that are minimized, as ``encoder.commitment``.

        Raises:
            PluginError: encoder or connector fails, or the encoder gives another number of cells or features than it
                has to, or float64 or no floats; or the connector gives another width than the backbone's, or no floats;
                or one of them as of ``losses_of``.
        """
        losses: dict[str, Tensor] = {}
        if not len(grids) and not self.takes_empty:
            slots = next(self.connector.parameters()).new_zeros(0, self.width)
        else:
            slots, losses = self._through(values, grids, self.padding(len(values)))
        slots = touched(slots, self) if self.touch else slots
        return WithLosses(slots, losses) if losses else slots

    def _through(self, values: Tensor, grids: Tensor, padding: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Slots and losses of a row that is run with so many cells of padding."""
        filled = len(grids) > 0
        if padding:
            values, grids = _with_padding(values, grids, padding)
        with products.frozen(torch.is_grad_enabled()) if self.frozen else nullcontext():
            given = self._run("encoder", values, grids)
        losses = self._losses("encoder", given, filled)
        cells = output_of(given)
        self._check(cells, len(values), learns=any(loss.requires_grad for loss in losses.values()))
        given = self._run("connector", cells, grids)
        losses |= self._losses("connector", given, filled)
        slots = output_of(given)
        self._check_slots(slots)
        return slots[: len(slots) - self.slots(Grid(padding, 1, 1))] if padding else slots, losses

    def _losses(self, part: str, given: Any, filled: bool) -> dict[str, Tensor]:
        found = losses_of(given, self.titles[part], getattr(self, part), filled=filled)
        if found and self.takes_padding:
            refuse_padded(self.titles[part])
        return {f"{part}.{name}": loss for name, loss in found.items()}

    def _run(self, part: str, values: Tensor, grids: Tensor) -> Any:
        try:
            return getattr(self, part)(values, grids)
        except Exception as error:  # a seam: code of plugins
            if part == "connector":
                self._blame_type(values, error)
            what = "values" if part == "encoder" else "features"
            shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise_as_its_own(error, self.titles[part], given=f"{what} {shape}, {len(grids)} items")
            raise

    def _blame_type(self, cells: Tensor, error: Exception) -> None:
        """Raises PluginError about the encoder where the connector may have failed for the type of its features.

        Only then: some connectors take others than that of their parameters.
        """
        types = {p.dtype for p in self.connector.parameters()}
        if isinstance(error, KosmosError) or is_out_of_memory(error):
            return
        if torch.is_autocast_enabled(cells.device.type) or not types or cells.dtype in types:
            return
        raise PluginError(
            f"{self.titles['encoder']}: forward gave {named(cells.dtype)} features, which the connector in "
            f"{named(next(self.connector.parameters()).dtype)} does not take; expected the type of its parameters, or "
            f"of autocast ({cause(error)})"
        ) from error

    def _check(self, cells: Any, number: int, *, learns: bool) -> None:
        """Raises PluginError where an encoder does not give its width for each of so many cells, in the right type.

        Args:
            learns: a loss of its own leads to its parameters.
        """
        given = list(cells.shape) if isinstance(cells, Tensor) else type(cells).__name__
        if given != (expected := [number, self.encoder_width]):
            raise PluginError(
                f"{self.titles['encoder']}: forward gave {given}; expected a tensor {expected}, of its width for each "
                "cell"
            )
        doubled = cells.dtype == torch.float64 and all(p.dtype != torch.float64 for p in self.parameters())
        if doubled or not cells.is_floating_point():
            raise PluginError(
                f"{self.titles['encoder']}: forward gave {named(cells.dtype)} features; expected the type of its "
                "parameters, or of autocast"
            )
        if number and self.training and torch.is_grad_enabled() and self._trains_encoder():
            self.learns = bool(self.learns or learns or cells.requires_grad)

    def _check_slots(self, slots: Any) -> None:
        """Raises PluginError where a connector does not give features as wide as the backbone."""
        given = list(slots.shape) if isinstance(slots, Tensor) else type(slots).__name__
        if not isinstance(slots, Tensor) or slots.dim() != 2 or slots.shape[1] != self.width:
            raise PluginError(
                f"{self.titles['connector']}: forward gave {given}; expected a tensor [slots, {self.width}], as wide "
                "as the backbone"
            )
        if not slots.is_floating_point():
            raise PluginError(f"{self.titles['connector']}: forward gave {named(slots.dtype)}; expected floats")

    def check_number(self, slots: Tensor, media: MediaArrays) -> None:
        """Raises PluginError where its connector does not give the slots that were planned for the row's media."""
        if len(slots) != len(media.slots):
            raise PluginError(
                f"{self.titles['connector']}: forward gave {len(slots)} slots; expected {len(media.slots)}, which its "
                f"slot count gives for the {len(media.grids)} items of the row"
            )

    def _trains_encoder(self) -> bool:
        return not self.frozen and any(p.requires_grad for p in self.encoder.parameters())


def _with_padding(values: Tensor, grids: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """A row with one more item, of zeros, whose slots nobody takes."""
    return padded_rows(values, len(values) + cells), torch.cat([grids, grids.new_tensor([[cells, 1, 1]])])


class OmniModel(WithKernels):
    """A backbone and its streams."""

    kernel_users = 0
    """Who has it compute by kernels for a while (``kosmos.model.kernels_in_use``)."""
    has_no_kernels = False
    """Whether these could not be compiled for it."""

    def __init__(
        self, backbone: Backbone, streams: Mapping[str, Stream], *, freeze_backbone: bool = False, z_loss: float = 0.0
    ) -> None:
        """
        Args:
            z_loss: ``z`` of ``linear_cross_entropy``.
            freeze_backbone: train none of the backbone's parameters; it then runs in evaluation mode.
        """
        super().__init__()
        self.backbone = cast(nn.Module, backbone)
        self.streams = nn.ModuleDict(streams)
        self.frozen_backbone = freeze_backbone
        self.z_loss = z_loss
        self.learning: Learning | None = None
        """What is minimized; None is the cross entropy of every token that is learned."""
        self.title = f"backbone: {type(backbone).__name__}"
        """What errors call the backbone."""
        self.touch_backbone = False
        self.touch_around_blocks = False
        """Whether what of a backbone with losses of its own is in no block gets a gradient from every row."""
        self.row_ranks: SequenceGroup | None = None
        """The ranks that share each row; None where every rank has its own. All of a group call the model alike."""
        if freeze_backbone:
            self.backbone.requires_grad_(False)
        sum_in_fp32(self)

    def train(self, mode: bool = True) -> OmniModel:
        super().train(mode)
        if self.frozen_backbone:
            self.backbone.eval()
            if mode and hasattr(self.backbone, "train_frozen"):
                cast(Any, self.backbone).train_frozen()
        return self

    def embed(self, batch: PackedBatch) -> Tensor:
        """The row with all slots filled: [T, D].

        Raises:
            PluginError: as of ``Stream.forward``, or a connector fills another number of slots than it counts.
        """
        return self._embed(batch, {})

    def _embed(self, batch: PackedBatch, losses: dict[str, Tensor]) -> Tensor:
        """As ``embed``; ``losses`` get those of streams."""
        x: Tensor = cast(Any, self.backbone).embed(batch.token_ids)
        for name, stream in self.streams.items():
            media = batch.media[name]
            slots = apart(stream(media.values, media.grids), losses, f"streams.{name}")
            cast(Stream, stream).check_number(slots, media)
            x = x.index_copy(0, media.slots, slots.to(x.dtype))
        return x

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Hidden states of the row: [T, D]."""
        return self._hidden(batch, {})

    def _hidden(self, batch: PackedBatch, losses: dict[str, Tensor]) -> Tensor:
        """As ``hidden``; ``losses`` get those of all parts."""
        return self._read(self._embed(batch, losses), batch.position_ids, Segments(batch.lengths), losses)

    def forward(self, batch: PackedBatch) -> TokenLosses:
        """Losses of the positions that the loss looks at, in the order of the row; where gradients are taken, with
        those that parts hand on (``WithLosses``) in ``total``.

        Where ranks share rows, ``total`` is the sum over this rank's part.

        Raises:
            PluginError: as of ``embed``, or parts hand on losses and ranks share rows.
        """
        own: dict[str, Tensor] = {}
        if self.row_ranks is None:
            return with_own(self._losses(self._hidden(batch, own), batch), own)
        slots = {name: cast(Stream, stream).connector.slots for name, stream in self.streams.items()}
        part = part_of(batch, self.row_ranks, cast(Mapping[str, SlotCount], slots))
        hidden = self._read(self._embed(part.seen, own)[part.own], part.position_ids, part.segments, own)
        refuse_shared(own)
        return of_whole_row(self._losses(hidden, part), batch, self.row_ranks)

    def _read(self, x: Tensor, position_ids: Tensor, segments: Segments, losses: dict[str, Tensor]) -> Tensor:
        given = self.backbone(x, position_ids, segments)
        hidden: Tensor = output_of(given)
        if isinstance(given, WithLosses):
            found = losses_of(given, self.title, self.backbone, filled=len(x) > 0)
            losses |= {f"backbone.{name}": loss for name, loss in found.items()}
            if self.touch_around_blocks:
                return touched(hidden, self.backbone, leave=getattr(self.backbone, "blocks", ()))
        return touched(hidden, self.backbone) if self.touch_backbone else hidden

    def _losses(self, hidden: Tensor, row: PackedBatch | RowPart) -> TokenLosses:
        head = cast(Backbone, self.backbone).output_weight()
        hidden, targets = hidden.index_select(0, row.trained), row.labels.index_select(0, row.trained)
        if self.learning is not None:
            assert isinstance(row, PackedBatch), "check_objective refuses rows that ranks share"
            return self.learning.losses(hidden, head, row, by_kernels=self.by_kernels)
        return linear_cross_entropy(
            hidden, head, targets, weights=row.weights, z=self.z_loss, by_kernels=self.by_kernels
        )

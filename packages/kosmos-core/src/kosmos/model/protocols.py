"""What the model expects of its parts, each of which may hand on losses of its own (``WithLosses``). Tensor letters as
everywhere:

T = tokens in a row, N = encoder cells, M = token slots, D = model width, V = vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from kosmos.data.slots import SlotCount
from kosmos.model.own_losses import WithLosses
from kosmos.model.segments import Segments


class Encoder(Protocol):
    """A ``torch.nn.Module``. No attention, convolution or statistic may cross items."""

    input: Any
    """What the modality's processor has to produce: a small picklable value that processor and encoder agree on."""
    width: int
    """Features a cell comes out with."""
    # Optional: ``takes_empty = False`` where a kernel refuses input of length 0; the encoder is then left out of
    # rows without its media, and its gradients there are zeros. ``takes_padding = True`` where an item may have any
    # number of cells (t, 1, 1): a CPU in bf16 then appends one of zeros, so that N recurs; see ``recurring``.
    # ``own_losses = True`` where a forward pass may return ``WithLosses``; connectors and backbones have it, too.
    # ``takes_threads = False`` where a forward pass leaves something of its row on the encoder.
    # ``computed_cells(cells: int) -> int`` where an item of so many costs as much as one of more, for what counts
    # operations. ``without_files``, where it was built from files (weights, a configuration): a dict of options that,
    # laid over its own, build it again without them, for a checkpoint to fill; an empty one says that its weights are
    # drawn. ``in_effect(options: dict) -> dict``, static: all options, given with their defaults, as they take effect
    # (a preset's sizes in the place of None), by which two runs are compared where one begins with the weights of the
    # other; and ``same_for_weights``, of the class: the options of which its weights are of no use if they are others,
    # though their shapes fit. Connectors and backbones may have all three.
    # ``resized(name: str, weight: Tensor, options: dict) -> Tensor | None``: a weight of the name from an encoder like
    # this for inputs of another size, whose options in effect these are, brought to the shape that it has here
    # (positions, interpolated); None where it is not to be had. A run that begins with the weights of another asks for
    # those whose shapes differ.

    def __call__(self, values: Tensor, grids: Tensor) -> Tensor | WithLosses:
        """values [N, *cell], grids int64 [items, 3] on the CPU, N = sum of their products -> [N, width].

        N and items may be 0; the result is then empty. A parameter that gets no gradient counts as one with zeros.
        """
        ...


class Connector(Protocol):
    """A ``torch.nn.Module`` from an encoder's features to the backbone's token slots."""

    slots: SlotCount
    """How many slots an item fills; the planner counts with the same object."""

    def __call__(self, features: Tensor, grids: Tensor) -> Tensor | WithLosses:
        """features [N, width_in], grids int64 [items, 3] on the CPU -> [M, width_out]. May be empty."""
        ...


class Backbone(Protocol):
    """A ``torch.nn.Module``: a causal language model over packed rows.

    Optional: ``blocks``, a ``torch.nn.ModuleList`` of its layers, each of which runs once in every forward. Sharded
    runs gather one of them at a time; without it they gather the whole backbone. ``set_gradient_checkpointing(how)``,
    with how one of False, True and ``"selective"`` (which may be taken for True), as encoders have it.
    ``draw_weights()``, which gives all parameters their initial values on whatever device and however sharded they are,
    called on all ranks: a run of several then builds it without memory for its parameters, and each rank fills what
    it holds (``kosmos.model.weights``). The class has it itself; that of a parent does not count.
    ``longest``, the most tokens of a document that it has positions for: longer texts are cut, longer documents with
    media put in quarantine, and generation ends there. ``train_frozen()``, called behind ``eval()`` where it is
    frozen in training: gradients go through it to what is in front of it, so it may have to recompute.
    ``made_for``, the tokens of the longest document that it was made for where longer ones run too: a run whose rows
    are longer is warned. ``new_batch_cache()``, a cache for several documents that are continued together: the first
    row that it is given with holds their prompts, each later one a token of each, and ``keep(which)`` leaves out all
    others. ``capturable``, true where that cache is a ``KeyValueBatch`` and a row of one token each copies nothing from
    or to a GPU: generation there captures such a row as a graph. ``to_transformers(longest)``, a causal language model
    of transformers that gives the same logits for documents of up to ``longest`` tokens, for ``kosmos export --for
    transformers``; ConfigError says why there is none.
    """

    width: int
    vocab_size: int

    def embed(self, token_ids: Tensor) -> Tensor:
        """int [T] -> [T, D]."""
        ...

    def __call__(
        self, x: Tensor, position_ids: Tensor, segments: Segments, cache: Any | None = None
    ) -> Tensor | WithLosses:
        """[T, D] -> hidden states [T, D], ready for the output projection.

        ``segments`` holds the lengths of the documents in the row: no attention crosses them.
        With ``cache`` (from ``new_cache``) the row is the continuation of one document.
        """
        ...

    def output_weight(self) -> Tensor:
        """[V, D]: logits = hidden @ weight.T, in the hidden states' type."""
        ...

    def new_cache(self) -> Any:
        """An empty key-value cache for one document."""
        ...

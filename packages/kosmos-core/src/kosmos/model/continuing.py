"""One more token of each of several documents, again and again: launched anew each time, or replayed by a GPU.

A CPU launches the thousand kernels of a token more slowly than a GPU runs them: one of 1.2 B parameters in bf16 took 15
ms, of which the GPU needs 0.6 to read the weights. A CUDA graph launches them all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache as once
from typing import Any, Protocol

import torch
from torch import Tensor

from kosmos.data.transfer import to_device
from kosmos.errors import PluginError, is_out_of_memory
from kosmos.model.caches import KeyValueBatch
from kosmos.model.own_losses import output_of
from kosmos.model.recompute import runs_compiled
from kosmos.model.segments import Segments


class Continuing(Protocol):
    """Documents whose prompts the backbone has read with ``cache``."""

    cache: Any

    def __call__(self, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
        """A token of each and its position -> hidden states [documents, D], which stay until the next call."""
        ...

    def keep(self, which: Sequence[int]) -> None:
        """Leave out all documents but these."""
        ...


def continuing(backbone: Any, device: torch.device, *, one: bool) -> Continuing:
    """For ``one`` document or, by a backbone that has a ``new_batch_cache``, several."""
    if _can_be_captured(backbone, device):
        return Captured(backbone, device)
    return Launched(backbone, device, backbone.new_cache() if one else backbone.new_batch_cache())


def _can_be_captured(backbone: Any, device: torch.device) -> bool:
    """Whether it says so, and all of it is on one GPU: sharded weights are gathered by hooks.

    Blocks that are compiled to train are launched: for a cache they would be compiled once more.
    """
    if (
        device.type != "cuda"
        or not getattr(backbone, "capturable", False)
        or any(map(runs_compiled, backbone.modules()))
    ):
        return False
    weights = list(backbone.parameters())
    return all(type(p.data) is Tensor and p.is_cuda for p in weights) and len({p.device for p in weights}) == 1


class Launched:
    """By a call of the backbone for every token."""

    def __init__(self, backbone: Any, device: torch.device, cache: Any) -> None:
        self.backbone, self.device, self.cache = backbone, device, cache

    def __call__(self, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
        ids, positions = (to_device(torch.tensor(numbers), self.device) for numbers in (tokens, places))
        given = self.backbone(self.backbone.embed(ids), positions, Segments((1,) * len(tokens)), self.cache)
        hidden: Tensor = output_of(given)
        return hidden

    def keep(self, which: Sequence[int]) -> None:
        self.cache.keep(torch.tensor(which))


class OneShape:
    """By calls that have the same shapes and addresses as long as that goes.

    Documents that are left out stay in the rows, emptied, until half of all are; and attention looks at all the room of
    the cache, which doubles when it is full.
    """

    def __init__(self, backbone: Any, device: torch.device) -> None:
        self.backbone, self.device = backbone, device
        self.cache: KeyValueBatch = backbone.new_batch_cache()
        self._inputs: Tensor | None = None
        """int64 [2, rows]: tokens, and where their documents end with them."""
        self._going: list[int] = []
        """Rows of the documents that are not left out."""
        self._chosen: Tensor | None = None
        """The same on the device, where they are not all."""

    def __call__(self, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
        if self._inputs is None:
            self._begin(self._going or range(self.cache.documents))
        elif self.cache.room <= self.cache.length:
            self._begin(self._going)
        assert self._inputs is not None
        going, row = torch.tensor(self._going), torch.zeros(self.cache.documents, dtype=torch.int64)
        ends = self.cache.ends()
        assert ends[going].tolist() == [place + 1 for place in places], (ends, self._going, places)
        row[going] = torch.tensor(tokens)
        self._inputs.copy_(to_device(torch.stack([row, ends]), self.device))
        hidden = self._run()
        self.cache.advance(going)
        return hidden if self._chosen is None else hidden[self._chosen]

    def keep(self, which: Sequence[int]) -> None:
        going = self._going or list(range(self.cache.documents))
        going = [going[number] for number in which]
        if 2 * len(going) <= self.cache.documents:
            self.cache.keep(torch.tensor(going))
            self._begin(range(len(going)))
        else:
            left = [row for row in range(self.cache.documents) if row not in going]
            self.cache.empty(torch.tensor(left, dtype=torch.int64))
            self._going, self._chosen = going, to_device(torch.tensor(going), self.device)

    def _begin(self, going: Sequence[int]) -> None:
        """Rows of another shape, or at other addresses."""
        rows = self.cache.documents
        self.cache.reserve(1)
        self._inputs = torch.zeros(2, rows, dtype=torch.int64, device=self.device)
        self.cache.fix(self._inputs[1])
        self._going = list(going)
        self._chosen = None if len(going) == rows else to_device(torch.tensor(self._going), self.device)

    def _run(self) -> Tensor:
        return self._step()

    def _step(self) -> Tensor:
        """What is the same for every token: hidden states [rows, D] of what the inputs hold."""
        assert self._inputs is not None
        tokens, ends = self._inputs
        x = self.backbone.embed(tokens)
        hidden: Tensor = output_of(self.backbone(x, ends - 1, Segments((1,) * len(tokens)), self.cache))
        return hidden


class Captured(OneShape):
    """The first row of a shape is launched, the second captured as a graph, and all behind it replay that graph."""

    def _begin(self, going: Sequence[int]) -> None:
        super()._begin(going)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._hidden: Tensor | None = None

    def _run(self) -> Tensor:
        if self._graph is not None:
            self._graph.replay()
        elif self._hidden is not None:
            self._graph, self._hidden = self._capture()
            self._graph.replay()  # a capture computes nothing
        else:
            self._hidden = self._launch()
        assert self._hidden is not None
        return self._hidden

    def _launch(self) -> Tensor:
        """On the stream of captures, where products then have their work space, which a graph would else hold."""
        now, stream = torch.cuda.current_stream(self.device), _stream(self.device)
        stream.wait_stream(now)
        with torch.cuda.stream(stream):
            hidden = self._step()
        now.wait_stream(stream)
        return hidden

    def _capture(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Of weights that want gradients autocast has kept what it cast for the row before: no graph casts them again.

        Raises:
            PluginError: the backbone does what a graph cannot hold.
        """
        graph, stream = torch.cuda.CUDAGraph(), _stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        torch.cuda.empty_cache()  # a graph takes memory of its own, never what is kept for others
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")  # other threads may copy rows meanwhile
            try:
                hidden = self._step()
                graph.capture_end()
            except Exception as error:
                with suppress(RuntimeError):  # which says that the capture has failed
                    graph.capture_end()
                if is_out_of_memory(error):
                    raise
                what = f"backbone {type(self.backbone).__name__}"
                raise PluginError(f"{what}: it says capturable, but no CUDA graph holds it: {error}") from error
        return graph, hidden


@once
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

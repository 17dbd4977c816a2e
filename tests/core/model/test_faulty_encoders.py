"""Encoders that do not keep the protocol: the run names them, not a line inside torch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kosmos import ConnectorSpec, EncoderSpec, Grid, hookimpl, make_run, train_model
from kosmos.compose import compose
from kosmos.data.batch import DocumentInfo, MediaArrays, PackedBatch
from kosmos.errors import ConfigError, PluginError, TrainingError
from kosmos.model.omni import OmniModel
from kosmos.plugins import Registry
from kosmos.train.doubts import doubts, learns_nothing
from kosmos.train.progress import Reporter
from support.runs import SMALL, small_run, ticks_registry
from support.scaled import Undone, version


class Faulty(nn.Module):
    """Gives ``rows`` rows too many of ``width`` features, and says that it gives 8. ``fails`` as it says."""

    def __init__(
        self,
        *,
        rows: int = 0,
        width: int = 8,
        lacks: str = "",
        of_torch: bool = True,
        dtype: str = "float32",
        fails: str = "",
        frozen: bool = True,
    ) -> None:
        super().__init__()
        has = {"input": 4, "width": 8}
        for name in has.keys() - {lacks}:
            setattr(self, name, has[name])
        self.rows, self.features, self.of_torch, self.fails = rows, width, of_torch, fails
        self.dtype = getattr(torch, dtype)
        self.kept: list[Tensor] = []
        self.scale = nn.Parameter(torch.ones(1), requires_grad=not frozen)

    def forward(self, values: Tensor, grids: Tensor) -> Any:
        if self.fails == "here":
            raise ValueError("no such thing")
        if self.fails == "in torch":
            nn.functional.linear(values, torch.zeros(2, 3))
        if self.fails == "for memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        if self.fails == "to let go":
            kept = self.kept[-1] if self.kept else 0.0
            self.kept.append((values.sum() + kept) * self.scale)
            return torch.zeros(len(values), self.features) + self.kept[-1]
        if self.fails == "between ranks":
            torch.distributed.all_reduce(values)
        if self.fails == "in its own words":
            raise ConfigError("streams.ticks.encoder.fails: leave it out")
        given = torch.zeros(len(values) + self.rows, self.features, dtype=self.dtype)
        return given if self.of_torch else given.numpy()


class Stretched(nn.Module):
    """A connector that gives ``rows`` rows and ``width`` features too many."""

    def __init__(self, width_in: int, width_out: int, *, rows: int = 0, width: int = 0, nothing: bool = False) -> None:
        super().__init__()
        self.slots, self.rows, self.nothing = all_cells, rows, nothing
        self.linear = nn.Linear(width_in, width_out + width)

    def forward(self, features: Tensor, grids: Tensor) -> Tensor | None:
        return None if self.nothing else self.linear(nn.functional.pad(features, (0, 0, 0, self.rows)))


class OfOneArgument(nn.Module):
    """A connector that was written for something else."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.slots = all_cells
        self.linear = nn.Linear(width_in, width_out)

    def forward(self, features: Tensor) -> Any:
        return self.linear(features)


def all_cells(grid: Grid) -> int:
    return grid.cells


def faulty_registry() -> Registry:
    plugin = ModuleType("faulty")
    encoder = EncoderSpec(name="faulty", target=f"{__name__}:Faulty", summary="Breaks its promises.")
    connectors = [
        ConnectorSpec(name="narrow", target=f"{__name__}:OfOneArgument", summary="Takes too little."),
        ConnectorSpec(name="stretched", target=f"{__name__}:Stretched", summary="Gives too much."),
    ]
    vars(plugin).update(KOSMOS_API=1, kosmos_encoders=hookimpl(lambda: [encoder]))
    vars(plugin).update(kosmos_connectors=hookimpl(lambda: connectors))
    return ticks_registry(faulty=plugin)


def stream_of(connector: Any = "linear", **options: Any) -> nn.Module:
    parts = {"encoder": {"name": "faulty", **options}, "connector": connector}
    run = make_run(SMALL, {"streams": {"ticks": parts}})
    return compose(run, faulty_registry()).model.streams["ticks"]


def a_row_of_three_cells() -> PackedBatch:
    t = torch.arange(3)
    media = {"ticks": MediaArrays(torch.zeros(3, 4), torch.tensor([[3, 1, 1]]), t)}
    return PackedBatch(t, torch.full((3,), -100), t, (DocumentInfo("ticks", "ticks", ("ticks",), 0, 3),), media, t[:0])


def run_three_cells(stream: nn.Module) -> None:
    stream(torch.zeros(3, 4), torch.tensor([[3, 1, 1]]))


@pytest.mark.parametrize(
    ("options", "given"),
    [({"rows": 1}, r"\[4, 8\]"), ({"width": 6}, r"\[3, 6\]"), ({"of_torch": False}, "ndarray")],
)
def test_what_an_encoder_gives_is_held_against_what_it_has_to_give(options: dict[str, Any], given: str) -> None:
    stream = stream_of(**options)
    said = rf"^streams\.ticks\.encoder: faulty \(Faulty\): forward gave {given}; expected a tensor \[3, 8\], of"
    with pytest.raises(PluginError, match=said):
        run_three_cells(stream)


def test_an_encoder_that_gives_another_type_is_named_and_not_the_connector() -> None:
    stream = stream_of(dtype="float64")
    with pytest.raises(PluginError, match=r"^streams\.ticks\.encoder: faulty \(Faulty\): forward gave float64 "):
        run_three_cells(stream)
    run_three_cells(stream.double())  # where its parameters are of that type it is as it should be


def test_an_encoder_of_half_the_precision_is_named_where_the_connector_takes_no_such_features() -> None:
    stream = stream_of(dtype="float16")
    said = r"encoder: faulty \(Faulty\): forward gave float16 features, which the connector in float32 does not"
    with pytest.raises(PluginError, match=said):
        run_three_cells(stream)
    with torch.autocast("cpu", torch.bfloat16):
        run_three_cells(stream)


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64"])
def test_an_encoder_that_gives_no_floats_is_named_and_not_the_connector(dtype: str) -> None:
    with pytest.raises(
        PluginError, match=rf"^streams\.ticks\.encoder: faulty \(Faulty\): forward gave {dtype} features"
    ):
        run_three_cells(stream_of({"name": "mlp", "pool": [2, 1, 1]}, dtype=dtype))


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_encoder_that_keeps_what_it_computed_of_a_row_is_named_with_where_it_keeps_it(
    tmp_path: Path, at_once: int
) -> None:
    parts = {"encoder": {"name": "faulty", "fails": "to let go", "frozen": False}}
    over = {"streams": {"ticks": parts}, "output": str(tmp_path / "run"), "train": {"lanes_at_once": at_once}}
    said = (
        r"Faulty\.kept holds what was computed of an earlier row; keep nothing of a row on self, or only what is detach"
    )
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.encoder: faulty \(Faulty\): {said}"):
        train_model(make_run(SMALL, over), registry=faulty_registry())


def test_an_encoder_whose_features_lead_to_none_of_its_parameters_is_doubted_once_it_was_met() -> None:
    models = {frozen: OmniModel(nn.Module(), {"ticks": stream_of(frozen=frozen)}) for frozen in (False, True)}
    run_three_cells(models[False].eval().streams["ticks"])
    assert [list(learns_nothing(model)) for model in models.values()] == [[], []]
    for model in models.values():
        run_three_cells(model.train().streams["ticks"])
    assert list(learns_nothing(models[True])) == []
    (line,) = learns_nothing(models[False])
    assert line.startswith("streams.ticks.encoder: faulty (Faulty): in 5 steps none of its features had a gradient")


def test_a_run_says_of_an_encoder_that_it_learns_nothing(tmp_path: Path) -> None:
    lines: list[str] = []

    class Lines(Reporter):
        def say(self, line: str) -> None:
            lines.append(line)

    parts = {"encoder": {"name": "faulty", "frozen": False}, "connector": "linear"}
    run = make_run(SMALL, {"output": str(tmp_path / "run"), "streams": {"ticks": parts}})
    train_model(run, registry=faulty_registry(), reporter=Lines())
    assert len([line for line in lines if "so it learns nothing" in line]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 1}, r"gave \[3, 33\]; expected a tensor \[slots, 32\], as wide as the backbone"),
        ({"nothing": True}, r"gave NoneType; expected a tensor \[slots, 32\]"),
        ({"rows": 1}, r"gave 4 slots; expected 3, which its slot count gives for the 1 items of the row"),
    ],
)
def test_what_a_connector_gives_is_held_against_the_slots_it_has_to_fill(options: dict[str, Any], said: str) -> None:
    parts = {"encoder": "faulty", "connector": {"name": "stretched", **options}}
    model = compose(make_run(SMALL, {"streams": {"ticks": parts}}), faulty_registry()).model
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.connector: stretched \(Stretched\): forward {said}"):
        model.embed(a_row_of_three_cells())


def test_a_run_is_warned_of_an_encoder_with_batch_statistics() -> None:
    stream = stream_of()
    stream.encoder.norm = nn.BatchNorm1d(8)

    def warned() -> list[str]:
        return list(doubts(make_run(SMALL), [], resumed=False, streams=[("ticks", stream)]))

    assert [line for line in warned() if line.startswith("streams.ticks.encoder: BatchNorm (norm) makes the features")]
    stream.encoder.train = lambda mode=True: stream.encoder.norm.eval()  # as encoders do that keep such norms
    assert not any("BatchNorm" in line for line in warned())


@pytest.mark.parametrize("lacks", ["input", "width"])
def test_an_encoder_that_lacks_a_part_is_named_with_it(lacks: str) -> None:
    said = (
        rf"^streams\.ticks\.encoder: encoder 'faulty' of plugin .* is broken: it gives Faulty, which has no {lacks}; "
    )
    with pytest.raises(PluginError, match=said + "what EncoderSpec gives has input, width, forward"):
        stream_of(lacks=lacks)


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("here", r"ValueError: no such thing \(test_faulty_encoders\.py:\d+\)"),
        ("in torch", r"RuntimeError: mat1 and mat2 .* \(test_faulty_encoders\.py:\d+\)"),
    ],
)
def test_an_encoder_that_fails_is_named_with_the_place_and_what_it_was_given(fails: str, said: str) -> None:
    stream = stream_of(fails=fails)
    said = rf"faulty \(Faulty\): forward failed: {said}; it was given values \[3, 4\], 1 items$"
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.encoder: {said}") as raised:
        run_three_cells(stream)
    assert raised.value.__cause__ is not None


def test_a_connector_that_fails_is_named_with_what_it_was_given() -> None:
    said = r"forward failed: TypeError: .*takes 2 positional.*; it was given features \[3, 8\], 1 items$"
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.connector: narrow \(OfOneArgument\): {said}"):
        run_three_cells(stream_of("narrow"))


@pytest.mark.parametrize(
    ("fails", "kind"),
    [("for memory", torch.OutOfMemoryError), ("between ranks", ValueError), ("in its own words", ConfigError)],
)
def test_what_is_not_the_encoders_own_fault_stays_what_it_is(fails: str, kind: type[Exception]) -> None:
    stream = stream_of(fails=fails)
    with pytest.raises(kind) as raised:
        run_three_cells(stream)
    assert type(raised.value) is kind


def test_a_run_ends_with_the_name_of_the_encoder_that_failed(tmp_path: Path) -> None:
    parts = {"encoder": {"name": "faulty", "fails": "here"}}
    run = make_run(SMALL, {"streams": {"ticks": parts}, "output": str(tmp_path / "run")})
    with pytest.raises(PluginError, match=r"^streams\.ticks\.encoder: faulty \(Faulty\): forward failed: ValueError"):
        train_model(run, registry=faulty_registry())


def test_gradients_that_are_no_numbers_are_told_of_with_their_part(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", streams={"ticks": {"encoder": "scaled"}}, train={"steps": 1})
    with pytest.raises(TrainingError, match=r"not finite \(the gradients of streams\.ticks alone are not finite\)"):
        train_model(run, registry=version(Undone))

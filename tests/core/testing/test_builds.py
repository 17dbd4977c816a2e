"""What can never be made breaks ``builds``; what needs something that is not here is skipped and says what."""

from __future__ import annotations

import numpy as np
import pytest

from kosmos import MediaPlan
from kosmos.plugins import Registry
from kosmos.testing import Conditions, Verdict, check_plugin, promises_of
from support import ticks

from .conftest import Plugin

SPECS = {"metric": "MetricSpec", "tracker": "TrackerSpec", "observer": "ObserverSpec", "schedule": "ScheduleSpec"}
PICTURES = """
import torch
from kosmos_vision.images import ImageInput
class Squares(torch.nn.Module):
    def __init__(self, *, width: int = 8):
        super().__init__()
        self.input, self.width = ImageInput(patch_px=(16, 16), size_px=(32, 32)), width
        self.lift = torch.nn.Linear(768, width)
    def forward(self, values, grids):
        return self.lift(values.flatten(1).to(self.lift.weight.dtype) / 255)
"""


def part(kind: str, made: str) -> str:
    """A plugin of one component, ``odd``, whose target is ``made``."""
    hook = f"def kosmos_{kind}s(): yield {SPECS[kind]}(name='odd', target=__name__ + ':made', summary='Odd.')"
    return f"@hookimpl\n{hook}\n{made}"


def odd(registry: Registry) -> list[str]:
    """The name of the plugin."""
    return [plugin.name for plugin in registry.plugins if plugin.name.startswith("odd_")]


def builds(registry: Registry, conditions: Conditions | None = None) -> Verdict:
    """Of the one component."""
    promises = promises_of(registry, plugins=odd(registry), conditions=conditions)
    return next(promise for promise in promises if promise.id == "builds").verdict()


@pytest.mark.parametrize(
    ("kind", "made", "says"),
    [
        ("tracker", "def made(output, run): raise KeyError('init')", "cannot be made with these options: KeyError"),
        ("metric", "def made(predictions, references): return 1.0", "is the metric itself; expected a function that"),
        ("observer", "def made(row): print(row, file=__import__('sys').stderr)", "is the observer itself"),
        ("schedule", "def made(steps, warmup_steps, step): return 1.0", "is the schedule itself"),
        ("observer", "def made(): return None", "it gives NoneType, which has no __call__"),
    ],
)
def test_what_can_never_be_made_breaks_builds(plugin: Plugin, kind: str, made: str, says: str) -> None:
    verdict = builds(plugin(part(kind, made)))
    assert (verdict.outcome, verdict.component) == ("failed", f"{kind} odd")
    assert says in verdict.message


NEEDY = "def made(*, model: str): return lambda predictions, references: 1.0"


def test_what_needs_an_option_is_skipped_and_says_which_and_where_to_give_it(plugin: Plugin) -> None:
    verdict = builds(plugin(part("metric", NEEDY)))
    assert verdict.outcome == "skipped"
    assert "metric odd.model: missing" in verdict.message
    assert "give it in Conditions(options={'metric odd': {...}})" in verdict.message


@pytest.mark.parametrize(("options", "outcome"), [({"model": "x"}, "passed"), ({"modle": "x"}, "failed")])
def test_the_options_of_the_conditions_have_to_suffice(plugin: Plugin, options: dict[str, str], outcome: str) -> None:
    verdict = builds(plugin(part("metric", NEEDY)), Conditions(options={"metric odd": options}))
    assert verdict.outcome == outcome


def test_what_needs_a_package_that_is_not_installed_is_skipped(plugin: Plugin) -> None:
    made = "def made():\n    import package_of_somebody\n    return print"
    verdict = builds(plugin(part("observer", made)))
    assert (verdict.outcome, "needs package_of_somebody, which is not installed" in verdict.message) == (
        "skipped",
        True,
    )


def test_a_dataset_that_can_never_be_opened_breaks_builds(plugin: Plugin) -> None:
    hook = "def kosmos_datasets(): yield DatasetSpec(name='odd', target=__name__ + ':made', summary='Odd.')"
    verdict = builds(plugin(f"@hookimpl\n{hook}\ndef made(split): raise KeyError('rows')"))
    assert (verdict.outcome, "KeyError: 'rows'" in verdict.message) == ("failed", True)


# encoders that are of no modality of their plugin


def an_encoder(plugin: Plugin, source: str, *, modalities: dict[str, str]) -> Registry:
    """The encoder ``made`` of a plugin that brings nothing else, among these modules of modalities."""
    hook = "def kosmos_encoders(): yield EncoderSpec(name='odd', target=__name__ + ':Squares', summary='Odd.')"
    (name,) = odd(plugin(f"@hookimpl\n{hook}\n{source}"))
    return Registry.from_modules({**modalities, name: name})


def test_an_encoder_is_tried_on_the_modality_that_fits_it_and_not_on_the_first(plugin: Plugin) -> None:
    pytest.importorskip("kosmos_vision")
    modalities = {"ticks": "support.ticks", "vision": "kosmos_vision.plugin"}
    registry = an_encoder(plugin, PICTURES, modalities=modalities)
    card = check_plugin(registry, plugins=odd(registry), fast=True)
    outcomes = {verdict.id: verdict.outcome for verdict in card.verdicts if verdict.component == "encoder odd"}
    assert (outcomes["builds"], outcomes["zero-length"], outcomes["no-leak"]) == ("passed",) * 3


def test_a_broken_encoder_of_another_plugins_modality_is_caught(plugin: Plugin) -> None:
    pytest.importorskip("kosmos_vision")
    broken = PICTURES.replace(" / 255)", " / 255).mean(dim=0, keepdim=True)")
    modalities = {"ticks": "support.ticks", "vision": "kosmos_vision.plugin"}
    registry = an_encoder(plugin, broken, modalities=modalities)
    card = check_plugin(registry, plugins=odd(registry), fast=True)
    assert {"width-and-count", "zero-length"} <= {verdict.id for verdict in card.failed}


def test_promises_of_cells_are_skipped_where_media_become_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks.TicksProcessor, "plan", lambda self, media: MediaPlan(("<ticks>", "a few", "</ticks>")))
    monkeypatch.setattr(ticks.TicksProcessor, "decode", lambda self, media, plan: np.zeros((0, 4), np.float32))
    kept = [p for p in promises_of(ticks) if p.component == "encoder ticks" or p.id in ("builds", "two-ranks")]
    verdicts = [promise.verdict() for promise in kept]
    assert [verdict.message for verdict in verdicts if verdict.outcome == "failed"] == []
    skipped = {f"{v.component} {v.id}": v.message for v in verdicts if v.outcome == "skipped"}
    assert {"modality ticks two-ranks", "encoder ticks builds", "encoder ticks no-leak"} <= skipped.keys()
    assert "ticks: its media become text and no cells" in skipped["encoder ticks builds"]


def test_an_encoder_that_no_modality_fits_breaks_builds(plugin: Plugin) -> None:
    pytest.importorskip("kosmos_vision")
    verdict = builds(an_encoder(plugin, PICTURES, modalities={"ticks": "support.ticks"}))
    assert verdict.outcome == "failed"
    assert "no installed modality makes cells for it" in verdict.message

"""What a notebook shows of runs and models, and what a star imports."""

from __future__ import annotations

import yaml

import kosmos
from kosmos import make_run
from kosmos.compose import compose
from support.runs import SMALL, small_run, ticks_registry


def test_a_composition_is_shown_in_a_line():
    composition = compose(small_run(), ticks_registry())
    parts = {"backbone": composition.model.backbone, "ticks": composition.model.streams["ticks"]}
    numbers = [f"{name} {sum(p.numel() for p in part.parameters()):,}" for name, part in parts.items()]
    assert repr(composition) == f"<Composition: {', '.join(numbers)}>"


def test_a_run_is_printed_as_a_run_file_has_it():
    run = make_run(SMALL)
    assert make_run(yaml.safe_load(str(run))) == run
    assert str(run.train).startswith("steps: 6\noptimizer:\n  name: lion\n")


def test_a_star_imports_the_public_names():
    cell: dict[str, object] = {}
    exec("from kosmos import *", cell)
    assert {name for name in cell if name != "__builtins__"} == {*dir(kosmos)} - {"__version__"}

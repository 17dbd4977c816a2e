"""What a notebook shows of runs and models, and what a star imports."""

from __future__ import annotations

import pytest
import yaml

import kosmos
from kosmos import KosmosError, PluginError, load_plugins, make_run
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
    assert str(run.train).startswith("steps: 6\ntokens: null\nepochs: null\n")


def test_a_star_imports_the_public_names():
    cell: dict[str, object] = {}
    exec("from kosmos import *", cell)
    assert {name for name in cell if name != "__builtins__"} == {*dir(kosmos)} - {"__version__"}


def raised(act):
    with pytest.raises(KosmosError) as caught:
        act()
    return "".join(caught.value._render_traceback_())


def mistaken():
    make_run({"train": {"stesp": 3}})


def test_of_an_error_the_callers_own_lines_are_shown():
    """IPython asks an exception for what it shows of it."""
    *frames, line = raised(mistaken).splitlines()
    assert line == "ConfigError: run: train.stesp: unknown field; did you mean steps?"
    assert [frame.rpartition(", in ")[2] for frame in frames if frame.startswith("  File")] == ["raised", "mistaken"]


def test_with_debugging_all_of_a_traceback_is_shown(monkeypatch):
    monkeypatch.setenv("KOSMOS_DEBUG", "1")
    assert "run_file.py" in raised(mistaken)


def test_where_code_of_a_plugin_fails_all_is_shown():
    def fails():
        raise ValueError("in a cell")

    def build():
        try:
            fails()
        except ValueError as error:
            raise PluginError("it failed") from error

    assert 'raise ValueError("in a cell")' in raised(build)
    of_its_own = raised(lambda: load_plugins().get("encoder", "nothing"))
    assert of_its_own.count("  File ") == 2

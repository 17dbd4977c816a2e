"""A good plugin made from the template, and copies of it with one thing wrong."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kosmos.discovery import CORE_CANDIDATE, Candidate, load
from kosmos.plugins import Registry
from kosmos.testing import Promise, promises_of
from support.made import make

NAME = "sonar"
Mutate = Callable[..., list[Promise]]
Plugin = Callable[[str], Registry]
SPECS = "DatasetSpec, EncoderSpec, MetricSpec, ObserverSpec, OptimizerSpec, ScheduleSpec, TrackerSpec"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``src`` of a plugin as the template makes it."""
    return make(tmp_path_factory.mktemp("good"), NAME)


@pytest.fixture
def mutate(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mutate]:
    """``mutate("encoder.py", old, new)``: the promises of a copy of the good plugin with this one change."""
    made: list[str] = []

    def put(file: str, old: str, new: str) -> list[Promise]:
        name = f"{NAME}{next(_numbers)}"  # a package of its own: modules are imported once a process
        site = tmp_path / name
        changed = 0
        for path in (p for p in sorted(good.rglob("*")) if p.is_file() and p.suffix != ".pyc"):
            text = path.read_text()
            if path.name == file:
                assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
                text, changed = text.replace(old, new), changed + 1
            text = text.replace(NAME, name).replace(NAME.capitalize(), name.capitalize())
            target = site / str(path.relative_to(good)).replace(NAME, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        assert changed == 1, f"{file} is there {changed} times"
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        made.append(f"kosmos_{name}")
        plugin = Candidate(name, f"kosmos-{name}", "0.1.0", f"kosmos_{name}.plugin")
        return promises_of(Registry(load([CORE_CANDIDATE, plugin])))

    yield put
    for module in [module for module in sys.modules if module.split(".")[0] in made]:
        del sys.modules[module]


@pytest.fixture
def registry(good: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Core and the good plugin."""
    monkeypatch.syspath_prepend(str(good))
    importlib.invalidate_caches()
    plugin = Candidate(NAME, f"kosmos-{NAME}", "0.1.0", f"kosmos_{NAME}.plugin")
    return Registry(load([CORE_CANDIDATE, plugin]))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """``plugin(source)``: core and a plugin module of this text, behind the usual imports."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(source: str) -> Registry:
        name = f"odd_plugin_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(f"from kosmos import {SPECS}, hookimpl\nKOSMOS_API = 1\n{source}\n")
        importlib.invalidate_caches()
        made.append(name)
        return Registry.from_modules({name: name})

    yield write
    for name in made:
        sys.modules.pop(name, None)

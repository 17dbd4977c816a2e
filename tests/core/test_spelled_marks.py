"""Texts that spell marks of a modality, which stay letters, are told with what makes tokens of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kosmos.commands.data import look
from kosmos.commands.spelled import rendered
from kosmos.components import EncoderSpec, ModalitySpec
from kosmos.compose import compose
from kosmos.data.sources import open_source
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from support import ticks

ACTS = tuple(f"<act:{number}>" for number in range(16))


@hookimpl
def kosmos_modalities() -> Iterable[ModalitySpec]:
    (spec,) = ticks.kosmos_modalities()
    yield replace(spec, marks=(*spec.marks, *ACTS))


@hookimpl
def kosmos_encoders() -> Iterable[EncoderSpec]:
    yield from ticks.kosmos_encoders()


@pytest.fixture
def registry() -> Registry:
    plugin = ModuleType("acting")
    vars(plugin).update(KOSMOS_API=1, kosmos_modalities=kosmos_modalities, kosmos_encoders=kosmos_encoders)
    return Registry.from_modules({"acting": plugin})


def told(texts: list[str], registry: Registry, folder: Path) -> list[str]:
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    composition = compose(make_run({"modalities": ["ticks"], "backbone": {"width": 32, "layers": 1}}), registry)
    source = open_source(str(rows), registry=registry, split="train", modalities=("ticks",), held_out=0.0)
    return [*rendered(look(composition, [source], 0)[0], [], composition.planner)]


def test_each_is_rare_and_all_together_are_not(registry: Registry, tmp_path: Path) -> None:
    (line,) = told([f"<act:{number}><act:{number + 8}>" for number in range(8)], registry, tmp_path)
    assert line.startswith("rows: texts spell <act:0> <act:1> <act:2> <act:3>")
    assert "which are marks of ticks and stay letters" in line
    assert "modalities.ticks.codec" in line and '{"ticks": {"codes": [...]}}' in line and "Mark('<act:0>'" in line


def test_special_tokens_of_others_are_told_as_before(registry: Registry, tmp_path: Path) -> None:
    lines = told(["<|user|><act:3>", "<|user|><act:3>"], registry, tmp_path)
    assert [line.split(", which")[0] for line in lines] == ["rows: texts spell <|user|>", "rows: texts spell <act:3>"]


def test_a_few_among_many_documents_are_not_told(registry: Registry, tmp_path: Path) -> None:
    assert told(["<act:3>", *["Nothing."] * 4], registry, tmp_path) == []

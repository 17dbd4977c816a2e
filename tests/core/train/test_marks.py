"""Marks of the modalities of a run: distinct, none of core's, and written as marks are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kosmos import ModalitySpec, compose_run, hookimpl, load_run, resume_run, train_model
from kosmos.errors import ConfigError, KosmosError, PluginError
from kosmos.plugins import Registry
from support.runs import small_run, ticks_registry


def with_another(*marks: str) -> Registry:
    """Ticks, and a modality ``beats`` of the same processor with these marks."""

    @hookimpl
    def kosmos_modalities() -> Any:
        yield ModalitySpec(
            name="beats", target="support.ticks:TicksProcessor", summary="Ticks.", encoder="ticks", marks=marks
        )

    return ticks_registry(beats=SimpleNamespace(KOSMOS_API=1, __name__="beats", kosmos_modalities=kosmos_modalities))


BOTH: dict[str, Any] = {"modalities": ["ticks", "beats"], "data": {"sources": [{"path": "ticks"}]}}


@pytest.mark.parametrize(
    ("marks", "kind", "says"),
    [
        (
            ("<beats>", "</ticks>"),
            ConfigError,
            "modalities: ticks and beats both have the mark </ticks>, and",
        ),
        (("<s>",), PluginError, "modality 'beats': marks: '<s>' is a mark of every run; its plugin has to give it"),
        (("beats ",), PluginError, "modality 'beats': marks: 'beats ' does not look like <name> or </name>"),
        (("<b>", "<b>"), PluginError, "modality 'beats': marks: '<b>' is among them twice"),
    ],
)
def test_a_run_does_not_begin_with_marks_that_tell_nothing_apart(
    tmp_path: Path, marks: tuple[str, ...], kind: type[KosmosError], says: str
) -> None:
    config, registry = small_run(tmp_path / "run", **BOTH), with_another(*marks)
    for begin in (compose_run, train_model):
        with pytest.raises(kind) as caught:
            begin(config, registry=registry)
        assert str(caught.value).startswith(says)
    assert not (tmp_path / "run").exists()


def test_a_run_that_began_with_such_marks_goes_on(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", train={"steps": 1}, **BOTH)
    train_model(config, registry=with_another("<beats>", "</beats>"))
    registry = with_another("<beats>", "</beats>", "</ticks>")
    assert resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=registry).step == 2
    assert load_run(tmp_path / "run", registry=registry).step == 2

"""What is public stays: the surface is stored, what plugins need is in it, and what goes says so for a release."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import kosmos
from support.pages import ROOT, blocks
from support.surface import STORED, surface

PLUGIN_CODE = sorted([*ROOT.glob("packages/kosmos-*/src/*/**/*.py"), *ROOT.glob("examples/plugins/*/src/**/*.py")])
PLUGIN_FILES = [file for file in PLUGIN_CODE if "kosmos-core" not in file.parts]


def test_the_public_surface_is_the_stored_one() -> None:
    stored = STORED.read_text(encoding="utf-8")
    assert surface() == stored, "the public surface has changed; if that is meant: python tests/support/surface.py"


def test_every_public_name_is_there_for_type_checkers() -> None:
    tree = ast.parse(Path(str(kosmos.__file__)).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    shown = {alias.asname: node.module for node in imports for alias in node.names}
    assert shown == kosmos._PUBLIC


def imported(text: str) -> Iterator[tuple[str, str]]:
    """(module, name) of what code imports from ``kosmos``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kosmos":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "kosmos")


def not_public(text: str) -> list[str]:
    """Imports of what is not public under ``kosmos`` or ``kosmos.testing``, from wherever it is taken."""
    return [
        f"{module}:{name}"
        for module, name in imported(text)
        if module not in ("kosmos", "kosmos.testing") and kosmos._PUBLIC.get(name) != module
    ]


@pytest.mark.parametrize("file", PLUGIN_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_plugins_import_is_public(file: Path) -> None:
    assert not_public(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("block", [b for b in blocks("python") if b.page.name == "plugins.md"], ids=str)
def test_what_the_plugin_guide_imports_is_public(block: object) -> None:
    assert not_public(block.text) == []  # type: ignore[attr-defined]


def test_an_import_of_something_else_would_be_found() -> None:
    assert not_public("from kosmos.data.plan import Planner\nimport kosmos.config") == [
        "kosmos.data.plan:Planner",
        "kosmos.config:",
    ]
    assert not_public("from kosmos import hookimpl\nfrom kosmos.errors import ConfigError") == []


def test_a_renamed_name_still_leads_to_the_new_one_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kosmos, "_RENAMED", {"Slice": ("Text", "99.01")})
    line = r"^kosmos\.Slice is deprecated and goes in Kosmos 99\.01; use kosmos\.Text$"
    with pytest.warns(DeprecationWarning, match=line) as caught:
        assert kosmos.Slice is kosmos.Text
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=line) as caught:
        from kosmos import Slice
    assert Slice is kosmos.Text
    assert caught[0].filename == __file__
    assert "Slice -> Text, goes in 99.01" in surface()


def test_a_deprecated_function_warns_about_its_caller() -> None:
    def old(run: int) -> int:
        kosmos.deprecated("kosmos.old", instead="kosmos.new", goes_in="99.01")
        return run

    with pytest.warns(DeprecationWarning, match=r"^kosmos\.old is deprecated and goes in Kosmos 99\.01") as caught:
        assert old(3) == 3
    assert caught[0].filename == __file__


def test_names_that_were_never_there_are_attribute_errors_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AttributeError, match="module 'kosmos' has no attribute 'nothing'"):
            kosmos.nothing  # noqa: B018


def test_no_renamed_name_stays_longer_than_was_said() -> None:
    now = tuple(map(int, kosmos.__version__.split(".")[:2]))
    overdue = [old for old, (_, goes_in) in kosmos._RENAMED.items() if tuple(map(int, goes_in.split("."))) <= now]
    assert overdue == []

"""The import rules of the house, held by parsing every import of the packages."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parent.parent / "packages"
MODALITY_PACKAGES = sorted(path.name for path in PACKAGES.glob("*/src/*") if path.name != "kosmos" and path.is_dir())

SURFACE = {"visible", "errors", "names", "components", "hookspecs"}
FOUND = SURFACE | {"options", "enabled", "discovery", "selection", "plugins"}
RUN = FOUND | {
    "config",
    "config_checkpoint",
    "config_held_out",
    "config_length",
    "config_profile",
    "config_rows",
    "config_scored",
    "config_choices",
    "config_shots",
    "config_turns",
    "config_weights",
    "config_written",
    "durations",
    "given",
    "patterns",
    "run_file",
    "yaml_values",
    "runtime",
    "data",
    "model",
    "adapter_files",
    "compose",
    "run_sources",
    "run_choices",
    "run_overlap",
    "run_codecs",
    "run_updates",
}
MAY_IMPORT: dict[str, set[str]] = {
    "visible": set(),
    "errors": {"visible"},
    "interrupts": set(),
    "collector": set(),
    "ending": {"errors"},
    "own_output": set(),
    "chats": set(),
    "names": set(),
    "files": set(),
    "open_limit": {"errors"},
    "given": {"errors"},
    "patterns": {"errors"},
    "components": set(),
    "hookspecs": {"components"},
    "elsewhere": {"names"},
    "catalogue": set(),
    "options": {"elsewhere", "errors", "names"},
    "deprecation": set(),
    "durations": set(),
    "enabled": {"errors", "files"},
    "discovery": SURFACE | {"enabled"},
    "selection": SURFACE | {"enabled", "discovery"},
    "doubtful": SURFACE | {"discovery"},
    "plugins": FOUND | {"catalogue", "doubtful", "elsewhere"},
    "kept_defaults": FOUND | {"options"},
    "lock": FOUND | {"files", "kept_defaults"},
    "requirements": {"catalogue"},
    "builtin": {"components", "hookspecs"},
    "own_objects": set(),
    "strict": {"errors", "own_objects"},
    "config_checkpoint": {"strict"},
    "config_held_out": {"strict"},
    "config_length": {"durations", "strict"},
    "config_profile": {"strict"},
    "config_rows": {"strict"},
    "config_scored": {"strict"},
    "config_choices": {"strict"},
    "config_shots": {"strict"},
    "config_turns": {"chats", "names", "strict"},
    "adapter_files": {"errors", "names"},
    "config_weights": {"adapter_files", "errors", "strict"},
    "config_written": {"strict"},
    "config": FOUND
    | {
        "config_checkpoint",
        "config_held_out",
        "config_length",
        "config_profile",
        "config_rows",
        "config_scored",
        "config_choices",
        "config_shots",
        "config_turns",
        "config_weights",
        "config_written",
        "strict",
    },
    "mistakes": {"config", "elsewhere", "names", "own_objects"},
    "yaml_values": set(),
    "run_file": FOUND
    | {"config", "config_length", "config_rows", "given", "mistakes", "chats", "patterns", "strict", "yaml_values"},
    "runtime": SURFACE | {"collector", "ending"},
    "data": FOUND | {"files", "chats", "open_limit", "patterns", "runtime"},
    "model": FOUND | {"data", "runtime"},
    "encoder_inputs": FOUND | {"options"},
    "compose": (RUN | {"encoder_inputs"}) - {"run_sources", "run_choices", "run_overlap"},
    "run_sources": FOUND | {"config", "data", "given", "patterns"},
    "run_choices": FOUND | {"config", "data", "given", "mistakes", "run_sources"},
    "run_overlap": FOUND | {"config", "data", "run_sources"},
    "run_codecs": FOUND | {"config", "data"},
    "run_updates": FOUND | {"config", "data", "model"},
    "run_rows": FOUND | {"config", "config_rows", "data", "given", "strict"},
    "checkpoint": SURFACE | {"runtime", "files"},
    "reference": FOUND | {"options", "config", "mistakes", "elsewhere", "names"},
    "generate": RUN,
    "evaluate": RUN | {"generate"},
    "train": RUN | {"collector", "files", "interrupts", "lock", "checkpoint", "generate", "evaluate"},
    "tune": RUN | {"collector", "files", "interrupts", "train"},
    "launch": FOUND | {"config", "run_file", "runtime"},
    "testing": RUN | {"collector", "checkpoint", "generate", "evaluate", "train"},
    "templates": FOUND,
    "commands": RUN
    | {"mistakes", "reference", "interrupts", "lock", "checkpoint", "generate", "evaluate", "train", "tune", "launch"}
    | {"collector", "files", "own_output", "requirements", "templates", "testing"},
    "usage": {"errors", "names"},
    "cli": FOUND | {"interrupts", "open_limit", "usage"},
    "__main__": {"cli", "collector", "ending", "errors", "interrupts", "own_output"},
}
"""Part of core (a module or sub-package of ``kosmos``) to the other parts that it may import, wherever in its code."""

HEAVY = (
    "torch transformers datasets timm torchvision torchaudio pytorchvideo torchmetrics av PIL soundfile pyarrow "
    "wandb tensorboard safetensors lion_pytorch numpy pydantic typer"
).split()
"""What no plugin module may import when it is discovered."""


@dataclass(frozen=True)
class Import:
    """One import of a file."""

    module: str
    line: int
    at_import: bool
    """Whether importing the file runs it: not in a function, not for type checkers only."""


@dataclass(frozen=True)
class Module:
    """A source file of one of the packages."""

    name: str
    file: Path
    tree: ast.Module

    @property
    def imports(self) -> Iterator[Import]:
        return _imports(self.tree, self, at_import=True)

    @property
    def part(self) -> str:
        """``"data"`` for ``kosmos.data.plan``; empty for ``kosmos`` itself."""
        return _part(self.name)


def _part(name: str) -> str:
    return [*name.split("."), ""][1]


def _imports(node: ast.AST, module: Module, *, at_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_import) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (Import(origin, child.lineno, at_import) for origin in _origins(child, module))
        else:
            for_checkers = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            later = for_checkers or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, module, at_import=at_import and not later)


def _origins(statement: ast.ImportFrom, module: Module) -> list[str]:
    """``from a import b`` imports ``a.b`` where that is a module, else ``a``."""
    base = statement.module or ""
    if statement.level:
        package = module.name.split(".") if module.file.name == "__init__.py" else module.name.split(".")[:-1]
        base = ".".join([*package[: len(package) - statement.level + 1], *filter(None, [base])])
    return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in NAMES else base for alias in statement.names]


def _name(file: Path) -> str:
    source = next(parent for parent in file.parents if parent.name == "src")
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGES.glob("*/src/**/*.py"))
NAMES = {_name(file) for file in FILES}
MODULES = {_name(file): Module(_name(file), file, ast.parse(file.read_text(), str(file))) for file in FILES}
CORE = [module for name, module in MODULES.items() if name.split(".")[0] == "kosmos"]


def told(module: Module, found: Import) -> str:
    return f"{module.file.relative_to(PACKAGES)}:{found.line} imports {found.module}"


def test_there_is_something_to_look_at() -> None:
    assert {"kosmos_audio", "kosmos_video", "kosmos_vision"} <= set(MODALITY_PACKAGES)
    assert len(CORE) > 20
    assert any(found.module == "kosmos.errors" for found in MODULES["kosmos.plugins"].imports)


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import a
if TYPE_CHECKING:
    from . import plan
def f():
    try:
        from ..model import omni
    finally:
        from kosmos import data, hookimpl
"""
    module = Module("kosmos.data.pack", PACKAGES / "pack.py", ast.parse(source))
    assert [(found.module, found.at_import) for found in module.imports] == [
        ("a", True),
        ("kosmos.data.plan", False),
        ("kosmos.model.omni", False),
        ("kosmos.data", False),
        ("kosmos", False),
    ]


def test_core_imports_no_modality_package() -> None:
    found = [(module, found) for module in CORE for found in module.imports]
    assert [told(m, f) for m, f in found if f.module.split(".")[0] in MODALITY_PACKAGES] == []


@pytest.mark.parametrize("package", MODALITY_PACKAGES)
def test_a_modality_package_imports_no_other(package: str) -> None:
    others = set(MODALITY_PACKAGES) - {package}
    own = [module for name, module in MODULES.items() if name.split(".")[0] == package]
    assert [told(m, f) for m in own for f in m.imports if f.module.split(".")[0] in others] == []


@pytest.mark.parametrize("module", [m for m in CORE if m.part], ids=lambda module: module.name)
def test_a_part_of_core_imports_only_what_it_stands_on(module: Module) -> None:
    assert module.part in MAY_IMPORT, f"kosmos.{module.part} is new: say in MAY_IMPORT what it may know"
    allowed = MAY_IMPORT[module.part] | {module.part, ""}
    ours = [found for found in module.imports if found.module.split(".")[0] == "kosmos"]
    assert [told(module, found) for found in ours if _part(found.module) not in allowed] == []


def test_importing_kosmos_imports_nothing_else_of_it() -> None:
    assert [told(MODULES["kosmos"], f) for f in MODULES["kosmos"].imports if f.at_import and "kosmos" in f.module] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    rooms = NAMES - {"kosmos"}  # the door of the house, which hands on what is inside
    graph = {name: {found.module for found in MODULES[name].imports} & rooms - {name} for name in rooms}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("begin", "knows"),
    [("kosmos.train.session", "kosmos.train.starting"), ("kosmos.testing.check", "kosmos.train.layout")],
)
def test_a_run_and_the_kit_import_transformers_only_where_they_have_a_model_or_tokenizer_of_it(
    begin: str, knows: str
) -> None:
    """That takes a second of their start, and 60 MB."""
    todo, seen = [begin], set[str]()
    while todo:
        name = todo.pop()
        if name in seen or name not in MODULES:
            continue
        seen.add(name)
        found = [f.module for f in MODULES[name].imports if f.at_import]
        assert [module for module in found if module.split(".")[0] in ("transformers", "tokenizers")] == [], name
        todo += found
    assert knows in seen and len(seen) > 100


@pytest.mark.parametrize("name", ["kosmos.builtin", *(f"{package}.plugin" for package in MODALITY_PACKAGES)])
def test_discovering_a_plugin_imports_nothing_heavy(name: str) -> None:
    script = f"import sys, kosmos.plugins, {name}; print([heavy for heavy in {HEAVY!r} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


MODALITY_WORD = re.compile(r"(?<![a-z])(image|audio|video)s?(?![a-z])", re.IGNORECASE)


def _code_strings(module: Module) -> Iterator[tuple[int, str]]:
    """Line and value of the strings that code could branch on: no docstrings, and no prose (it has spaces)."""
    docstrings = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        value = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(node, ast.Constant) and isinstance(value, str) and " " not in value:
            yield node.lineno, value


OTHERS_COLUMNS = "kosmos.data.sources.well_known"
"""What other formats call their columns of media, so that rows are not taken for text where no plugin knows them."""


@pytest.mark.parametrize("module", [m for m in CORE if m.name != OTHERS_COLUMNS], ids=lambda module: module.name)
def test_the_code_of_core_knows_no_modality_by_name(module: Module) -> None:
    assert [(line, value) for line, value in _code_strings(module) if MODALITY_WORD.search(value)] == []


def test_core_names_no_modality_package_even_in_a_comment() -> None:
    names = re.compile("|".join(package.replace("_", "[-_]") for package in MODALITY_PACKAGES))
    assert [str(module.file) for module in CORE if names.search(module.file.read_text())] == []

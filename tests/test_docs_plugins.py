"""The packages that pages of the documentation hold: built, installed, and run by the real command."""

from __future__ import annotations

import ast
import difflib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from kosmos import EncoderSpec, OptimizerSpec, hookimpl
from kosmos.cli import main
from kosmos.commands import generate
from kosmos.components import KINDS as COMPONENTS
from kosmos.errors import ConfigError, PluginError
from kosmos.options import check_options
from kosmos.plugins import Registry, load_core
from kosmos.templates import make_plugin
from kosmos.testing import Conditions, check_plugin, promises_of
from kosmos.train.run import train_model
from support.command import SMALL, environment, install_plugin, kosmos
from support.pages import GUIDE, KINDS, Block, blocks, installed_pages, kinds_with_a_page
from support.pages import registry as registry
from support.runs import rows_of, small_run, ticks_registry

QUICK = ("--steps", "3", "evaluate.max_documents=4", "data.workers=0", "data.tokens_per_pack=128")
"""Laid over the commands of the pages, behind ``SMALL``."""
SETS = {"backbone.": "backbone", "trackers=": "tracker"}
"""Settings of ``SMALL`` that belong to what a page brings itself."""
WHOLE = ("modality", "command")
"""Pages of which a command runs as a process of its own, the first; the others run here."""
AT_MOST_LINES = 60
"""Written by hand for a modality that is none of ours."""


def test_each_kind_of_component_has_a_page() -> None:
    assert kinds_with_a_page() == sorted(kind.kind for kind in COMPONENTS)


# a page for each kind


@pytest.mark.parametrize("kind", kinds_with_a_page())
def test_the_package_of_a_page_runs_as_the_page_says(
    kind: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "measurements.csv").write_text("1\n2\n3\n")
    if (installed_pages()[0] / kind / "run.yaml").exists():
        (tmp_path / "run.yaml").write_text((installed_pages()[0] / kind / "run.yaml").read_text())
    for block in blocks("text", "corpus: ", KINDS / f"{kind}.md"):
        file = tmp_path / block.marker.removeprefix("corpus: ")
        file.parent.mkdir()
        file.write_text(block.text)
    said = ""
    for number, line in enumerate(commands_of(kind)):
        arguments = quick(line, kind)
        if kind in WHOLE and number == 0:
            done = kosmos(*arguments, path=[installed_pages()[1]], cwd=tmp_path)
            assert done.returncode == 0, f"{line}: {done.stderr}"
            said += done.stdout + done.stderr
        else:  # the names have this process look anew at what is installed
            names = ",".join(plugin.name for plugin in registry.plugins if plugin.name != "core")
            status = main([*arguments, "--plugins", names])
            told = capsys.readouterr()
            assert status == 0, f"{line}: {told.err}"
            said += told.out + told.err
    CHECKS[kind](tmp_path, said)


def commands_of(kind: str) -> list[str]:
    """What the last block of shell runs; promises are checked by a test of their own."""
    block = blocks("sh", page=KINDS / f"{kind}.md")[-1]
    found = re.findall(r"^kosmos (.+)$", block.text, re.MULTILINE)
    return [line for line in found if not line.startswith("plugin test")]


def quick(line: str, kind: str) -> list[str]:
    """A command of a page, with a model that takes seconds."""
    arguments = shlex.split(line)
    if arguments[0] == "train":
        small = [part for part in SMALL if not any(part.startswith(p) and k == kind for p, k in SETS.items())]
        if "--steps" in arguments:  # QUICK says how many
            at = arguments.index("--steps")
            del arguments[at : at + 2]
        arguments += ["--steps", "5"] if "--resume" in arguments else [*small, *QUICK]
    if arguments[0] == "eval" and "--max-documents" not in arguments:
        arguments += ["--max-documents", "4"]
    return ["2" if part == "100" else part for part in arguments]


def metrics(output: Path) -> list[dict[str, Any]]:
    return rows_of(output / "metrics.jsonl")


def trained(folder: Path, said: str, *, output: str, names: str) -> None:
    """A run that took its steps with the component."""
    found = folder / "runs" / output
    assert [row["step"] for row in metrics(found)] == [1, 2, 3]
    assert names in (found / "run.yaml").read_text()
    assert (found / "quarantine.jsonl").read_text() == ""


def check_connector(folder: Path, said: str) -> None:
    trained(folder, said, output="image-001", names="name: mean")
    assert all(0 < row["media_tokens"] <= row["documents"] for row in metrics(folder / "runs" / "image-001"))


def check_codec(folder: Path, said: str) -> None:
    trained(folder, said, output="series-001", names="name: levels")
    rows = metrics(folder / "runs" / "series-001")
    assert all(row["target_tokens"] == row["documents"] * 11 for row in rows)  # eight values, two ends, the document's


def check_dataset(folder: Path, said: str) -> None:
    trained(folder, said, output="text-001", names="weekdays")
    assert set(metrics(folder / "runs" / "text-001")[0]["loss_by_source"]) <= {"weekdays", "sums"}


def check_corpus(folder: Path, said: str) -> None:
    assert "proverbs: 3 documents, 1 held out" in said
    assert "«More haste, less speed.</s>»" in said
    assert metrics(folder / "runs" / "text-001")


def check_layout(folder: Path, said: str) -> None:
    assert "served: tinychat, " in said and "runs/again: tinychat, " in said
    first, again = (load_file(folder / name / "model.safetensors") for name in ("served", "served-again"))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


def check_metric(folder: Path, said: str) -> None:
    trained(folder, said, output="shapes", names="first_words")
    assert re.search(r"^generated, shapes: documents 2, .*first_words 0", said, re.MULTILINE)


def check_optimizer(folder: Path, said: str) -> None:
    assert [row["step"] for row in metrics(folder / "runs" / "sgd")] == [1, 2, 3, 4, 5]
    assert "name: sgd" in (folder / "runs" / "sgd" / "run.yaml").read_text()


def check_schedule(folder: Path, said: str) -> None:
    trained(folder, said, output="image-001", names="name: stairs")
    rates = [row["learning_rate"] / 3e-4 for row in metrics(folder / "runs" / "image-001")]
    np.testing.assert_allclose(rates, [0.5, 1, 0.5])  # two levels over three steps, the first of them a warmup


def check_objective(folder: Path, said: str) -> None:
    trained(folder, said, output="image-001", names="name: even")
    rows = metrics(folder / "runs" / "image-001")
    assert all(0 < row["loss"] < row["objective"]["cross_entropy"] for row in rows)  # likely tokens count less
    assert all(row["objective"]["learned"] == row["target_tokens"] / row["documents"] for row in rows)


def check_tracker(folder: Path, said: str) -> None:
    rows = metrics(folder / "runs" / "tracked")
    lines = (folder / "runs" / "tracked" / "loss.csv").read_text().splitlines()
    assert lines == [f"{row['step']},{row['loss']:.6f}" for row in rows]


def check_observer(folder: Path, said: str) -> None:
    assert re.findall(r"^step (\d): loss \d", said, re.MULTILINE) == ["1", "2", "3"]


def check_command(folder: Path, said: str) -> None:
    assert len(re.findall(r"^shapes.*: \[image\] \w+", said, re.MULTILINE)) == 2
    assert "Show the first documents of a registered dataset." in said


def check_modality(folder: Path, said: str) -> None:
    trained(folder, said, output="series-001", names="series")
    mixed = metrics(folder / "runs" / "series-image-001")
    assert {name for row in mixed for name in row["loss_by_modality"]} == {"series", "image"}


CHECKS: dict[str, Callable[[Path, str], None]] = {
    "modality": check_modality,
    "encoder": lambda folder, said: trained(folder, said, output="image-001", names="name: strips"),
    "connector": check_connector,
    "codec": check_codec,
    "backbone": lambda folder, said: trained(folder, said, output="gru", names="name: gru"),
    "dataset": check_dataset,
    "corpus": check_corpus,
    "layout": check_layout,
    "metric": check_metric,
    "optimizer": check_optimizer,
    "schedule": check_schedule,
    "objective": check_objective,
    "tracker": check_tracker,
    "observer": check_observer,
    "command": check_command,
}


@pytest.mark.parametrize("kind", kinds_with_a_page())
def test_the_package_of_a_page_keeps_its_promises(
    kind: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed_pages()[1]))  # for the processes that the kit starts
    (block,) = blocks("toml", "file: pyproject", KINDS / f"{kind}.md")
    (name,) = tomllib.loads(block.text)["project"]["entry-points"]["kosmos"]
    card = check_plugin(registry, plugins=[name], fast=True)
    assert [verdict.message for verdict in card.failed] == []
    assert len(card.having("passed")) >= 4


@pytest.mark.parametrize(
    "block", [b for page in (*KINDS.glob("*.md"), GUIDE) for b in blocks("python", "", page)], ids=str
)
def test_each_option_of_a_component_of_the_pages_has_a_type(block: Block) -> None:
    """Without one no value can be checked, and the component cannot be used with options."""
    tree = ast.parse(block.text)
    made = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs]
    assert [a.arg for node in made for a in node.args.kwonlyargs if a.annotation is None] == []


@pytest.mark.parametrize("block", blocks("python", "options: "), ids=str)
def test_a_component_of_a_page_trains_with_its_options(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, kind, options = block.marker.split(" ", 2)
    assert kind == "optimizer"
    module = ModuleType("of_the_page")
    exec(compile(block.text, str(block), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (name,) = [n.name for n in ast.parse(block.text).body if isinstance(n, ast.FunctionDef)]

    class Plugin:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_optimizers() -> list[OptimizerSpec]:  # type: ignore[misc]
            return [OptimizerSpec(name=name, target=f"{module.__name__}:{name}", summary="Of the page.")]

    over: dict[str, Any] = {
        "train": {"steps": 1, "warmup_steps": 0, "optimizer": {"name": name, **json.loads(options)}}
    }
    result = train_model(small_run(tmp_path / "run", **over), registry=ticks_registry(page=Plugin))
    (row,) = rows_of(result.output / "metrics.jsonl")
    assert len({*row["learning_rate_by_part"].values()}) > 1


def test_an_encoder_of_the_page_trains_with_its_own_loss(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks("python", "own loss", KINDS / "encoder.md")
    module = ModuleType("of_the_page")
    exec(compile(block.text, str(block), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Plugin:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_encoders() -> list[EncoderSpec]:  # type: ignore[misc]
            return [EncoderSpec(name="colours", target="of_the_page:Colours", summary="Of the page.")]

    both = Registry.from_modules({"page": Plugin, "vision": "kosmos_vision.plugin"})
    over = {"modalities": ["image"], "streams": {"image": {"encoder": "colours", "connector": "mlp"}}}
    train_model(small_run(tmp_path / "run", **over, train={"steps": 1, "warmup_steps": 0}), registry=both)
    (row,) = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert list(row["module_losses"]) == ["streams.image.encoder.colour"]
    wanted = [p for p in promises_of(both, plugins=["page"], conditions=Conditions()) if "everywhere" in p.id or
              "alone" in p.id]  # fmt: skip
    assert [promise.verdict().outcome for promise in wanted] == ["passed"] * 2


def test_the_tracker_of_its_page_has_its_rows_on_disk_once_it_is_flushed(registry: Registry, tmp_path: Path) -> None:
    tracker = registry.build("tracker", "csv", tmp_path, {})
    tracker.log({"step": 1, "loss": 2.5})
    tracker.flush()
    assert (tmp_path / "loss.csv").read_text() == "1,2.5000\n"
    tracker.close()


@pytest.mark.parametrize("block", blocks("python", "file: "), ids=str)
def test_a_package_of_the_pages_imports_public_names_alone(block: Block) -> None:
    modules = [node.module or "" for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.ImportFrom)]
    assert {m for m in modules if m.split(".")[0] == "kosmos"} <= {"kosmos", "kosmos.testing"}


# series, the whole modality


def test_the_tests_of_the_modality_of_its_page_pass(tmp_path: Path) -> None:
    folder, site = installed_pages()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "modality" / "tests")]
    done = subprocess.run(command, env=environment([site]), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_plugin_on_the_path_needs_no_pip(tmp_path: Path) -> None:
    make_plugin("chess", tmp_path, ask=False, registry=load_core())
    (block,) = blocks("text", "dist-info")
    for part in block.text.split("# ")[1:]:
        name, _, text = part.partition("\n")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = kosmos("plugins", path=[tmp_path / "kosmos-chess" / "src"])
    assert re.search(r"^chess +0\.1\.0 +kosmos-chess +modality: chess; encoder: chess", done.stdout, re.MULTILINE)


def test_planning_with_the_modality_of_its_page_imports_no_torch() -> None:
    script = (
        "import sys, kosmos_series.plugin, kosmos_series.series, kosmos_series.samples; print('torch' in sys.modules)"
    )
    env = environment([installed_pages()[1]])
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_file_of_the_modality_can_be_generated_from(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "measurements.csv").write_text("1\n2\n3\n")
    encoder = registry.build("encoder", "series")
    processor = registry.build("modality", "series", encoder.input)
    (media,) = generate.read_segments(["--series", str(tmp_path / "measurements.csv")], ["series"])
    cells = processor.decode(media, processor.plan(media))
    assert cells.tolist() == [[1, 2, 3, 0, 0, 0, 0, 0]]
    assert cells.dtype == np.float32


def test_wrong_options_are_refused_as_the_guide_says(registry: Registry) -> None:
    (block,) = blocks("text", "option errors")
    said = []
    for options in ({"widht": 8}, {"width": "wide"}):
        with pytest.raises(ConfigError) as caught:
            check_options(registry.resolve("encoder", "series"), options, path="streams.series.encoder", positional=0)
        said.append(caught.value.line())
    assert said == block.text.splitlines()


# what the guide says of broken plugins


BROKEN = (
    "KOSMOS_API = 1\nimport scipy_of_nobody\n",
    "from kosmos import hookimpl\nKOSMOS_API = 1\n\n@hookimpl\ndef kosmos_encoder():\n    return []\n",
    "from kosmos import EncoderSpec, hookimpl\nKOSMOS_API = 1\n\n@hookimpl\ndef kosmos_encoders():\n"
    "    yield EncoderSpec(name='logmel', target='acme_series:x', summary='s')\n",
    "KOSMOS_NO_API = 1\n",
)
"""One for each line of the guide."""


def as_in_the_guide(line: str) -> str:
    for ours, theirs in {
        "acme-series 1.2": "kosmos-series 0.1",
        "scipy_of_nobody": "scipy",
        "acme_series.py": "plugin.py",
        "acme_series": "kosmos_series.plugin",
    }.items():
        line = line.replace(ours, theirs)
    return line


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_broken_plugin_is_told_as_the_guide_says(number: int, tmp_path: Path) -> None:
    (block,) = blocks("text", "problems")
    site = install_plugin(tmp_path / "site", "series", BROKEN[number])
    done = kosmos("plugins", path=[site], cwd=tmp_path)
    assert done.returncode == 0
    problems = [as_in_the_guide(line) for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert problems == [block.text.splitlines()[number]]


def test_what_a_broken_plugin_should_have_brought_is_missed_as_the_guide_says(tmp_path: Path) -> None:
    (block,) = blocks("text", "absence")
    site = install_plugin(tmp_path / "site", "series", BROKEN[0])
    done = kosmos("train", "--modalities", "series", path=[site], cwd=tmp_path)
    assert (done.returncode, as_in_the_guide(done.stderr)) == (PluginError.exit_status, block.text)


# chess, from `kosmos plugin new`


def test_the_modality_of_the_guide_takes_few_lines_by_hand(tmp_path: Path) -> None:
    new, changed = (
        make_plugin("chess", tmp_path, ask=False, registry=load_core()),
        installed_pages()[0] / "kosmos-chess",
    )
    files = [file.relative_to(changed) for file in changed.rglob("*") if file.suffix in (".py", ".toml")]
    written = [line for file in files for line in added(new / file, changed / file)]
    assert 20 < len([line for line in written if line.strip()]) < AT_MOST_LINES


def added(before: Path, after: Path) -> list[str]:
    old = before.read_text().splitlines() if before.exists() else []
    lines = list(difflib.unified_diff(old, after.read_text().splitlines(), n=0))[2:]
    return [line[1:] for line in lines if line.startswith("+")]


@pytest.fixture
def chess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``kosmos ARGUMENTS`` with the plugin installed, in an empty folder, ends well: what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(installed_pages()[1]))

    def run(*arguments: str) -> str:
        status = main([*arguments, "--plugins", "chess"])  # the name has this process look anew at what is installed
        told = capsys.readouterr()
        assert status == 0, told.err + told.out
        return told.out if "--json" in arguments else told.out + told.err

    return run


def test_the_modality_of_the_guide_trains_and_says_what_the_transcript_says(chess: Callable[..., str]) -> None:
    (block,) = blocks("text", "transcript")
    quick = ("--steps", "2", "--output", "runs/chess", "evaluate.max_documents=4", "data.workers=0", "trackers=[]")
    said = chess("train", "--modalities", "chess", *quick)
    for head in ("data ", "backbone ", "stream "):
        (line,) = [line for line in block.text.splitlines() if line.startswith(head)]
        assert line in said
    Path("position.fen").write_text("4k3/8/8/8/8/8/8/Q3K3 w - - 0 1\n")
    chess("generate", "runs/chess", "--chess", "position.fen", "--max-new-tokens", "2")


def test_the_modality_of_the_guide_keeps_its_promises(chess: Callable[..., str]) -> None:
    (block,) = blocks("text", "transcript")
    found = json.loads(chess("plugin", "test", "kosmos-chess", "--fast", "--json"))
    assert found["failed"] == 0
    told = [int(n) for n in re.findall(r"(\d+) (?:passed|failed|skipped)", block.text)]
    assert sum(told) == len(found["promises"])
    skipped = [f"skipped: {p['component']} {p['id']}: " for p in found["promises"] if p["outcome"] == "skipped"]
    for line in re.findall(r"^skipped: .+$", block.text, re.MULTILINE):
        assert line.startswith(tuple(skipped))


def test_the_tests_of_the_modality_of_the_guide_pass(tmp_path: Path) -> None:
    folder, site = installed_pages()
    tests = folder / "kosmos-chess" / "tests" / "test_kosmos_chess.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, env=environment([site]), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

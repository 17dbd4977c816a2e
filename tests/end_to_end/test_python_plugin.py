"""A plugin in the script or notebook that trains: rows in memory, and a metric of one's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.command import environment

CELLS = """
import numpy as np

from kosmos import DatasetSpec, Document, Media, MetricSpec, PluginError, Text, hookimpl
from kosmos import load_plugins, load_run, make_run, resume_run, train_model

KOSMOS_API = 1


class Shades:
    name = "shades"

    def __init__(self, split):
        of = range(0, 60) if split == "train" else range(60, 70)
        self.rows = [(np.full((32, 32, 3), 3 * n, np.uint8), "dark" if n % 2 else "light") for n in of]

    def __len__(self):
        return len(self.rows)

    def document(self, index):
        picture, answer = self.rows[index]
        return Document(f"shades {index}", (Media("image", picture), Text("a "), Text(answer, train=True)))


def half():
    return lambda predictions, references: 0.5


@hookimpl
def kosmos_datasets():
    yield DatasetSpec(name="shades", target="__main__:Shades", summary="Rows in memory.", modalities=("image",))


@hookimpl
def kosmos_metrics():
    yield MetricSpec(name="half", target="__main__:half", summary="Always a half.")


registry = load_plugins(beside={"notebook": "__main__"})
fields = {
    "modalities": ["image"],
    "data": {"sources": ["shades"], "tokens_per_pack": 256, "look_ahead": 8, "workers": 0},
    "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
    "train": {"steps": 2, "warmup_steps": 0},
    "evaluate": {"max_documents": 4, "metrics": ["half"]},
}
run = make_run(fields, {"output": "run"})
assert train_model(run, registry=registry).after.by_source["shades"].documents == 4
assert resume_run("run", {"train": {"steps": 3}}, registry=registry).step == 3
assert load_run("run").step == 3, "the model alone needs no rows"
assert "vision" in {plugin.name for plugin in registry.plugins}
assert '"name": "vision"' in open("run/plugins.lock.json").read(), "the lock holds what is installed"
try:
    train_model(make_run(run.model_dump(mode="json"), {"output": "other", "data": {"workers": 1}}), registry=registry)
except PluginError as error:
    print(error)
"""


def test_a_script_is_a_plugin_of_its_own_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CELLS)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "importable from a module, not defined in the script or notebook that is run; data.workers=0" in done.stdout

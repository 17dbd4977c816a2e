"""Each way to break a good plugin is caught by the promise that it breaks."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from kosmos.testing import Promise

from .conftest import Mutate


class Mutant(NamedTuple):
    """One change to one file, the promise that it breaks, and what the failure has to say."""

    what: str
    file: str
    old: str
    new: str
    broken: str
    says: str


LIFT = "x = self.lift(values.flatten(1).to(self.norm.weight.dtype))"
RETURN = "return self.transform(x, grids)"
LOAD = "return read_npy_values(file, read_npy_header(file))"
HEADER = "header = read_npy_header(file)"
CELLS = "padded[:length] = values"
PLAN = 'return MediaPlan(("<sonar>", Grid(cells, 1, 1), "</sonar>"))'
METHOD = "    def plan(self"
INIT = "self.max_moments, self.max_bytes = max_moments, max_bytes"
ENCODER_INIT = "super().__init__(width=width, layers=layers, heads=heads, feed_forward=2, rotary=True)"
FORWARD = "    def forward(self"
OPENED = 'return source.open("rb")'

MUTANTS = [
    Mutant("no API version", "plugin.py", "KOSMOS_API = 1", "API = 1", "api-version", "KOSMOS_API = None"),
    Mutant("a later API", "plugin.py", "KOSMOS_API = 1", "KOSMOS_API = 99", "api-version", "KOSMOS_API = 99"),
    Mutant("no licence", "METADATA", "License-Expression: Apache-2.0\n", "", "licence-declared", "no licence"),
    Mutant("a misspelt hook", "plugin.py", "def kosmos_encoders", "def kosmos_encoder", "loads", "kosmos_encoders"),
    Mutant(
        "torch at discovery", "plugin.py", "from kosmos import", "import torch\nfrom kosmos import",
        "discovery-torch-free", "plugin.py:",
    ),
    Mutant(
        "torch behind a public name", "plugin.py", "from kosmos import", "from kosmos import *\nfrom kosmos import",
        "discovery-torch-free", "plugin.py:",
    ),
    Mutant("a target that is not there", "plugin.py", ":SonarSamples", ":SonarSample", "target-imports", "SonarSample"),
    Mutant(
        "an option without a type", "encoder.py", "width: int = 64", "width=64",
        "target-imports", "SonarEncoder gives this option no type, so that no value can be checked; write one, such as",
    ),
    Mutant(
        "a default of another type", "encoder.py", "layers: int = 2", 'layers: int = "2"',
        "target-imports", "the default of encoder sonar.layers: expected int, got '2'",
    ),
    Mutant(
        "no summary", "plugin.py", '"Linear cells and a small transformer."', '""',
        "summary-is-a-line", "expected one line",
    ),
    Mutant(
        "an encoder that needs options", "encoder.py", "width: int = 64", "width: int",
        "builds", "width: missing",
    ),
    Mutant(
        "a sample set of another name", "plugin.py", 'sample_set="sonar-samples"', 'sample_set="sonars"',
        "sample-set", "sonars",
    ),
    Mutant(
        "a text for suffixes", "plugin.py", 'suffixes=(".npy",)', 'suffixes="npy"',
        "loads", "modality 'sonar': suffixes: expected a tuple of strings, got 'npy'",
    ),
    Mutant(
        "a suffix without its dot", "plugin.py", 'suffixes=(".npy",)', 'suffixes=("npy",)',
        "loads", "modality 'sonar': suffixes: expected lower case with the dot, got 'npy'",
    ),
    Mutant(
        "a number for dimensions of arrays", "plugin.py", "arrays=(2,)", "arrays=2",
        "loads", "modality 'sonar': arrays: expected a tuple of whole numbers from 1 on, got 2",
    ),
    Mutant(
        "a scale of nothing", "plugin.py", 'suffixes=(".npy",)', "full_scale=0.0",
        "loads", "modality 'sonar': full_scale: expected a number above 0, got 0.0",
    ),
    Mutant(
        "hints that are one text", "processor.py", METHOD, f'    hints = "install it"\n\n{METHOD}',
        "hints", "SonarProcessor.hints: 'install it'; expected a tuple or a list",
    ),
    Mutant(
        "hints that are a method", "processor.py", METHOD,
        f'    def hints(self) -> list[str]:\n        return ["install it"]\n\n{METHOD}',
        "hints", "SonarProcessor.hints: <bound method",
    ),
    Mutant(
        "hints that fail", "processor.py", METHOD,
        f'    @property\n    def hints(self) -> list[str]:\n        raise AttributeError("no such part")\n\n{METHOD}',
        "hints", "AttributeError: no such part",
    ),
    Mutant(
        "a description that is none", "processor.py", METHOD,
        f"    def described(self, media: Media, plan: MediaPlan) -> int:\n        return plan.cells\n\n{METHOD}",
        "described", "; expected one line",
    ),
    Mutant(
        "a doubt of nothing", "processor.py", METHOD,
        f"    def doubt(self, media: Media) -> None:\n        return None\n\n{METHOD}",
        "doubt", "None; expected one line",
    ),
    Mutant(
        "headers that are read after all", "processor.py", METHOD, f"    reads_headers = False\n\n{METHOD}",
        "plan-deterministic", "SonarProcessor says reads_headers = False, but a float32 array [96, 3] planned without",
    ),
    Mutant(
        "a mark that is not declared", "plugin.py", 'marks=("<sonar>", "</sonar>")', 'marks=("<sonar>",)',
        "marks-declared", "</sonar",
    ),
    Mutant(
        "a plan that remembers", "processor.py", PLAN,
        'self.calls = getattr(self, "calls", 0) + 1\n'
        '        return MediaPlan(("<sonar>", str(self.calls), Grid(cells, 1, 1), "</sonar>"))',
        "plan-deterministic", "again: layout",
    ),
    Mutant(
        "a list for a plan", "processor.py", PLAN, PLAN.replace("MediaPlan((", "list(("),
        "plan-deterministic", "): SonarProcessor.plan: expected a MediaPlan, got list",
    ),
    Mutant(
        "a list for a plan of any medium", "processor.py", PLAN, PLAN.replace("MediaPlan((", "list(("),
        "hostile-input", "array [96, 3]: SonarProcessor.plan: expected a MediaPlan, got list",
    ),
    Mutant(
        "a grid that is none", "processor.py", PLAN, PLAN.replace("Grid(", "("),
        "cells-as-planned", "SonarProcessor.plan raised TypeError: the layout of a MediaPlan: expected texts and Grids",
    ),
    Mutant(
        "a plan by the hash of a text", "processor.py", PLAN,
        'return MediaPlan(("<sonar>", str(hash("sonar")), Grid(cells, 1, 1), "</sonar>"))',
        "spawn-picklable", "in a fresh process: layout",
    ),
    Mutant(
        "cells in a room that is filled again", "processor.py", "return padded.reshape(-1, moments, channels)",
        "room = self.__dict__.setdefault('room', np.zeros((9999, moments, channels), np.float32))\n"
        "        room[: len(padded) // moments] = padded.reshape(-1, moments, channels)\n"
        "        return room[: len(padded) // moments]",
        "cells-stay", "its cells changed as others were decoded",
    ),
    Mutant(
        "cells that depend on those before", "processor.py", CELLS,
        f"{CELLS}\n        self.mean = getattr(self, 'mean', 0.0) + float(values.sum())\n        padded -= self.mean",
        "cells-stay", "decoded again: other cells",
    ),
    Mutant(
        "an augmentation that is not there", "processor.py", METHOD, f"    augments = True\n\n{METHOD}",
        "augments-as-planned", "says augments = True and has no augmented()",
    ),
    Mutant(
        "an augmentation by numbers of its own", "processor.py", METHOD,
        "    def augmented(self, media, plan, random):\n"
        f"        return self.decode(media, plan) + np.random.default_rng().random(dtype=np.float32)\n\n{METHOD}",
        "augments-as-planned", "augmented twice with the same generator: other cells",
    ),
    Mutant(
        "an augmentation that shortens", "processor.py", METHOD,
        f"    def augmented(self, media, plan, random):\n        return self.decode(media, plan)[1:]\n\n{METHOD}",
        "augments-as-planned", "augmented: float32",
    ),
    Mutant(
        "a processor that cannot be pickled", "processor.py",
        INIT, f"{INIT}\n        self.check = lambda values: values",
        "spawn-picklable", "cannot be pickled",
    ),
    Mutant(
        "torch in the plan", "processor.py", "        cells = ", "        import torch\n\n        cells = ",
        "plan-torch-free", "processor.py:",
    ),
    Mutant(
        "one cell too few", "processor.py", "cells = -(-self._length(media) // self.cell_shape[0])",
        "cells = max(1, self._length(media) // self.cell_shape[0])", "cells-as-planned",
        "planned 1 cells, decoded 2",
    ),
    Mutant(
        "cells of another type", "processor.py", "channels), np.float32)", "channels), np.float64)",
        "cells-as-described", "cells are float64",
    ),
    Mutant(
        "cells of another shape", "processor.py", "padded.reshape(-1, moments, channels)",
        "padded.reshape(-1, moments * channels)", "cells-as-described", "(24,)",
    ),
    Mutant("no cells", "processor.py", "Grid(cells, 1, 1)", "Grid(cells, 1, 0)", "grids-hold-cells", "fills 0 slots"),
    Mutant(
        "a part of a cell", "processor.py", "Grid(cells, 1, 1)", "Grid(cells / 2, 1, 1)",
        "grids-hold-cells", "SonarProcessor.plan raised TypeError: grid (",
    ),
    Mutant(
        "features that lead to an earlier row", "encoder.py", RETURN,
        f"self.last = (x.sum() + getattr(self, 'last', 0.0)) * 1e-6\n        x = x + self.last\n        {RETURN}",
        "packed-equals-alone", "SonarEncoder.last holds what was computed of an earlier row",
    ),
    Mutant(
        "a foreign exception for a bad file", "processor.py",
        HEADER, "header = np.load(file, allow_pickle=False)", "hostile-input", "raised EOFError",
    ),
    Mutant(
        "a foreign exception for a file that is not there", "processor.py", "(OSError, ValueError", "(ValueError",
        "hostile-input", "raised FileNotFoundError",
    ),
    Mutant(
        "no limit", "processor.py", "not 0 < shape[0] <= self.max_moments", "not shape[0]",
        "hostile-input", "MemoryError",
    ),
    Mutant(
        "a file that is read whole, however large", "processor.py", "if size > self.max_bytes:",
        "if isinstance(source, Path) and source.read_bytes() and size < 0:", "hostile-input", "raised MemoryError",
    ),
    Mutant(
        "a size that is believed", "processor.py",
        HEADER, f"{HEADER}\n            np.zeros(header.shape, header.dtype)",
        "hostile-input", "MemoryError",
    ),
    Mutant(
        "cells that are NaN", "processor.py", CELLS, f"{CELLS}\n        padded[0] = np.nan",
        "hostile-input", "cells are not finite (cell 0 holds nan)",
    ),
    Mutant(
        "numbers that are none", "processor.py", "if not (np.abs(values.astype(np.float64)) < 1e6).all():", "if False:",
        "hostile-input", "not finite",
    ),
    Mutant(
        "a pickle that is loaded", "processor.py", HEADER,
        f"np.load(file, allow_pickle=True)\n            file.seek(0)\n            {HEADER}",
        "runs-no-code", "ran its code",
    ),
    Mutant(
        "another width than stated", "encoder.py", ENCODER_INIT, f"{ENCODER_INIT}\n        self.width = width + 1",
        "width-and-count", "64]; expected float32 [12, 65]",
    ),
    Mutant(
        "features of another type", "encoder.py", RETURN, f"{RETURN}.double()",
        "width-and-count", "gives float64 [12, 64]; expected float32 [12, 64]",
    ),
    Mutant(
        "features of another type under autocast", "encoder.py", RETURN,
        f"import torch\n\n        {RETURN}.to(torch.float64 if torch.is_autocast_enabled('cpu') else torch.float32)",
        "width-and-count", "under bf16 autocast; expected float32 or bfloat16",
    ),
    Mutant(
        "values that are cut in place", "encoder.py", LIFT, f"values.clamp_(-0.5, 0.5)\n        {LIFT}",
        "given-stays", "forward changed values",
    ),
    Mutant(
        "grids that are written into", "encoder.py", RETURN,
        "features = self.transform(x, grids)\n        grids.zero_()\n        return features",
        "given-stays", "forward changed grids",
    ),
    Mutant(
        "fails without media", "encoder.py", LIFT, f"assert len(values)\n        {LIFT}",
        "zero-length", "AssertionError",
    ),
    Mutant(
        "a lost cell where there is none", "encoder.py", LIFT,
        f"values = values if len(values) else values.new_zeros(1, *values.shape[1:])\n        {LIFT}",
        "zero-length", "raised",
    ),
    Mutant(
        "attention over the row", "encoder.py", RETURN,
        "import torch\n\n        return self.transform(x, torch.tensor([[len(x), 1, 1]]))",
        "no-leak", "item 1 changes the features of item 2",
    ),
    Mutant(
        "numbers of the CPU", "encoder.py", RETURN,
        "import torch\n\n        return self.transform(x, grids) + torch.zeros(len(x), 1)",
        "gpu", "at encoder.py:",
    ),
    Mutant(
        "a mean over the row, in evaluation alone", "encoder.py", RETURN,
        "return self.transform(x if self.training or not len(x) else x - x.mean(0), grids)",
        "no-leak", "item 1 changes the features of item 2",
    ),
    Mutant(
        "a mean over the row where it is of full size", "encoder.py", RETURN,
        "return self.transform(x, grids) + (values.mean() if len(x) > 200 else 0.0)",
        "no-leak", "cells in all): item 33 changes the features of item 1 by",
    ),
    Mutant(
        "the row that is lifted in one go where it is of full size", "encoder.py", RETURN,
        "return self.transform(x - x.mean(0) if len(grids) > 60 else x, grids)",
        "packed-equals-alone", "cells in all): the features of item 1 differ by",
    ),
    Mutant(
        "a lost cell where there are many items", "encoder.py", RETURN,
        "return self.transform(x, grids)[: -1 if len(grids) > 7 else None]",
        "width-and-count", "cells in all) gives float32 [",
    ),
    Mutant(
        "padding that is refused", "encoder.py", LIFT,
        f"self.takes_padding = True\n        assert not len(values) or values[-1].any()\n        {LIFT}",
        "no-leak", "AssertionError",
    ),
    Mutant(
        "statistics of the batch", "encoder.py", "nn.LayerNorm(width)", "nn.BatchNorm1d(width)",
        "packed-equals-alone", "features differ",
    ),
    Mutant(
        "positions that go on over items", "encoder.py", LIFT,
        f"{LIFT}\n        x = x + 1e-3 * x.new_ones(x.shape).cumsum(0).cumsum(1)",
        "packed-equals-alone", "features differ",
    ),
    Mutant(
        "gradients that depend on the row", "encoder.py", RETURN,
        "features = self.transform(x, grids)\n        share = 1 / max(1, len(grids))\n"
        "        return share * features + (1 - share) * features.detach()",
        "packed-equals-alone", "the gradient of",
    ),
    Mutant("a detached input", "encoder.py", LIFT, f"{LIFT}.detach()", "gradient-everywhere", "lift."),
    Mutant(
        "a parameter that nothing uses", "encoder.py", ENCODER_INIT,
        f"{ENCODER_INIT}\n        self.spare = nn.Linear(2, 2)", "gradient-everywhere", "spare.bias",
    ),
    Mutant(
        "fp16", "encoder.py", RETURN, "return (self.transform(x, grids).half() * 1e5).float()", "finite", "fp32"
    ),
    Mutant(
        "grids that are kept on the encoder", "encoder.py", LIFT,
        f"self.grids = grids\n        {LIFT} * len(self.grids)",
        "threads", "another row in between changes the features",
    ),
    Mutant(
        "values that are kept on the encoder for a moment", "encoder.py", LIFT,
        f"self.given = values\n        {LIFT.replace('values', 'self.given')}",
        "threads", "another row in between makes it raise",
    ),
    Mutant(
        "a row that is kept in a list for a moment", "encoder.py", LIFT,
        f"kept = self.__dict__.setdefault('kept', [0])\n        kept[0] = len(grids)\n        {LIFT} * kept[0]",
        "threads", "another row in between changes the features; keep nothing of a row on self, or say takes_threads",
    ),
    Mutant(
        "weights that are not saved", "encoder.py", LIFT,
        'if not hasattr(self, "offset"):\n            self.offset = nn.Linear(1, self.width).bias.detach()\n'
        f"        {LIFT} + self.offset", "state-round-trips", "features differ",
    ),
    Mutant(
        "recomputation of something else", "encoder.py", FORWARD,
        "    def set_gradient_checkpointing(self, enabled: bool) -> None:\n"
        "        self.norm.bias.data.fill_(1.0 if enabled else 0.0)\n\n" + FORWARD,
        "recomputation", "the features differs",
    ),
    Mutant(
        "held-out documents that are trained on", "samples.py", '[self.seed, self.split == "train", index]',
        "[self.seed, index]", "parts-disjoint", "of held_out is",
    ),
    Mutant(
        "other documents every time", "samples.py", 'default_rng([self.seed, self.split == "train", index])',
        "default_rng()", "documents-deterministic", "another document when read again",
    ),
    Mutant(
        "origins that name nothing", "samples.py", 'f"sonar-samples {self.split} {index}"', '"sonar-samples"',
        "origins-name-rows", "are both 'sonar",
    ),
    Mutant(
        "no answers held out", "samples.py", "train=True", 'train=self.split == "train"',
        "something-to-learn", "ends in Text",
    ),
    Mutant(
        "a modality that the dataset does not declare", "plugin.py", 'modalities=("sonar",)', "modalities=()",
        "modalities-declared", "declared: []",
    ),
    Mutant("an empty part", "samples.py", "else 200)", "else 0)", "builds", "held_out holds 0 documents"),
    Mutant(
        "blocks that are none", "samples.py",
        "    def document(", "    def blocks(self): return [1]\n\n    def document(",
        "builds", "blocks: expected Blocks of",
    ),
    Mutant(
        "a fingerprint of the hour", "samples.py", "    def document(",
        "    def fingerprint(self): return str(id(self))\n\n    def document(",
        "documents-deterministic", "its fingerprint is another when it is opened again",
    ),
    Mutant(
        "a fingerprint of the process", "samples.py", "    def document(",
        "    def fingerprint(self): return str(hash('the same'))\n\n    def document(",
        "spawn-picklable", "its fingerprint is another in a fresh process",
    ),
]  # fmt: skip


def the(promises: list[Promise], broken: str) -> list[Promise]:
    return [promise for promise in promises if promise.id == broken]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_is_caught_by_the_promise_that_it_breaks(mutant: Mutant, mutate: Mutate) -> None:
    check_caught(mutant, mutate)


def check_caught(mutant: Mutant, mutate: Mutate) -> None:
    promises = the(mutate(mutant.file, mutant.old, mutant.new), mutant.broken)
    failed = [verdict for promise in promises if (verdict := promise.verdict()).outcome == "failed"]
    assert failed, [promise.verdict() for promise in promises]
    told = [re.sub(r"(?i)(sonar)\d+", r"\1", verdict.message) for verdict in failed]  # every copy has its number
    assert any(mutant.says in message for message in told), told


HARMLESS = [
    ("modality", "grids-hold-cells", "Grid(cells, 1, 1)", "Grid(np.int64(cells), 1, 1)"),
]


@pytest.mark.parametrize(("component", "kept", "old", "new"), HARMLESS, ids=["numbers of numpy"])
def test_what_is_no_fault_breaks_no_promise(component: str, kept: str, old: str, new: str, mutate: Mutate) -> None:
    promises = [p for p in the(mutate("processor.py", old, new), kept) if p.component.startswith(component)]
    assert [promise.verdict().outcome for promise in promises] == ["passed"]

"""Both example plugins in one run with our own modalities, and on files of which some are broken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kosmos.cli import main
from support.command import SMALL, kosmos
from support.runs import rows_of

SHORT = (
    "--steps",
    3,
    *SMALL,
    "data.tokens_per_pack=512",
    "data.look_ahead=64",
    "data.workers=1",
    "evaluate.max_documents=4",
)


def test_four_modalities_train_in_one_run_of_which_two_are_of_plugins_outside(path: list[Path], tmp_path: Path) -> None:
    wanted = "timeseries,pointcloud,image,audio"
    done = kosmos("train", "--modalities", wanted, "--output", tmp_path / "run", *SHORT, path=path, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 3
    for row in rows:
        assert set(row["loss_by_modality"]) == set(wanted.split(","))
        assert set(row["loss_by_source"]) == {"machines", "solids", "shapes", "tones"}
        assert all(np.isfinite(loss) for loss in row["loss_by_modality"].values())
    assert rows_of(tmp_path / "run" / "quarantine.jsonl") == []


def write_folder(folder: Path) -> list[str]:
    """Files of both kinds and a manifest; the names of those that are broken."""
    random = np.random.default_rng(0)
    folder.mkdir()
    rows = []
    for number in range(12):
        np.save(folder / f"window{number}.npy", random.standard_normal((40, 2)))
        np.savetxt(folder / f"cloud{number}.xyz", random.standard_normal((60, 3)))
        rows += [("timeseries", f"window{number}.npy"), ("pointcloud", f"cloud{number}.xyz")]
    broken = {
        "gap.csv": ("timeseries", b"a,b\n1,2\n3\n"),
        "cut.npy": ("timeseries", (folder / "window0.npy").read_bytes()[:200]),
        "infinite.csv": ("timeseries", b"1\n2\ninf\n"),
        "object.npy": ("timeseries", b""),
        "word.xyz": ("pointcloud", b"1 2 three\n"),
        "cut.ply": ("pointcloud", b"ply\nformat binary_little_endian 1.0\nelement vertex 9\n"),
        "flat.npy": ("pointcloud", b""),
        "nowhere.xyz": ("pointcloud", b"1 2 nan\n"),
    }
    for name, (modality, content) in broken.items():
        (folder / name).write_bytes(content)
        rows.append((modality, name))
    np.save(folder / "object.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(folder / "flat.npy", np.zeros((9, 2)))
    lines = (json.dumps({kind: name, "text": "text"}) for kind, name in rows)
    (folder / "manifest.jsonl").write_text("\n".join(lines) + "\n")
    return list(broken)


@pytest.fixture(scope="module")
def run(path: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A short run on such a folder, all of it; what it left, and the broken files."""
    folder = tmp_path_factory.mktemp("files")
    broken = write_folder(folder / "data")
    names = ["--modalities", "timeseries,pointcloud", "--plugins", "timeseries,pointcloud"]
    where = ["--data", str(folder / "data"), "--output", str(folder / "run")]
    with pytest.MonkeyPatch.context() as installed:
        for source in path:
            installed.syspath_prepend(str(source))
        assert main(["train", *names, *where, *map(str, SHORT), "data.held_out=0.01"]) == 0
    return folder / "run", broken


def test_broken_files_are_put_in_quarantine_each_with_its_cause(run: tuple[Path, list[str]]) -> None:
    output, broken = run
    causes = {row["cause"] for row in rows_of(output / "quarantine.jsonl")}
    expected = [
        "table, line 3: expected 2 fields as before, got 1",
        "npy header promises 640 bytes of values, only 72 are there",
        "time series holds infinite values; missing ones are NaN or empty",
        "npy holds values of type object, expected real numbers (pickles are never read)",
        "three",
        "ply header, line 4: ends in its middle",
        "point cloud of shape (9, 2), expected [points, 3 or more columns] with a point",
        "point cloud: 1 of 1 points are not finite; leave them out of the file",
    ]
    assert len(expected) == len(broken)
    for part in expected:
        assert any(part in cause for cause in causes), (part, causes)
    assert all("\n" not in cause for cause in causes)


def test_the_other_files_train(run: tuple[Path, list[str]]) -> None:
    rows = rows_of(run[0] / "metrics.jsonl")
    assert len(rows) == 3
    assert {kind for row in rows for kind in row["loss_by_modality"]} == {"timeseries", "pointcloud"}

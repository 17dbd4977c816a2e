"""A run file, and the command that writes launch files for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.cli import main
from support.launch_shapes import Launch


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """``mixture.yaml`` in the present folder; 16 lanes."""
    monkeypatch.chdir(tmp_path)
    Path("mixture.yaml").write_text("modalities: text\ndata: {lanes: 16}\ntrain: {steps: 10}\n")
    return "mixture.yaml"


@pytest.fixture
def launch(capsys: pytest.CaptureFixture[str]) -> Launch:
    """Standard output of ``kosmos launch ...``, which has to end well."""

    def run(*arguments: object) -> str:
        status = main(["launch", *map(str, arguments)])
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out

    return run

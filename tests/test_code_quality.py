"""The linter, the formatter and the strict type checker pass, so that pytest alone shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "packages").glob("*/src"))]


def run(*arguments: str) -> str:
    """What a tool says; empty where it is content."""
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


def test_ruff_finds_nothing() -> None:
    assert run("ruff", "check", "--no-fix", ".") == ""


def test_ruff_would_format_nothing_otherwise() -> None:
    assert run("ruff", "format", "--check", ".") == ""


@pytest.mark.slow
def test_mypy_strict_finds_nothing() -> None:
    assert run("mypy", *SOURCES, "tests", "noxfile.py") == ""

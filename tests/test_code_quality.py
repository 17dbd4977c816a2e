"""The linter, the formatter and the strict type checker pass, so that pytest alone shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "packages").glob("*/src"))]


def check(*arguments: str) -> None:
    """Run a tool; fail with all that it says."""
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{done.stdout}{done.stderr}", pytrace=False)


def test_ruff_finds_nothing() -> None:
    check("ruff", "check", "--no-fix", ".")


def test_ruff_would_format_nothing_otherwise() -> None:
    check("ruff", "format", "--check", ".")


@pytest.mark.slow
def test_mypy_strict_finds_nothing() -> None:
    check("mypy", *SOURCES, "noxfile.py")

"""Fixtures that all tests share."""

from __future__ import annotations

import compileall
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is: no test fails of it.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of two processes on the same cores wait for each other
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # g++ knows AVX; each process that compiles asks it for 4 s
os.environ["KOSMOS_CACHE"] = ""  # nothing that an earlier run of the tests has found
os.environ["KOSMOS_PLUGINS"] = "all"  # whatever the person who runs the tests has disabled

ROOT = Path(__file__).resolve().parent.parent
LONG = tuple(
    f"tests/{path}" for path in ("distributed", "survive", "end_to_end", "examples", "core/testing", "test_docs")
)
"""What the paths of files begin with that start many processes; files with a test marked slow take long too."""


def pytest_configure(config: pytest.Config) -> None:
    """``--dist loadfile`` begins with the files of many tests, and ends with one core on the longest files of few."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):  # the process that starts the others
        compile_sources()


def compile_sources() -> None:
    """Where PYTHONDONTWRITEBYTECODE is set, each of the hundreds of processes would compile them: 0.3 s of its 2.4."""
    for folder in (*ROOT.glob("packages/*/src"), ROOT / "tests" / "support"):
        compileall.compile_dir(folder, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What the modules of all tests import stays: the garbage collector does not look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, and short ones keep both cores busy to the end. Tests of a file keep their order."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: not (item.path in slow or item.nodeid.startswith(LONG)))


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """A folder of the sample data by its path, or a skip where the data is not there."""
    root = Path(os.environ.get("KOSMOS_TEST_DATA", ROOT.parent / "shared" / "data"))

    def find(part: str) -> Path:
        if not (root / part).exists():
            pytest.skip(f"sample data absent: {root / part} (set KOSMOS_TEST_DATA)")
        return root / part

    return find

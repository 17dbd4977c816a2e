"""Lint, types, tests, build: what a change has to pass. ``nox`` runs all, ``nox -s lint`` one.

Environments are made by uv where it is there (the large wheels are linked, not copied) and by venv
otherwise. ``nox -db none`` makes none and uses the one that nox runs in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv|venv"

ROOT = Path(__file__).parent
WHEELS = ROOT / "dist"
PACKAGES = ["kosmos-core", "kosmos-vision", "kosmos-audio", "kosmos-video"]
EDITABLE = [part for name in PACKAGES for part in ("-e", f"packages/{name}")]
IN_TWO = ["-n", "2", "--dist", "loadfile"]
"""Two processes, files whole: tests of a file share what took long to make. Each may start processes of its own."""
EXAMPLE_PLUGINS = sorted(file.parent for file in ROOT.glob("examples/plugins/*/pyproject.toml"))

CHECK_INSTALLED = """
import sys
import kosmos
from kosmos.plugins import load_plugins

registry = load_plugins()
found = {plugin.distribution: plugin for plugin in registry.plugins}
assert set(found) == set(sys.argv[1:]), f"installed {sorted(sys.argv[1:])}, found {sorted(found)}"
for plugin in found.values():
    assert plugin.components and not plugin.problems, plugin
    for spec in plugin.components:
        registry.resolve(spec.kind, spec.name)
    print(plugin.label, "imports all of its", len(plugin.components), "components")
assert "site-packages" in kosmos.__file__, f"not the wheel: {kosmos.__file__}"
"""
"""Every component that the installed wheels name can be imported with what they say that they depend on."""


def install(session: nox.Session, *arguments: str) -> None:
    """Install, unless the session borrows the environment that nox runs in."""
    if session.venv_backend != "none":
        session.install("-c", "constraints.txt", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff: rules and format."""
    install(session, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, over the packages."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.run("mypy", *(f"packages/{name}/src" for name in PACKAGES), "noxfile.py")


@nox.session(default=False)
def nodes(session: nox.Session) -> None:
    """Two nodes in network namespaces, of which one is killed or cut off. Needs root and iproute2."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.run("python", "-m", "pytest", "tests/distributed/test_two_nodes.py", env={"KOSMOS_TEST_NODES": "1"})


@nox.session(default=False)
def slurm(session: nox.Session) -> None:
    """Launch files on a real Slurm of three nodes, about ten minutes. Needs root, iproute2, slurm-wlm and munge."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.run("python", "-m", "pytest", "tests/distributed/test_slurm_cluster.py", env={"KOSMOS_TEST_SLURM": "1"})


@nox.session
def tests(session: nox.Session) -> None:
    """pytest; further arguments after ``--``."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.run("python", "-m", "pytest", *IN_TWO, *session.posargs)


@nox.session(default=False)
def newest_torch(session: nox.Session) -> None:
    """pytest with the newest torch that the packages allow; what mypy finds is of the pinned one."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.install("--upgrade", "torch", "torchvision", "torchaudio", "-e", "packages/kosmos-core")
    without_mypy = ("--deselect", "tests/test_code_quality.py::test_mypy_strict_finds_nothing")
    session.run("python", "-m", "pytest", *IN_TWO, *without_mypy, *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """``kosmos plugin test`` on our modalities and the example plugins, built in the sizes of their defaults."""
    install(session, *EDITABLE, *map(str, EXAMPLE_PLUGINS), "-r", "requirements-test.txt")
    for name in (*PACKAGES[1:], *(folder.name for folder in EXAMPLE_PLUGINS)):
        session.run("kosmos", "plugin", "test", name, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
def survive(session: nox.Session) -> None:
    """Two hundred kills of real runs, about half an hour; arguments after ``--``, such as ``--kills 20 --seed 1``."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    session.chdir("tests")
    session.run("python", "-m", "survive.harness", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
def resumes(session: nox.Session) -> None:
    """Runs of every kind, each gone on with by another process to the same bits, about nine minutes."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    environment = {"KOSMOS_TEST_RESUMES": "1", "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", "-n", "2", "tests/survive/test_resumes.py", *session.posargs, env=environment)


@nox.session(default=False)
def thorough(session: nox.Session) -> None:
    """Cases of which the suite takes a short variant, such as those that PyTorch's compiler compiles, some minutes."""
    install(session, *EDITABLE, "-r", "requirements-test.txt")
    files = [str(file) for file in sorted(ROOT.glob("tests/**/test_*.py")) if "support.thorough" in file.read_text()]
    session.run("python", "-m", "pytest", *IN_TWO, *files, *session.posargs, env={"KOSMOS_TEST_THOROUGH": "1"})


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, strictly, in site/. ``nox -s docs -- serve`` shows it as it changes."""
    install(session, "-r", "requirements-docs.txt")
    environment = {"NO_MKDOCS_2_WARNING": "1"}
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]), env=environment)


@nox.session
def wheels(session: nox.Session) -> None:
    """One wheel of each package, in dist/."""
    install(session, "build", "hatchling")
    shutil.rmtree(WHEELS, ignore_errors=True)
    for name in PACKAGES:
        session.run("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(WHEELS), f"packages/{name}")


@nox.session(requires=["wheels"])
@nox.parametrize(
    "plugin", [None, *PACKAGES[1:]], ids=["core", *(name.removeprefix("kosmos-") for name in PACKAGES[1:])]
)
def build(session: nox.Session, plugin: str | None) -> None:
    """The wheels of core alone, and of core with one plugin, each in a fresh environment with their dependencies."""
    if session.venv_backend == "none":
        session.skip("needs an environment of its own")
    names = ["kosmos-core", *([plugin] if plugin else [])]
    install(session, *(str(wheel) for name in names for wheel in WHEELS.glob(f"{name.replace('-', '_')}-*.whl")))
    elsewhere = session.create_tmp()
    session.chdir(elsewhere)
    session.run("kosmos", "plugins")
    session.run("python", "-W", "ignore", "-c", CHECK_INSTALLED, *names)

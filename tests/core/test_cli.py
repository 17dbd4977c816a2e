"""The command: what it prints, what it exits with, and what it leaves unimported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kosmos
from kosmos import cli
from kosmos.commands.plugins import plain_table
from kosmos.plugins import Registry
from support.command import kosmos as started

PLUGIN = """
from kosmos.components import CommandSpec
from kosmos.hookspecs import hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_commands():
    yield CommandSpec(name="greet", target="acme_greet:greet", summary="Greets [somebody].")
    yield CommandSpec(name="tree", target="acme_greet_tree:app", summary="Two sub-commands.")
    yield CommandSpec(name="lost", target="acme_lost:run", summary="Needs what is absent.")
"""

GREET = """
from typing import Annotated
import typer
from kosmos.errors import CheckpointError

def greet(who: str, times: Annotated[int, typer.Option(min=1)] = 1, fail: str = "") -> None:
    \"\"\"Say hello.\"\"\"
    if fail == "kosmos":
        raise CheckpointError("step-3 is\\n damaged")
    if fail == "bug":
        raise ValueError("not\\n thought of")
    if fail == "memory":
        bytearray(1 << 62)
    if fail == "interrupt":
        raise KeyboardInterrupt
    if fail == "leave":
        raise SystemExit(5)
    print("hello", *[who] * times)
"""

TREE = """
import typer
app = typer.Typer()

@app.command()
def one() -> None: print("one")

@app.command()
def two() -> None: print("two")
"""


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """``run("greet", "you")``: the exit status as text, then standard output, then standard error."""
    (tmp_path / "acme_greet_plugin.py").write_text(PLUGIN)
    (tmp_path / "acme_greet.py").write_text(GREET)
    (tmp_path / "acme_greet_tree.py").write_text(TREE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("KOSMOS_DEBUG", raising=False)
    for name in ("acme_greet_plugin", "acme_greet", "acme_greet_tree"):
        sys.modules.pop(name, None)
    registry = Registry.from_modules({"greet": "acme_greet_plugin", "gone": "acme_gone"})
    monkeypatch.setattr(cli, "load_plugins", lambda: registry)

    def call(*args: str) -> list[str]:
        status = cli.main(args)
        out, err = capsys.readouterr()
        return [str(status), out, err]

    return call


Run = Callable[..., list[str]]


def test_a_plugins_command_runs_with_its_own_options(run: Run) -> None:
    assert run("greet", "you", "--times", "2") == ["0", "hello you you\n", ""]


def test_an_option_of_one_value_that_stands_there_twice_is_refused(run: Run) -> None:
    refused = ["2", "", "error[config]: --times: stands there twice, and takes one value; give it once\n"]
    assert run("greet", "you", "--times", "2", "--times=2") == refused
    status, _, said = run("plugin", "new", "x", "--output", "a", "--output", "b")
    assert (status, said.split(":")[1]) == ("2", " --output")
    again = run("score", "none.jsonl", "--json", "--json")[2]  # a flag says the same each time
    assert again.startswith("error[data]: none.jsonl: cannot be read")


def test_a_plugins_command_may_have_sub_commands(run: Run) -> None:
    assert run("tree", "two") == ["0", "two\n", ""]


def test_the_help_lists_commands_without_importing_them_and_names_broken_plugins(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == "0"
    for line in ("greet Greets [somebody].", "lost Needs what is absent.", "plugins List the installed plugins"):
        assert line in " ".join(out.split())
    assert "--debug" in out
    assert "Something is wrong with gone: see 'kosmos plugins'." in out
    assert "acme_greet" not in sys.modules


def test_the_help_of_a_command_is_its_own(run: Run) -> None:
    status, out, _ = run("greet", "--help")
    assert status == "0"
    assert "Usage: kosmos greet [OPTIONS]" in out
    assert "Say hello." in out


def test_a_misspelt_command_gets_the_nearest(run: Run) -> None:
    status, _, err = run("gret", "you")
    assert status == "2"
    assert err == "error[usage]: gret: unknown command; did you mean greet?\n"


@pytest.mark.parametrize("args", [("greet",), ("greet", "you", "--time", "2"), ("greet", "you", "--times", "x"), ()])
def test_wrong_usage_exits_with_2_and_no_traceback(run: Run, args: tuple[str, ...]) -> None:
    status, out, err = run(*args)
    assert status == "2"
    assert "Traceback" not in out + err


def test_an_error_for_the_user_is_one_line_with_its_status(run: Run) -> None:
    assert run("greet", "you", "--fail", "kosmos") == ["3", "", "error[checkpoint]: step-3 is damaged\n"]


def test_a_mistake_of_ours_is_one_line_that_says_how_to_see_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Registry:
        raise ValueError("not\n thought of")

    monkeypatch.setattr("kosmos.commands.plugins.load_plugins", fails)
    line = "error[internal]: ValueError: not thought of; run again with --debug for the traceback\n"
    assert run("plugins") == ["1", "", line]


def test_a_mistake_of_a_plugins_command_is_the_plugins(run: Run) -> None:
    said = "command 'greet' of plugin greet (acme_greet_plugin) raised ValueError: not thought of"
    assert run("greet", "you", "--fail", "bug") == ["3", "", f"error[plugin]: {said}; --debug shows the traceback\n"]


def test_too_little_memory_is_no_mistake_of_ours_and_says_what_takes_less(run: Run) -> None:
    status, _, err = run("greet", "you", "--fail", "memory")
    assert status == "4"
    assert err.startswith("error[training]: out of memory: MemoryError; take a smaller model")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args", [("--debug", "greet", "you"), ("greet", "you", "--debug"), ("greet", "--debug", "you")]
)
def test_debug_anywhere_shows_the_traceback_and_then_the_line(run: Run, args: tuple[str, ...]) -> None:
    status, _, err = run(*args, "--fail", "kosmos")
    assert status == "3"
    assert err.startswith("Traceback")
    assert err.endswith("\nerror[checkpoint]: step-3 is damaged\n")


def test_debug_can_be_set_in_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_DEBUG", "1")
    assert run("greet", "you", "--fail", "bug")[2].startswith("Traceback")
    monkeypatch.setenv("KOSMOS_DEBUG", "0")
    assert run("greet", "you", "--fail", "bug")[2].startswith("error[plugin]")


def test_debug_behind_two_dashes_is_an_argument_like_others(run: Run) -> None:
    assert run("greet", "--", "--debug") == ["0", "hello --debug\n", ""]


def test_an_interrupt_exits_with_130(run: Run) -> None:
    said = "error[interrupted]: stopped (SIGINT)\n"
    assert run("greet", "you", "--fail", "interrupt") == ["130", "", said]


def test_a_command_that_leaves_keeps_its_status(run: Run) -> None:
    assert run("greet", "you", "--fail", "leave")[0] == "5"


def test_a_command_whose_module_is_absent_names_its_plugin(run: Run) -> None:
    status, _, err = run("lost")
    assert status == "3"
    assert err.startswith("error[plugin]: command 'lost' of plugin greet (acme_greet_plugin) cannot be imported:")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "said"), [("kosmos gr", ["greet"]), ("kosmos greet --t", ["--times"]), ("kosmos tree ", ["one", "two"])]
)
def test_a_shell_completes_commands_and_options(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, said: list[str]
) -> None:
    monkeypatch.setenv("_KOSMOS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    status, out, _ = run()
    assert (status, out.split()) == ("0", said)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_KOSMOS_COMPLETE", f"source_{shell}")
    status, out, _ = run()
    assert status == "0"
    assert f"_KOSMOS_COMPLETE=complete_{shell}" in out


def test_the_version_is_that_of_core(run: Run) -> None:
    assert run("--version") == ["0", f"kosmos {kosmos.__version__}\n", ""]


def test_the_table_shows_each_plugin_and_then_each_problem() -> None:
    registry = Registry.from_modules({"gone": "acme_gone"})
    lines = plain_table(registry)
    assert lines[0] == "plugin  version  distribution  brings"
    assert lines[1].startswith("core    26.11.0  kosmos-core")
    assert lines[2] == "gone    -        -             -"
    assert lines[3] == "problem: gone (acme_gone): cannot be imported: ModuleNotFoundError: No module named 'acme_gone'"


def test_plugins_exits_with_0_even_where_some_are_broken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos.commands.plugins.load_plugins", lambda: Registry.from_modules({"gone": "acme_gone"}))
    status, out, err = run("plugins")
    assert (status, err) == ("0", "")
    assert "problem: gone (acme_gone): " in out
    shown = json.loads(run("plugins", "--json")[1])["plugins"]
    assert [plugin["name"] for plugin in shown] == ["core", "gone"]
    assert shown[1]["problems"]
    assert run("plugins", "gone")[1].startswith("gone (acme_gone)\n  problem: cannot be imported")


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (("--jsn",), "2", "error[usage]: --jsn: not expected here; see"),
        (("core", "core"), "2", "error[usage]: core: not expected; see 'kosmos plugins --help'"),
        (("cor",), "3", "error[plugin]: plugin 'cor' is not installed; did you mean core?"),
    ],
)
def test_plugins_refuses_what_it_does_not_know(run: Run, args: tuple[str, ...], status: str, message: str) -> None:
    found, _, err = run("plugins", *args)
    assert found == status
    assert message in err


def test_plugins_has_help(run: Run) -> None:
    status, out, _ = run("plugins", "--help")
    assert status == "0"
    assert "Usage: kosmos plugins [NAME] [--json]" in out


@pytest.mark.parametrize("args", ["--help", "--version", "plugins", "plugins --json", "plugins core"])
def test_quick_commands_import_nothing_heavy(args: str) -> None:
    heavy = "torch pydantic transformers numpy rich datasets timm torchaudio pytorchvideo PIL av soundfile wandb"
    script = (
        "import sys; from kosmos.cli import main; status = main(sys.argv[2:]); "
        "print([name for name in sys.argv[1].split() if name in sys.modules], status, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, heavy, *args.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "[] 0\n"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, 1),
        ({"PYTHONUTF8": "1"}, 0),
        ({"RANK": "0"}, 1),
        ({"RANK": "0", "KOSMOS_NPROC": "1"}, 0),  # its launcher has said it
        ({"_KOSMOS_COMPLETE": "complete_bash", "COMP_WORDS": "kosmos pl", "COMP_CWORD": "1"}, 0),  # at each Tab
    ],
)
def test_an_ascii_locale_is_told_once_with_what_to_do(variables: dict[str, str], said: int) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", **variables}
    command = [sys.executable, "-m", "kosmos", *([] if "COMP_WORDS" in variables else ["plugins", "core"])]
    done = subprocess.run(command, env={**os.environ, **ascii_only}, capture_output=True, text=True, check=True)
    line = "warning: the locale is ASCII, in which names and texts of other characters fail; set PYTHONUTF8=1\n"
    assert done.stderr == said * line


NOWHERE = (
    "error[plugin]: No module named 'nowhere'; install what brings it, with all that kosmos-core requires (from where "
    "it came: pip install 'kosmos-core>=26.11') or the plugin that needs it"
)


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130, "error[interrupted]: stopped (SIGINT)\n"),
        ("import nowhere", 3, f"{NOWHERE}\n"),
        ("import kosmos.nowhere", 1, "kosmos.nowhere"),
    ],
)
def test_what_comes_before_the_command_ends_in_good_order(tmp_path: Path, content: str, status: int, said: str) -> None:
    (tmp_path / "typer.py").write_text(content)
    done = started("--help", path=[tmp_path])
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == said if status != 1 else said in done.stderr


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("import nowhere")  # imported as the command runs
    done = started("train", "--output", tmp_path / "run", path=[tmp_path])
    assert (done.returncode, done.stderr.splitlines()) == (
        3,
        [NOWHERE],
    )


def test_python_m_kosmos_is_the_same_command() -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "kosmos", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("error[usage]: nothing: unknown command; commands: train, data, plan, ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("eval", "OUTPUT: is missing (folder of a run); see 'kosmos eval --help'"),
        ("eval run --max-documents x", "--max-documents: expected a whole number, got 'x'"),
        ("eval run --workers", "--workers: needs a value"),
        ("eval run --json=3", "--json: takes no value"),
        ("eval run --generate -1", "--generate: expected a number from 0 on, got '-1'"),
        ("generate run --temperature x", "--temperature: expected a number, got 'x'"),
        ("generate run --seed 99999999999999999999", "--seed: expected a number up to 18446744073709551615, got '9999"),
        (
            "export run",
            "FILE: is missing (file to write, such as model.safetensors; with --for a folder); see 'kosmos ",
        ),
        ("export run m --stp 3", "--stp: unknown option; did you mean --step?"),
        ("export run m --bogus 3", "--bogus: unknown option; options: --step, --part, --for, --base, --help"),
        ("export run m x y", "x y: not expected; see 'kosmos export --help'"),
        ("export run m x(1)", "x(1): not expected; see 'kosmos export --help'"),
        ("export run m x(s)", "x(s): not expected; see 'kosmos export --help'"),
        ("checkpoint ls", "OUTPUT: is missing (folder of a run); see 'kosmos checkpoint ls --help'"),
        ("checkpoint lst run", "lst: unknown command; did you mean ls?"),
        ("checkpoint foo run", "foo: unknown command; commands: ls, verify, prune, average, branch"),
        ("checkpoint prune run --keep-last 0", "--keep-last: expected a number from 1 on, got '0'"),
        ("train --steps x", "--steps: expected a whole number, got 'x'"),
    ],
)
def test_wrong_usage_is_one_line_in_our_words(arguments, line, capsys):
    assert cli.main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[usage]: {line}") and said.count("\n") == 1


@pytest.mark.parametrize("arguments", ["generate run --prompt x", "export run model", "chat run"])
def test_what_runs_in_one_process_is_refused_as_one_of_several(arguments, monkeypatch, capsys):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(arguments.split()) == 2
    name = arguments.split()[0].replace("generate", "generate without --data")
    line = f"error[config]: kosmos {name} runs in one process, and this is one of 2; start it without a launcher\n"
    assert capsys.readouterr().err == line


def test_what_does_not_go_with_resume_is_refused_by_what_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--resume", "runs/one", "--data", "photos"]) == 2
    told = capsys.readouterr().err
    assert "only --steps, --epochs, --nproc, --accept-plugins and FIELD.PATH=VALUE go with it" in told

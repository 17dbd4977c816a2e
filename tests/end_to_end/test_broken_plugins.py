"""Broken plugins: no run that can do without them is disturbed, and one that cannot says whose fault it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.cli import main
from support.command import SMALL, install_plugin, kosmos

FEW = (*SMALL, "--steps", 1, "data.workers=0", "evaluate.max_documents=2")
HEAD = "from kosmos import EncoderSpec, ModalitySpec, hookimpl\nKOSMOS_API = 1\n"
TWIN = "yield ModalitySpec(name='image', target='a:b', summary='', encoder='timm')"


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed plugins; a command with ``--plugins`` looks anew at what is installed."""
    folder = tmp_path_factory.mktemp("installed") / "site"
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_broken_plugins_disturb_no_run_that_does_not_need_them(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin(site, "depth", "raise RuntimeError('no\\n licence')")
    install_plugin(site, "zwilling", f"{HEAD}@hookimpl\ndef kosmos_modalities(): {TWIN}")
    install_plugin(site, "typo", f"{HEAD}@hookimpl\ndef kosmos_encoder(): return []")
    done = kosmos("train", "--output", tmp_path / "run", *FEW, path=[site])
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    everything = ("--plugins", "depth,typo,vision,zwilling")
    train = ["train", "--modalities", "depth", "--output", str(tmp_path / "other"), *map(str, FEW), *everything]
    assert main(train) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error[plugin]: modality 'depth': no installed plugin brings it")
    assert "depth (acme-depth 1.2): cannot be imported: RuntimeError: no licence" in line
    assert main(["plugins", *everything]) == 0
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem: ")]
    assert [problem.split(":")[1].split()[0] for problem in problems] == ["depth", "typo", "zwilling"]
    assert "kosmos_encoder is no hook; did you mean kosmos_encoders?" in problems[1]
    assert "modality 'image' is refused" in problems[2]


BOMB = f"""{HEAD}
@hookimpl
def kosmos_encoders():
    yield EncoderSpec(name="bomb", target="acme_bomb:Bomb", summary="")

class Bomb:
    def __init__(self):
        raise ZeroDivisionError("by\\n nothing")
"""


def test_a_component_that_raises_is_named_with_its_plugin(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin(site, "bomb", BOMB)
    choice = ("--modalities", "image", "streams.image.encoder.name=bomb", "--plugins", "bomb,vision")
    assert main(["train", *choice, "--output", str(tmp_path / "run"), *map(str, FEW)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    said = (
        "encoder 'bomb' of plugin bomb (acme-bomb 1.2) cannot be made with these options: ZeroDivisionError: by "
        "nothing (acme_bomb.py:10)"
    )
    assert line == f"error[plugin]: streams.image.encoder: {said}"
    assert not (tmp_path / "run").exists()

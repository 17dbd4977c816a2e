"""Weights that somebody has saved: found in folders, taken out of checkpoints, and nothing but tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from kosmos import ConfigError, read_weights

GIVEN = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.ones(2, dtype=torch.bfloat16)}


def check(found: dict[str, torch.Tensor]) -> None:
    assert found.keys() == GIVEN.keys()
    for name, tensor in GIVEN.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.pt", "of-my-own.safetensors"])
def test_a_file_and_the_folder_that_holds_it_are_the_same(tmp_path: Path, name: str) -> None:
    (save_file if name.endswith("safetensors") else torch.save)(GIVEN, tmp_path / name)
    check(read_weights(tmp_path / name))
    check(read_weights(str(tmp_path)))


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state"])
def test_what_a_training_script_saved_beside_them_is_left(tmp_path: Path, key: str) -> None:
    torch.save({key: GIVEN, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "last.pth")
    check(read_weights(tmp_path / "last.pth"))


class Runs:
    """Unpickled, it would write a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.file, "ran")


def test_what_holds_code_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    torch.save({"state_dict": GIVEN, "more": Runs(tmp_path / "ran")}, tmp_path / "code.pt")
    with pytest.raises(ConfigError, match=r"code\.pt: cannot be read as tensors: ") as caught:
        read_weights(tmp_path / "code.pt")
    assert "\n" not in str(caught.value) and not (tmp_path / "ran").exists()


def test_what_is_no_weights_is_one_line_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    torch.save([*GIVEN.values()], tmp_path / "list.pt")
    for name, said in {
        "text.pt": r"cannot be read as tensors: \S",
        "text.safetensors": r"cannot be read as tensors: \S",
        "epoch.pt": "something else than named tensors",
        "list.pt": "something else than named tensors",
        "absent.pt": "no such file or folder",
    }.items():
        with pytest.raises(ConfigError, match=f"{name}: .*{said}") as caught:
            read_weights(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_folder_without_weights_or_with_several_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds none of model\.safetensors, "):
        read_weights(tmp_path)
    for part in (1, 2):
        save_file(GIVEN, tmp_path / f"part-{part}.safetensors")
    with pytest.raises(ConfigError, match="holds 2 files of safetensors; name one"):
        read_weights(tmp_path)

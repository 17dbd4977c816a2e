"""PyTorch's compiler where its disk is full or not to be written to, told by its own errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from torch._inductor.exc import InductorError

from kosmos.errors import ConfigError, NoRoom
from kosmos.model.failures import raise_as_its_own
from kosmos.runtime.compiler_disk import room_for_compilers


def failed(number: int, *place: str) -> InductorError:
    return InductorError(OSError(number, os.strerror(number), *place), None)


def test_a_full_disk_is_told_with_the_folder_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(NoRoom) as told, room_for_compilers():
        raise failed(errno.ENOSPC)
    assert told.value.exit_status == 4
    assert str(told.value) == (
        f"train.compile: {tmp_path}: PyTorch's compiler cannot write there (No space left on device); make room, name "
        "a folder of another disk in TMPDIR (or TORCHINDUCTOR_CACHE_DIR), or set train.compile=false"
    )


def test_a_folder_of_somebody_else_is_a_mistake_of_settings() -> None:
    with pytest.raises(ConfigError, match=r"^train\.compile: /tmp/x: .*\(Permission denied\)"), room_for_compilers():
        raise failed(errno.EACCES, "/tmp/x")


def test_what_a_compiler_of_cpp_says_of_the_disk_counts_too() -> None:
    with pytest.raises(NoRoom), room_for_compilers():
        raise InductorError(RuntimeError("ld: final link failed: No space left on device"), None)


@pytest.mark.parametrize("error", [failed(errno.ENOENT), OSError(errno.ENOSPC, "of something else"), ValueError("x")])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, room_for_compilers():
        raise error
    assert raised.value is error


def test_a_full_disk_is_no_fault_of_the_encoder_that_is_compiled() -> None:
    raise_as_its_own(failed(errno.ENOSPC), "encoder x")  # it returns: the error is not the encoder's

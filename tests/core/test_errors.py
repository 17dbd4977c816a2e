"""An exception of somebody else as one line."""

from __future__ import annotations

import errno
import os

import pytest

from kosmos.errors import LONGEST_CAUSE, ConfigError, NoRoom, cause, unwritable


def test_a_cause_is_one_line_that_names_its_kind() -> None:
    assert cause(ValueError("two\n  lines")) == "ValueError: two lines"
    assert cause(ValueError()) == "ValueError"


def test_what_a_compiler_says_in_a_hundred_thousand_characters_is_cut_and_says_so() -> None:
    found = cause(RuntimeError("CppCompileError: " + "warning: overflow\n" * 9_000))
    assert found.startswith("RuntimeError: CppCompileError: warning: overflow warning:")
    assert found.endswith(" .. (162016 characters; KOSMOS_DEBUG=1 shows all)")
    assert len(found) < LONGEST_CAUSE + 100 and "\n" not in found


@pytest.mark.parametrize(
    ("failed", "kind", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), NoRoom, "No space left on device"),
        (ValueError(f"I/O error: full (os error {errno.EDQUOT})"), NoRoom, os.strerror(errno.EDQUOT)),
        (PermissionError(errno.EACCES, "Permission denied"), ConfigError, "Permission denied"),
        (ValueError("header too large"), ConfigError, "header too large"),
    ],
)
def test_a_full_disk_is_no_mistake_of_who_named_the_file(failed: Exception, kind: type, reason: str) -> None:
    error = unwritable("model", failed, "name another")
    assert (type(error), str(error)) == (kind, f"model: cannot write ({reason}); name another")

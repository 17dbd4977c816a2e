"""An exception of somebody else as one line."""

from __future__ import annotations

from kosmos.errors import LONGEST_CAUSE, cause


def test_a_cause_is_one_line_that_names_its_kind() -> None:
    assert cause(ValueError("two\n  lines")) == "ValueError: two lines"
    assert cause(ValueError()) == "ValueError"


def test_what_a_compiler_says_in_a_hundred_thousand_characters_is_cut_and_says_so() -> None:
    found = cause(RuntimeError("CppCompileError: " + "warning: overflow\n" * 9_000))
    assert found.startswith("RuntimeError: CppCompileError: warning: overflow warning:")
    assert found.endswith(" .. (162016 characters; KOSMOS_DEBUG=1 shows all)")
    assert len(found) < LONGEST_CAUSE + 100 and "\n" not in found

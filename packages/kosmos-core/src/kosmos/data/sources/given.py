"""Documents that were given in Python: a run file notes them under a name that nothing can be opened by."""

from __future__ import annotations

from kosmos.errors import DataError

SPLIT = "Documents.split makes both of one"
"""Where what is held out comes from, of documents that are given."""
NOTED = " (given to train_model)"
"""How the path of such a source ends."""


def noted(name: str) -> str:
    """What stands in a run file in place of the path of a source that was given."""
    return f"{name}{NOTED}"


def is_noted(path: str) -> bool:
    """Whether a path of a run file is what ``noted`` gave."""
    return path.endswith(NOTED)


def refuse_noted(path: str) -> None:
    """Raises DataError, which says what to do, where a path is what ``noted`` gave."""
    if is_noted(path):
        raise DataError(
            f"data {path!r}: these documents were given in Python, and no file has them; to go on with the run, give "
            "them again (resume_run(output, sources=..., held_out=...)), and to score its model give the source itself "
            "(score(composition, [source])), or name other data (kosmos eval OUTPUT --data PATH)"
        )

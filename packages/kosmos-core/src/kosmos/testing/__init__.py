"""The conformance kit: what a plugin promises, checked one promise at a time.

For pytest, complete:

    import pytest
    from kosmos.testing import promises_of

    @pytest.mark.parametrize("promise", promises_of("kosmos-depth"), ids=str)
    def test_promise(promise):
        promise.check()

and as a score card, which ``kosmos plugin test kosmos-depth`` prints: ``check_distribution("kosmos-depth")``.
Needs the extra ``kosmos-core[testing]``. What cannot be derived from the plugin is stated in ``Conditions``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    **dict.fromkeys("promises_of check_distribution check_plugin".split(), "kosmos.testing.check"),
    **dict.fromkeys("Promise BrokenPromise Verdict".split(), "kosmos.testing.promise"),
    "ScoreCard": "kosmos.testing.scorecard",
    "Conditions": "kosmos.testing.conditions",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:  # when first used: the child processes of the kit need no torch
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'kosmos.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_PUBLIC)


if TYPE_CHECKING:
    from kosmos.testing.check import check_distribution as check_distribution
    from kosmos.testing.check import check_plugin as check_plugin
    from kosmos.testing.check import promises_of as promises_of
    from kosmos.testing.conditions import Conditions as Conditions
    from kosmos.testing.promise import BrokenPromise as BrokenPromise
    from kosmos.testing.promise import Promise as Promise
    from kosmos.testing.promise import Verdict as Verdict
    from kosmos.testing.scorecard import ScoreCard as ScoreCard

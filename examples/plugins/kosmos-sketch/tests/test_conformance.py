"""Everything that a Kosmos plugin promises, with the kit of the core."""

from __future__ import annotations

import pytest

from kosmos.testing import Promise, promises_of


@pytest.mark.parametrize("promise", promises_of("kosmos-sketch"), ids=str)
def test_the_plugin_keeps_its_promise(promise: Promise) -> None:
    promise.check()

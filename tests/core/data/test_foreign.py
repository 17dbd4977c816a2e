"""What code of plugins raises concerns one sample."""

from __future__ import annotations

import pytest

from kosmos.data.foreign import calling
from kosmos.errors import ConfigError, SampleError


class Decoder:
    """Of a plugin."""


@pytest.mark.parametrize(
    ("raised", "said"),
    [(KeyError("x"), r"Decoder\.decode raised KeyError: 'x'"), (SystemExit(3), "raised SystemExit: 3")],
)
def test_what_a_plugin_raises_is_an_error_of_the_sample(raised, said):
    with pytest.raises(SampleError, match=said), calling(Decoder(), "decode"):
        raise raised


@pytest.mark.parametrize("raised", [MemoryError(), KeyboardInterrupt(), ConfigError("ours")])
def test_what_concerns_the_run_passes(raised):
    with pytest.raises(type(raised)), calling(Decoder(), "decode"):
        raise raised

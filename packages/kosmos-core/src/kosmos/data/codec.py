"""What a codec has to say: the numbers of a medium that a model is to write, and the medium of numbers.

No torch here: media are encoded in data workers and in tools that never load a model.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media

MOST_CODES = 1 << 20
"""A vocabulary of more would be an embedding of gigabytes."""


class Encoded(NamedTuple):
    """A medium as a file."""

    content: bytes
    suffix: str
    """Of the file's name, with the dot."""


class Codec(Protocol):
    """Encodes the media of one modality as numbers, and decodes numbers that a model wrote.

    Picklable: data workers hold one each. What is heavy, such as weights, is read at the first medium and left behind
    when pickled. Beside these it may have:

    - ``identity``, a text that is another where its numbers mean other media, or media become other numbers, though its
      options are the same, such as a digest of its weights: a run does not go on with another codec than it began with.
      Where ``weights`` lie, an option of that name, then counts no more.
    - ``books``, where each stretch of a medium has several codes, as of residual quantizers: how many. The codes then
      come in turn of as many equal parts of ``size``, and a model is let write nothing else.
    - ``length``, where all media have as many codes: how many.
    - ``keeps``, False where encoding takes no longer than reading what is kept of it (``kosmos.data.kept_codes``).
    """

    size: int
    """Its numbers are from 0 up to this, each a token of the vocabulary."""

    def encode(self, media: Media) -> NDArray[np.integer[Any]]:
        """The numbers of a medium, [n], at least one; the same each time.

        Raises:
            SampleError: the medium is broken or over a limit.
        """
        ...

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """The medium of such numbers, [n], as a file that the modality reads.

        Raises:
            SampleError: they are no medium; a model may write anything.
        """
        ...

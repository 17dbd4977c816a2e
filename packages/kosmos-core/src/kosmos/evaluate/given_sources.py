"""What is given as documents to score: sources, and what to say of what is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kosmos.data.document import Document, Source
from kosmos.errors import ConfigError

_A_SOURCE = "name, __len__ and document(index)"
_OF_DOCUMENTS = "; Documents(name, [...]) is one of a list of Document"


def _shown(given: object) -> str:
    return " ".join(repr(given).split())[:60]


def _instead(given: object) -> str:
    """What to do with what is no source, where that can be told."""
    first = given[0] if isinstance(given, list | tuple) and given else given
    if isinstance(first, Document):
        return _OF_DOCUMENTS
    if isinstance(first, Mapping) or hasattr(given, "save_to_disk"):
        return (
            "; open_rows(config, rows) reads rows, such as those of a datasets.Dataset, as those of a file are read; "
            "Documents(name, [...]) is a source of a list of Document"
        )
    return ""


def check_source(source: object) -> None:
    """Raises ConfigError where it is a document, a path, or several sources."""
    if not _is_source(source):
        its = ", each of them alone" if isinstance(source, list | tuple) else ""
        first = source[0] if isinstance(source, list | tuple) and source else source
        raise ConfigError(
            f"source: expected one Source ({_A_SOURCE}), such as open_sources gives a list of{its}, got "
            f"{_shown(source)}{_instead(first)}"
        )


def check_sources(sources: Sequence[Source], name: str = "sources") -> None:
    """Raises ConfigError where they are documents, a path, or one source."""
    listed = isinstance(sources, Sequence) and not isinstance(sources, str)
    wrong = [one for one in sources if not _is_source(one)] if listed else [sources]
    if wrong:
        raise ConfigError(
            f"{name}: expected a list of Sources ({_A_SOURCE}), such as open_sources gives, got {_shown(wrong[0])}"
            f"{_instead(wrong[0])}"
        )
    names = Counter(source.name for source in sources)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ConfigError(f"{name}: two are called {twice[0]!r}; give each a name of its own, or score them apart")


def _is_source(given: object) -> bool:
    return all(hasattr(given, part) for part in ("name", "document", "__len__"))

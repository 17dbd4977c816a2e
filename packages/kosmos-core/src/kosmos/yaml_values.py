"""YAML as plain values, of which no few bytes become many: run files may come from others."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

MOST_DEPTH = 64
"""Levels of lists and mappings within each other. Run files have some six."""
MOST_REPEATED = 100_000
"""Values more that aliases may stand for than are written: nine lines of nine aliases each stand for 10^9."""
MOST_BITS = 4096
"""Of a whole number: Python does not write out much longer ones."""


class Refused(yaml.MarkedYAMLError):
    """It is YAML, and says what nobody can use; ``problem`` says what."""

    problem: str


class SaidTwice(yaml.YAMLError):
    """A key stands twice in one mapping."""

    def __init__(self, key: str, first: yaml.Mark, again: yaml.Mark) -> None:
        self.key, self.lines = key, (first.line + 1, again.line + 1)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML keeps the last without a word."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        self._depth = getattr(self, "_depth", 0) + 1
        if self._depth > MOST_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _refused(f"lists and mappings within each other, over {MOST_DEPTH} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where values are made: by then what ``<<`` merges stands among a mapping's own keys.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        known: dict[tuple[str, str], yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                first = known.setdefault((key.tag, key.value), key.start_mark)
                if first is not key.start_mark:
                    raise SaidTwice(key.value, first, key.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            value = super().construct_object(node, deep)
        # What PyYAML lets through of ``!!int x``, of 2024-13-45 and of 5,000 digits.
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
            kind = node.tag.rpartition(":")[2]
            said = repr(node.value if len(node.value) <= 40 else f"{node.value[:40]}...")
            raise _refused(
                f"{said} looks like a YAML {kind} and is none; text needs quotes", node.start_mark
            ) from error
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise _refused(f"a number of over {MOST_BITS} bits", node.start_mark)
        return value


def load_yaml(text: str) -> Any:
    """The value of a text.

    Raises:
        YAMLError: it is none, says a key twice (``SaidTwice``), or stands for too much (``Refused``).
    """
    return deepcopy(_loaded(text))


@lru_cache(maxsize=32)
def _loaded(text: str) -> Any:
    """A command reads the file of its run several times, and each takes PyYAML 5 ms and more."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        known: dict[int, int] = {}
        if _expanded(node, known) - len(known) > MOST_REPEATED:
            raise _refused(
                f"its aliases (*NAME) stand for over {MOST_REPEATED:,} values; write out what is meant", None
            )
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """Values that a node stands for, each alias written out.

    Args:
        known: gets that of each node, by its identity; 0 of one that is being counted.
    """
    if (count := known.get(id(node))) is not None:
        if not count:
            raise _refused("an alias (*NAME) stands within what it stands for", node.start_mark)
        return count
    known[id(node)] = 0
    within = node.value if isinstance(node, yaml.SequenceNode) else ()
    if isinstance(node, yaml.MappingNode):
        within = [part for pair in node.value for part in pair]
    known[id(node)] = count = 1 + sum(_expanded(part, known) for part in within)
    return count


def _refused(problem: str, mark: yaml.Mark | None) -> Refused:
    return Refused(problem=problem, problem_mark=mark)

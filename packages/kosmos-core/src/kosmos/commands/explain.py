"""``kosmos explain``."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Annotated

import typer

from kosmos import collector
from kosmos.plugins import load_plugins
from kosmos.reference.entries import Entry
from kosmos.reference.topics import Topic, find, overview

WIDTH = 100
"""Of lines that go into a file or a pipe."""
INDENT = "  "


def explain(
    name: Annotated[
        str | None,
        typer.Argument(help="Such as train.clip_norm, streams.image.encoder, lion, timm.model, quarantine-full, mfu."),
    ] = None,
) -> None:
    """Say what a name means: a field of the run file, a component of any installed plugin with its options, the code
    of an error, a figure of a run such as data_wait_s or goodput, or what another trainer calls one.

    Without a name: all that can be asked for.
    """
    registry = load_plugins()
    topics = overview(registry) if name is None else find(name, registry)
    collector.imported()
    collector.go_on()
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 120)
    print("\n\n".join("\n".join(_lines(topic, width)) for topic in topics))


def _lines(topic: Topic, width: int) -> Iterator[str]:
    yield topic.title
    for paragraph in topic.about.split("\n\n"):
        yield from _wrapped(paragraph, width, INDENT)
    for entry in topic.entries:
        yield from _entry(entry, width)
    if topic.more:
        yield from _wrapped(topic.more, width, INDENT)


def _entry(entry: Entry, width: int) -> Iterator[str]:
    if not entry.value:
        yield from _wrapped(f"{entry.name}: {entry.meaning}", width, INDENT, 2 * INDENT)
        return
    yield from _wrapped(f"{entry.name}: {entry.takes}", width, INDENT, 3 * INDENT)
    yield from _wrapped(entry.meaning, width, 3 * INDENT)


def _wrapped(text: str, width: int, indent: str, further: str | None = None) -> list[str]:
    """Text as the docs write it, without the marks of code.

    Args:
        further: indent of all lines but the first; None is that of the first.
    """
    plain = " ".join(text.split()).replace("``", "").replace("`", "")
    behind = indent if further is None else further
    return textwrap.wrap(plain, max(width, 40), initial_indent=indent, subsequent_indent=behind)

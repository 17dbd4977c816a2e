"""Special tokens that every run has; modalities add their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kosmos.errors import ConfigError, PluginError

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CORE_MARKS = (PAD, BOS, EOS, SYSTEM, USER, ASSISTANT, END)

MARK = re.compile(r"</?[^\s<>]+>")
"""What marks look like."""


def faults_of(marks: Iterable[str]) -> Iterator[str]:
    """What is wrong with the marks of a modality, in words."""
    given = list(marks)
    for mark in dict.fromkeys(given):
        if mark in CORE_MARKS:
            yield f"{mark!r} is a mark of every run"
        elif not MARK.fullmatch(mark):
            yield f"{mark!r} does not look like <name> or </name>"
        elif given.count(mark) > 1:
            yield f"{mark!r} is among them twice"


def check_marks(marks: Mapping[str, Iterable[str]]) -> None:
    """Check the marks of the modalities of a run that begins. One that was begun before there was this goes on.

    Args:
        marks: of each modality.

    Raises:
        PluginError: some do not look like marks, or are core's.
        ConfigError: two modalities have one: the model could not tell their media apart.
    """
    owners: dict[str, str] = {}
    for modality, own in marks.items():
        for fault in faults_of(own):
            raise PluginError(f"modality {modality!r}: marks: {fault}; its plugin has to give it another")
        for mark in own:
            if (other := owners.setdefault(mark, modality)) != modality:
                raise ConfigError(
                    f"modalities: {other} and {modality} both have the mark {mark}, and the model could not tell which "
                    "is meant; leave one of them out, or give it marks of its own in its plugin"
                )

"""Turns of a chat as a published model has learned them, spelled by the special tokens of its tokenizer. No torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kosmos.chats import CONTENT, LAYOUTS
from kosmos.data.document import Document, Mark
from kosmos.data.marks import ASSISTANT, BOS, END, SYSTEM, USER
from kosmos.data.tokenizer import Tokenizer
from kosmos.errors import ConfigError, SampleError
from kosmos.names import listed

ROLES = {SYSTEM: "system", USER: "user", ASSISTANT: "assistant"}
"""The mark of a role to its name."""
_WHERE = "tokenizer.turns"


@dataclass(frozen=True)
class Turns:
    """The tokens around the turns of a chat, in place of ``<s>``, a role's mark, ``<|end|>`` and ``</s>``."""

    begin: tuple[int, ...]
    """In front of a chat."""
    around: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    """The mark of a role to the tokens in front of and behind what is said."""

    @property
    def stop(self) -> int:
        """Ends what the assistant says: learned with it, and generation ends at it."""
        return self.around[ASSISTANT][1][0]

    def of(self, mark: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a role. Raises SampleError where such turns are not spelled."""
        if mark not in self.around:
            raise SampleError(
                f"a turn of the {ROLES[mark]}, which {_WHERE} does not spell (its model has learned none); put the "
                f"text into the user's turn, or say {_WHERE}.{ROLES[mark]}"
            )
        return self.around[mark]


def is_chat(document: Document) -> bool:
    """Whether the document has turns."""
    return any(isinstance(segment, Mark) and segment.name in ROLES for segment in document.segments)


def spell_turns(texts: Mapping[str, str | None], tokenizer: Tokenizer) -> Turns:
    """The tokens of ``texts``, in which special tokens of the tokenizer are read as such.

    Args:
        texts: as the fields of ``tokenizer.turns``: ``begin``, and of each role a text with one ``{}``.

    Raises:
        ConfigError: the assistant's turn does not end with a special token, at which generation could stop.
    """
    around = {}
    for mark, role in ROLES.items():
        if text := texts.get(role):
            before, _, after = text.partition(CONTENT)
            around[mark] = tuple(_ids(before, tokenizer)), tuple(_ids(after, tokenizer))
    special = tokenizer.special_ids
    behind = around[ASSISTANT][1]
    if not behind or behind[0] not in special.values():
        raise ConfigError(
            f"{_WHERE}.assistant: expected a special token of the tokenizer right behind {CONTENT}, at which an answer "
            f"ends, got {texts['assistant']!r}; its special tokens are {listed(sorted(special), at_most=12)}"
        )
    return Turns(tuple(_ids(texts.get("begin") or "", tokenizer)), around)


def _ids(text: str, tokenizer: Tokenizer) -> list[int]:
    special = tokenizer.special_ids
    longest_first = sorted(special, key=len, reverse=True)
    ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text):
        ids += [special[part]] if part in special else tokenizer.encode(part)
    return ids


TEMPLATE = "chat_template.jinja"
"""In the folder of a run's tokenizer: as transformers lays out the same chats, of text alone."""


def template(texts: Mapping[str, str | None] | None, tokenizer: Tokenizer) -> str:
    """A template by which transformers gives chats the tokens that they have here.

    Args:
        texts: as for ``spell_turns``; None is between the marks.
    """
    if texts is None:
        names = {i: name for name, i in tokenizer.special_ids.items()}
        begin = names.get(tokenizer.mark_id(BOS), BOS)
        texts = {"begin": begin, **{role: f"{mark}{CONTENT}{END}" for mark, role in ROLES.items()}}
    around = {role: text.partition(CONTENT) for role in ROLES.values() if (text := texts.get(role))}
    begin, opened = (json.dumps(text) for text in (texts.get("begin") or "", around["assistant"][0]))
    turns = "".join(
        f"{'{% elif' if number else '{% if'} m.role == '{role}' %}}"
        f"{{{{ {json.dumps(before)} + m.content + {json.dumps(after)} }}}}"
        for number, (role, (before, _, after)) in enumerate(around.items())
    )
    none = "{% else %}{{ raise_exception('a turn of ' + m.role + ' is not spelled') }}{% endif %}"
    ready = f"{{% if add_generation_prompt %}}{{{{ {opened} }}}}{{% endif %}}"
    return f"{{{{ {begin} }}}}{{% for m in messages %}}{turns}{none}{{% endfor %}}{ready}"


def fitting(tokenizer: Tokenizer) -> str | None:
    """The known layout whose special tokens the tokenizer has, which its model has learned then, as a rule."""
    for name, texts in LAYOUTS.items():
        wanted = {*re.findall(r"<[^<>\s]+>", "".join(texts.values()))}
        if wanted <= tokenizer.special_ids.keys():
            return name
    return None

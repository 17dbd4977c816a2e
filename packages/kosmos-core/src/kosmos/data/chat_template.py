"""The chats of a run for transformers: a template of its own by which they get the tokens that they have here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kosmos.data.marks import ASSISTANT, BOS, END, SYSTEM, USER
from kosmos.data.sources.tools import ANSWER, CALL, OFFER
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.turns import ROLES, Part, Turns

TEMPLATE = "chat_template.jinja"
"""In the folder of a run's tokenizer: as transformers lays out the same chats, of text alone."""


_TEXT_ALONE = "{% if m.content is not string %}{{ raise_exception('contents are text here') }}{% endif %}"


def template(
    turns: Turns | None, tokenizer: Tokenizer, *, tools: bool = True, places: Mapping[str, str] | None = None
) -> str:
    """A template by which transformers gives chats the tokens that they have here, up to the last turn.

    Args:
        turns: None lays them out between the marks.
        tools: whether it knows of tools; those of earlier versions did not.
        places: modality to the special tokens that stand for a medium, where contents may be lists with media.
    """
    names = {i: name for name, i in tokenizer.special_ids.items()}
    if turns is None:
        ids = {mark: tokenizer.mark_id(mark) for mark in (BOS, END, *ROLES)}
        turns = Turns((ids[BOS],), {mark: ((ids[mark],), (ids[END],)) for mark in ROLES})

    def spelled(parts: Iterable[Part]) -> str:
        return _quoted("".join(names[part] if isinstance(part, int) else part for part in parts))

    around = {mark: (spelled(before), spelled(after)) for mark, (before, after) in turns.around.items()}
    content = "said.text" if tools else "m.content"
    said = f"({content} | trim)" if turns.trim else content
    cases = "".join(
        f"{'{% elif' if number else '{% if'} m.role == '{ROLES[mark]}' %}}{{{{ {before} + {said} + {after} }}}}"
        for number, (mark, (before, after)) in enumerate(around.items())
    )
    other = "{% else %}{{ raise_exception('a turn of ' + m.role + ' is not spelled') }}{% endif %}"
    ready = f"{{% if add_generation_prompt %}}{{{{ {around[ASSISTANT][0]} }}}}{{% endif %}}"
    begin = f"{{{{ {spelled(turns.begin)} }}}}"
    if not tools:
        return f"{begin}{{% for m in messages %}}{_TEXT_ALONE}{cases}{other}{{% endfor %}}{ready}"
    offered = _offer() + _system_of_tools(around.get(SYSTEM))
    answers = _answers(*around[USER]) if USER in around else ""
    said_by = _said(places or {})
    turn = f"{answers}{{% if m.role != 'tool' %}}{said_by}{cases}{other}{{% endif %}}"
    return f"{begin}{offered}{{% for m in messages %}}{turn}{{% endfor %}}{ready}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _offer() -> str:
    """The text that offers tools, as ``offer.text``, which is empty where there are none."""
    whole = "(t if t.function is defined else {'type': 'function', 'function': t})"
    line = f"{_quoted(chr(10))} + ({whole} | tojson)"
    each = f"{{% for t in tools %}}{{% set offer.text = offer.text + {line} %}}{{% endfor %}}"
    begin, end = (f"{{% set offer.text = offer.text + {_quoted(text)} %}}" for text in OFFER)
    return f"{{% set offer = namespace(text='') %}}{{% if tools %}}{begin}{each}{end}{{% endif %}}"


def _system_of_tools(around: tuple[str, str] | None) -> str:
    """The system's turn of a chat that has none, where tools are offered."""
    if around is None:
        return "{% if tools %}{{ raise_exception('tools want a turn of system, which is not spelled') }}{% endif %}"
    before, after = around
    lacks = "{% if tools and messages[0].role != 'system' %}"
    return f"{lacks}{{{{ {before} + offer.text + {after} }}}}{{% endif %}}"


def _said(places: Mapping[str, str]) -> str:
    """What a turn says, as ``said.text``: its content, its calls, and of the system's the tools that are offered."""
    name, arguments = "(f.name | tojson)", "(f.arguments if f.arguments is string else f.arguments | tojson)"
    call = " + ".join(
        [_quoted(CALL[0] + '{"name": '), name, _quoted(', "arguments": '), arguments, _quoted("}" + CALL[1])]
    )
    apart = f"({_quoted(chr(10))} if said.text else '')"
    content = (
        "{% if m.content is not string and not (m.tool_calls and not m.content) %}"
        "{{ raise_exception('contents are text here') }}{% endif %}"
        "{% set said = namespace(text=m.content or '') %}"
    )
    return (
        f"{_parts_said(places) if places else content}"
        "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}"
        f"{{% set said.text = said.text + {apart} + {call} %}}{{% endfor %}}"
        "{% if loop.first and m.role == 'system' and tools %}"
        f"{{% set said.text = said.text + ({_quoted(chr(10) * 2)} if said.text else '') + offer.text %}}{{% endif %}}"
    )


def _parts_said(places: Mapping[str, str]) -> str:
    """The content of a turn, which may be a list of texts and media."""
    media = "".join(
        f"{{% elif part.type == {_quoted(modality)} %}}{{% set said.text = said.text + {_quoted(place)} %}}"
        for modality, place in places.items()
    )
    return (
        "{% set said = namespace(text='') %}{% if m.content is string %}{% set said.text = m.content %}"
        "{% else %}{% for part in m.content or [] %}"
        "{% if part.type == 'text' %}{% set said.text = said.text + part.text %}"
        f"{media}{{% else %}}{{{{ raise_exception('no ' + part.type + ' is read here') }}}}{{% endif %}}"
        "{% endfor %}{% endif %}"
    )


def _answers(before: str, after: str) -> str:
    """What tools have answered: those in a row are one turn of the user, between ``before`` and ``after``."""
    first = "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    last = "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
    answer = f"{_quoted(ANSWER[0])} + m.content + {_quoted(ANSWER[1])}"
    return (
        f"{{% if m.role == 'tool' %}}{_TEXT_ALONE}"
        f"{first}{{{{ {before} }}}}{{% else %}}{{{{ {_quoted(chr(10))} }}}}{{% endif %}}"
        f"{{{{ {answer} }}}}{last}{{{{ {after} }}}}{{% endif %}}{{% endif %}}"
    )


def save_tokenizer(
    tokenizer: Tokenizer, turns: Turns | None, folder: Path, places: Mapping[str, str] | None = None
) -> None:
    """Write a tokenizer, with how chats are laid out where transformers reads it; makes the folder. ``places`` as of
    ``template``."""
    tokenizer.save(folder)
    if (folder / "tokenizer.json").exists():
        (folder / TEMPLATE).write_text(template(turns, tokenizer, places=places), encoding="utf-8")

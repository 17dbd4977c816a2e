"""Rows that ask in one column and answer in another, as Alpaca, ms-swift, TRL and The Cauldron have them.

| columns | from | becomes |
|---|---|---|
| ``instruction``, ``input``, ``output`` | Alpaca, LLaMA-Factory | a chat |
| ``query``, ``response`` | ms-swift | a chat |
| ``question``, ``answer`` | benchmarks | a chat, unless what belongs to the question stands beside it |
| ``question``, ``answers`` | TextVQA, DocVQA, VQAv2 | likewise, of the most frequent of several right answers |
| ``texts``: a list of ``user`` and ``assistant`` | The Cauldron, FineVision | a chat |
| ``prompt``, ``completion`` | TRL | a text that goes on |

An answer that is an object becomes its JSON, unless a text in it seems to be the answer. ``history`` of chats holds
earlier turns, each a list of two. ``input`` may be missing, and so may the last answer of a row that is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from kosmos.data.document import Text
from kosmos.data.sources.columns import BY_TEMPLATE, Row, is_empty, kind_of, text_value, top_column
from kosmos.data.sources.json_written import json_of
from kosmos.data.sources.right_answers import ANSWERS, learned_answer, names_answers, right_answers, with_references
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.splits import with_meaning
from kosmos.errors import SampleError
from kosmos.names import listed

QUESTION = "question"
ASKS = {"instruction": "output", "query": "response", "prompt": "completion", QUESTION: "answer"}
"""Role that asks to the role that answers; a row of the form has both."""
LETTERS = tuple(ascii_uppercase)
"""Columns of an answer each, which a question offers."""
_NUMBERED = [
    *(f"{one}{between}" for one in ("option", "choice", "ending") for between in (" ", "_", "")),
    "answer",
    "ans",
    "a",
]
_LETTERED = [f"{one}{between}" for one in ("option", "choice") for between in (" ", "_", "")]
SERIES = (
    LETTERS,
    *(tuple(f"{one}{n}" for n in range(len(LETTERS))) for one in _NUMBERED),
    *(tuple(f"{one}{n}" for n in letters) for one in _LETTERED for letters in (ascii_uppercase, ascii_lowercase)),
)
"""Columns of an answer each, as benchmarks call them: a row that offers several has the first two of a series."""
_OFFERED = (f"{one}{between}{n}" for one in ("option", "choice") for between in ("", "_") for n in "abcdeABCDE012345")
BELONG = frozenset((
    *"text context contexts passage passages article support story document documents paragraph background".split(),
    *"hint lecture content dialogue dialog conversation instruction query prompt problem table".split(),
    *("choices", "options", "endings", *LETTERS[:2], *_OFFERED),
))  # fmt: skip
"""Columns beside which ``question`` is no form: it is not all that is asked, and nobody has said what else is."""
MAY_BELONG = frozenset(("candidates", *(name for series in SERIES for name in series[:2]))) - BELONG
"""Columns that are told of beside ``question``, and no more: runs have learned from it as a form beside them."""
TELL = frozenset("gold answer_index answer_idx answerKey answer_key label target correct correct_answer".split())
"""The commonest columns that tell the right one of several answers."""
_TELLS = re.compile(r".*(?:correct|gold|label).*|target|answer(?:idx|index|id|key|no|num|number)")
TEXTS = "texts"
GOES_ON = "prompt"
"""The form that is no chat."""
LIKE_ASKS = ("question", "query", "instruction", "prompt", "problem", "input")
LIKE_ANSWERS = ("answer", "response", "output", "solution", "completion", ANSWERS)
"""What others call the columns of a question and its answer."""
LIKE_CONTEXTS = frozenset((
    *"context passage article support story document paragraph background".split(),
    *"hint lecture content dialogue dialog".split(),
))  # fmt: skip
"""Those of ``BELONG`` that may be the text that a question is about, which ``input`` names."""
LIKE_TEXTS = (
    *"sentence transcription transcript transcripts caption description content utterance".split(),
    *"normalized_text raw_text text_normalized".split(),
)  # fmt: skip
"""What others call a text, the likeliest first."""
ROLES = (TEXTS, *ASKS, *ASKS.values(), ANSWERS, "input", "history")

Turn = dict[str, Any]


def telling(columns: Iterable[str]) -> set[str]:
    """Columns that tell the right one of several answers, beside which ``answers`` may be what is offered."""
    return {column for column in columns if _TELLS.fullmatch(re.sub(r"[\W_]", "", column).lower())}


def likely_columns(columns: Collection[str], named: Mapping[str, str] | None = None) -> str:
    """``columns`` by which a table becomes questions and answers; empty where it does not look like any.

    Args:
        columns: keys of a row, where it is known what stands in them.
        named: roles and modalities that are named already.
    """
    if not (pair := likely_pair(columns)):
        return ""
    told = [top_column(path, columns) for path in pair.values()]
    left = [name for name in _beside(columns) if name not in told]
    shown = f", without {listed(left, at_most=4)}: a template shows more" if left else ""
    return f"{written({**(named or {}), **pair})}{shown}"


def likely_pair(columns: Collection[str]) -> dict[str, str]:
    """Role to column of a question and its answer, and of the text that it is about; empty as of ``likely_columns``."""
    ask, answer = (likely(columns, names) for names in (LIKE_ASKS, LIKE_ANSWERS))
    if not ask or not answer:
        return {}
    texts = [path for name in _beside(columns) if name in LIKE_CONTEXTS and (path := likely(columns, [name]))]
    # A column ``input`` is read into the question as it is.
    is_one = (
        len(texts) == 1 and not _is_list(columns, texts[0]) and ("input" not in columns or "input" in (ask, answer))
    )
    return {"query": ask, **({"input": texts[0]} if is_one else {}), "response": answer}


def written(columns: Mapping[str, str]) -> str:
    """``columns: {text: caption}``."""
    named = with_references(with_meaning(columns)).items()
    shown = (f"{role}: {c}" if isinstance(c, str) else f"{role}: [{', '.join(c)}]" for role, c in named)
    return f"columns: {{{', '.join(shown)}}}"


def _beside(columns: Collection[str]) -> list[str]:
    """What may belong to a question."""
    return [name for name in columns if name in BELONG and name not in LIKE_ASKS]


def _is_list(columns: Collection[str], name: str) -> bool:
    """Whether it is known that a column holds a list."""
    row = columns if isinstance(columns, Mapping) else getattr(columns, "mapping", {})
    return isinstance(row.get(name), list | tuple)


def likely(columns: Collection[str], names: Iterable[str]) -> str | None:
    """The first of some names that is a column, or a path to a text within, where that holds an object."""
    row = columns if isinstance(columns, Mapping) else getattr(columns, "mapping", {})  # of its keys
    there = (_text_in(row.get(name), name) for name in names if name in columns)
    return next(filter(None, there), None)


def _text_in(value: Any, name: str) -> str | None:
    if not isinstance(value, Mapping):
        return name
    texts = [key for key, inner in value.items() if isinstance(inner, str) and not set(".[]") & set(key)]
    if name in LIKE_ANSWERS and (name == ANSWERS or not texts):
        return name  # of which one answer is learned, or the JSON
    key = next((key for key in _LIKE_WITHIN if key in texts), next(iter(texts), None))
    return None if key is None else f"{name}.{key}"


_LIKE_WITHIN = ("text", "en", "question", "answer", "content", "value")
"""Of an object in the place of a text, what may be the text, the likeliest first."""


def half_form(columns: Collection[str], column: Callable[[str], str]) -> str:
    """What is missing of a question and its answer where only the other is there; empty where neither is, or both are.

    Args:
        column: that stands for a role.
    """
    for ask, answer in ASKS.items():
        asks, answers = column(ask), column(answer)
        if (asks in columns) != (answers in columns):
            missing, there = (answers, asks) if asks in columns else (asks, answers)
            return f"no {missing!r} beside {there!r}"
    return ""


def answer_of(ask: str, there: Callable[[str], bool], columns: Collection[str], named: Collection[str] = ()) -> str:
    """The role that answers one that asks: its own, or ``answers`` where a question has none, or where it is named.

    Args:
        there: whether the row has a column for a role.
        columns: of the row.
        named: roles that ``columns`` of a source names.
    """
    if ANSWERS in named and there(ANSWERS):
        return ANSWERS
    may_answer = ask == QUESTION and not there(ASKS[ask]) and not telling(columns)
    return ANSWERS if may_answer and there(ANSWERS) else ASKS[ask]


def form_of(answered: Callable[[str], bool], holds: Callable[[str], bool], columns: Collection[str]) -> str | None:
    """The role that tells a row's form, or None where it has none of these.

    Args:
        answered: whether the row has a column for what answers a role, or needs none.
        holds: whether it holds something for it.
        columns: of the row.
    """
    if holds(TEXTS):
        return TEXTS
    found = (ask for ask in ASKS if holds(ask) and answered(ask))
    return next((ask for ask in found if ask != QUESTION or BELONG.isdisjoint(columns)), None)


def turns(
    form: str,
    value: Callable[[str], Any],
    column: Callable[[str], str],
    answer: str = "",
    *,
    asked: bool = False,
    row: Row,
) -> list[Turn]:
    """A row's chat in the words of the OpenAI API.

    Args:
        form: as ``form_of`` tells it, but for ``prompt``.
        answer: the role that answers it, as ``answer_of`` tells it; nothing of ``texts``.
        value: what the row holds for a role, None where it has none.
        column: what errors call a role.
        asked: whether the last answer may be missing, and is empty then.
        row: all of it.

    Raises:
        SampleError: a turn is no text, or an answer is empty.
    """
    if form == TEXTS:
        pairs = list(_pairs(value(TEXTS), column(TEXTS), asked=asked))
    else:
        question = text_value(value(form), column(form), BY_TEMPLATE)
        is_taken = column("input") in (column(form), column(answer)) and not is_read_before()
        more = None if is_taken else value("input")
        if more not in (None, ""):
            question = "\n".join(part for part in (question, text_value(more, column("input"), BY_TEMPLATE)) if part)
        said = _answer(answer, value, column, asked=asked, row=row)
        pairs = [*_history(value("history"), column("history")), (question, said)]
    return [
        {"role": role, "content": content}
        for pair in pairs
        for role, content in zip(("user", "assistant"), pair, strict=True)
    ]


def going_on(
    value: Callable[[str], Any], column: Callable[[str], str], answer: str, *, asked: bool = False, row: Row
) -> tuple[Text] | tuple[Text, Text]:
    """A prompt and what is learned to follow it, if anything does; arguments and errors as of ``turns``."""
    prompt = Text(text_value(value(GOES_ON), column(GOES_ON), BY_TEMPLATE))
    said = _answer(answer, value, column, asked=asked, row=row)
    return (prompt, Text(said, train=True)) if said else (prompt,)


def _answer(role: str, value: Callable[[str], Any], column: Callable[[str], str], *, asked: bool, row: Row) -> str:
    held, name = value(role), column(role)
    is_one_of_several = names_answers(name, {ANSWERS: column(ANSWERS)})
    if asked and (is_empty(held) or (is_one_of_several and not any(map(str.strip, right_answers(held, name))))):
        return ""
    if is_one_of_several:
        return _not_empty(learned_answer(held, name), name)
    if isinstance(held, Mapping) and held:
        written = json_of(row, name, _unmeant(held, name, role))
        return written if asked else _not_empty(written, name)
    return _not_empty(text_value(held, name, BY_TEMPLATE), name)


def _unmeant(held: Mapping[str, Any], name: str, role: str) -> Mapping[str, Any]:
    """An object in the place of an answer. Raises SampleError where it stands for something else than itself."""
    keys = {key for key, value in held.items() if value is not None}
    if (key := next((key for key in ("text", "answer") if isinstance(held.get(key), list | tuple)), None)) is not None:
        raise SampleError(
            f"{name}: an object whose {key} is a list: name it as answers, of which one is learned (columns: "
            f"{{answers: {name}}})"
        )
    if (key := next((last for first, last in _TURNS if keys == {first, last}), None)) is not None:
        raise SampleError(f"{name}: a turn of a chat; name its text ({name}.{key}), or write all turns as messages")
    if keys and keys <= {"bytes", "path"}:
        raise SampleError(f"{name}: expected text, got an object that holds a file")
    if (key := next((key for key in _SAID if isinstance(held.get(key), str)), None)) is not None:
        raise SampleError(
            f"{name}: an object with a text in {key}; name its text (columns: {{{role}: {name}.{key}}}), or write a "
            f'template, which writes the object as JSON ("{{{name}}}")'
        )
    return held


_TURNS = ("role", "content"), ("from", "value")
"""Keys of a chat's turn."""
_SAID = ("text", "value", "content", "answer")
"""Keys of an object under which a plain text is the answer, beside what is told of it."""


def _pairs(texts: Any, name: str, *, asked: bool) -> Iterator[tuple[str, str]]:
    if not isinstance(texts, list | tuple) or not texts:
        raise SampleError(f"{name}: expected a list that is not empty, got {kind_of(texts)}")
    for number, pair in enumerate(texts):
        where = f"{name}[{number}]"
        if not isinstance(pair, Mapping):
            raise SampleError(f"{where}: expected an object with user and assistant, got {kind_of(pair)}{_LISTS}")
        user = text_value(pair.get("user"), f"{where}.user")
        if asked and number == len(texts) - 1 and is_empty(pair.get("assistant")):
            yield user, ""
            continue
        yield user, _not_empty(text_value(pair.get("assistant"), f"{where}.assistant"), f"{where}.assistant", _UNSAID)


_LISTS = " (or texts and media in turn: lists of one length, with null where the other has something)"


_UNSAID = '; write it, or give the chat as messages, where "loss": false leaves a turn out'


def _not_empty(answer: str, where: str, advice: str = "") -> str:
    """Raises SampleError where an answer says nothing: the model would learn to say nothing."""
    if not answer.strip():
        raise SampleError(f"{where} is empty{advice}")
    return answer


def _history(history: Any, name: str) -> Iterator[tuple[str, str]]:
    if history in (None, "", [], ()):
        return
    if not isinstance(history, list | tuple):
        raise SampleError(f"{name}: expected a list of pairs, got {kind_of(history)}")
    for number, pair in enumerate(history):
        where = f"{name}[{number}]"
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise SampleError(f"{where}: expected a list of two, what was asked and what was answered")
        yield text_value(pair[0], where), _not_empty(text_value(pair[1], where), f"{where}[1]", _UNSAID)

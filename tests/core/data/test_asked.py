"""Documents that learn another answer to what they ask."""

from __future__ import annotations

import numpy as np
import pytest

from kosmos import Document, Mark, Media, Text, answered, chat_prompt
from kosmos.data.asked import prompt_of
from kosmos.errors import NoSuchPart

PICTURE = Media("image", np.zeros((2, 2, 3), np.uint8))
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"


def chat(*turns: tuple[str, str]) -> Document:
    """Of turns of a user and answers, as data have them."""
    said = []
    for asked, answer in turns:
        said += [Mark(USER), Text(asked), Mark(END), Mark(ASSISTANT), Text(answer, True), Mark(END, True)]
    return Document("chat", tuple(said))


def test_the_answer_is_another_and_alone_is_learned() -> None:
    document = Document("a", (PICTURE, Text("What?"), Text("a cat", train=True)), ("a cat", "cat"), weight=3.0)
    other = answered(document, "a dog", origin="b", weight=-0.5)
    assert other.segments == (PICTURE, Text("What?"), Text("a dog", train=True))
    assert (other.origin, other.references, other.weight) == ("b", ("a cat", "cat"), -0.5)
    assert (answered(document, "a dog").origin, answered(document, "a dog").weight) == ("a", 1.0)


def test_of_a_chat_the_last_answer_is_another_with_its_end_and_earlier_ones_are_not_learned() -> None:
    segments = answered(chat(("One?", "1"), ("Two?", "2")), "zwei").segments
    assert segments[-2:] == (Text("zwei", True), Mark(END, True))
    first = Mark(USER), Text("One?"), Mark(END), Mark(ASSISTANT), Text("1"), Mark(END)
    assert segments[:-2] == (*first, Mark(USER), Text("Two?"), Mark(END), Mark(ASSISTANT))


def test_a_prompt_has_the_answer_behind_it_as_data_would() -> None:
    asked = chat_prompt([PICTURE, Text("Two?")], history=[("One?", "1")], system="Be brief.")
    segments = answered(asked, "2").segments
    assert segments == (*asked.segments, Text("2", train=True), Mark(END, train=True))
    plain = Document("p", (PICTURE, Text("What?")))
    assert answered(plain, "a cat").segments == (*plain.segments, Text("a cat", train=True))
    prompt, text = prompt_of(answered(plain, "a cat")) or (None, "")
    assert prompt is not None and prompt.segments == plain.segments and text == "a cat"


@pytest.mark.parametrize(("document", "text"), [("What?", "a cat"), (Document("p", (Text("What?"),)), None)])
def test_what_is_no_document_or_no_text_is_refused(document: object, text: object) -> None:
    with pytest.raises(NoSuchPart, match="answered: expected a Document and a string, got "):
        answered(document, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("behind", [(), (Text(" tail"),)], ids=["whole", "before something else"])
def test_what_is_learned_but_is_no_answer_at_the_end_is_refused(behind: tuple[Text, ...]) -> None:
    with pytest.raises(NoSuchPart, match="answered: t ends in no answer, though something in it is learned; leave"):
        answered(Document("t", (Text("A", train=True), *behind)), "C")


def test_a_text_that_was_cut_off_has_no_end() -> None:
    cut = answered(chat_prompt("Two?"), "zw", goes_on=True)
    assert cut.goes_on and cut.segments[-1] == Text("zw", train=True)
    assert answered(Document("p", (Text("What?"),)), "a c", goes_on=True).goes_on

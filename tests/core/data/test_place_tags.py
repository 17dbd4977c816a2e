"""Tags in the places of media."""

from __future__ import annotations

import pytest

from kosmos.data.document import Document, Media, Text
from kosmos.data.in_memory import Documents
from kosmos.data.place_tags import MOST_CHARS, doubtful_places

MEDIUM = Media("image", b"picture")


def told(*documents: tuple[object, ...]) -> list[str]:
    found = [Document(str(n), tuple(parts)) for n, parts in enumerate(documents)]
    return [*doubtful_places([Documents("rows", found)], ["image"])]


def asked(text: str, media: int = 2, answer: str = "A cat.") -> tuple[object, ...]:
    return (*[MEDIUM] * media, Text(text), Text(answer, train=True))


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("Is <image_1> or <image_2> it?", "<image_1>, <image_2>"),
        ("Is <image 1> or <image 2> it? <image 1>!", "<image 1>, <image 2>"),
        ("Is <|image_1|> like <|image_2|>?", "<|image_1|>, <|image_2|>"),
        ("Which is <image2>?", "<image2>"),
        ("Is <ImageHere> or <ImageHere> it?", "<ImageHere>"),
        ("Is <img> or <img> it?", "<img>"),
        ("1: <img></img> 2: <img></img>?", "<img></img>"),
        ("Is [IMG] or [IMG] it?", "[IMG]"),
        ("<Image>a<IMAGE>", "<Image>, <IMAGE>"),
        ("Is < image > or < image > it?", "< image >"),
        ("<sound>\n<sound>\nWhat?", "<sound>"),
        ("<sound_1>\n<sound_2>\nWhat?", "<sound_1>, <sound_2>"),
    ],
)
def test_tags_are_told_as_often_as_there_are_media(text, spelled):
    [line] = told(asked(text))
    order = ", with the files in the order of these places" if "1" in spelled or "2" in spelled else ""
    assert line.startswith(f"rows: texts spell {spelled}, which stay plain text: no medium stands there; ")
    assert f"write <image> in a chat{order} (no option names another placeholder)" in line


@pytest.mark.parametrize(
    "text",
    [
        "Is <image_3> it?",
        "Is <img> it?",
        "Close <b>this</b> and <b>that</b>, <br> and <br/>",
        "<p>\n<i>a</i> <p>",
        "For a < b > c and d <bc > e",
        "vector<int> and vector<int>",
        "x[image] + y[image], ![image](a.png), ![image](b.png)",
        "Write <answer> and then <answer> again",
        "[1] and [2]; [a] and [b]",
        "<image>a</image> or <image>b</image>",
        "<img src=a> or <img src=b>",
    ],
)
def test_other_text_in_angles_and_brackets_is_no_matter(text):
    assert told(asked(text)) == []


def test_numbers_beside_media_between_texts_are_their_names():
    parts = (Text("<image_1>: "), MEDIUM, Text("\n<image_2>: "), MEDIUM, Text("\nWhich?"), Text("A", train=True))
    assert told(parts) == []


def test_learned_text_is_looked_at_where_nothing_asks():
    assert len(told((MEDIUM, Text("A <image_1> cat.", train=True)))) == 1
    assert told((MEDIUM, Text("<noise> A cat.", train=True))) == []
    assert told(asked("What?", 1, "Write <img>.")) == []


def test_half_of_the_documents_with_media_have_to_have_them():
    plain, text = asked("What?"), (Text("Alone.", train=True),)
    assert len(told(asked("<image_1>"), plain, text, text)) == 1
    assert told(asked("<image_1>"), plain, plain) == []


@pytest.mark.parametrize("filled", ["\n", " \n", "<td> ", "<a>" + " " * 99, " "])
def test_long_texts_are_looked_at_in_time_that_grows_with_them_and_from_their_beginning(filled):
    long = filled * 2_000
    assert len(told(asked(f"<sound>\n{long}x\n<sound>"[:MOST_CHARS]))) == (len(long) < MOST_CHARS)
    assert told(asked("a" * MOST_CHARS + "<image_1> <image_2>")) == []
    slow = [asked(filled * (400_000 // len(filled)) + "x") for _ in range(4)]  # squares of it took minutes
    assert told(*slow) == []


def test_places_without_their_media_are_told_by_how_many_documents_have_them():
    lacking = (Text("<image>\nWhat is it?"), Text("A cat.", train=True))
    [line] = told(lacking, asked("And this?", 1), asked("What?", 1), lacking)
    assert line.startswith("rows: 2 of 4 documents looked at have <image> in a text and no image, such as 0: ")


@pytest.mark.parametrize(
    "text",
    [
        "Of HTML: what is <image> good for?",
        "<image>a</image>",
        "<sound>\nWhat?",
        "image",
        "\n" * 60_000 + "a <image> b",
    ],
)
def test_what_is_no_place_is_no_matter(text):
    assert told((Text(text), Text("A cat.", train=True))) == []
    assert told((Text("<image> is learned", train=True),)) == []

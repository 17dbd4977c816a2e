"""Chats in the form of the OpenAI API."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Mark, Text
from kosmos.data.marks import END, SYSTEM, USER
from kosmos.errors import DataError, SampleError

ANSWER = {"role": "assistant", "content": "A cat that meows."}
NOTHING = (None, "", [], {}, "[]", " null ", [{"name": None, "parameters": {}}])


def user(*parts):
    return {"role": "user", "content": list(parts)}


def test_loss_looks_at_the_assistant_alone(open_, rows):
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}, ANSWER]
    assert open_(rows({"messages": chat})).document(0).segments == (
        Mark("<|system|>"),
        Text("Be short."),
        Mark("<|end|>"),
        Mark("<|user|>"),
        Text("Hi"),
        Mark("<|end|>"),
        Mark("<|assistant|>"),
        Text("A cat that meows.", train=True),
        Mark("<|end|>", train=True),
    )


def test_parts_of_image_and_audio_in_every_spelling(open_, rows):
    chat = user(
        {"type": "text", "text": "What is"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
        {"type": "image", "image": "a.png"},
        {"type": "audio", "path": "b.wav"},
        {"type": "input_image", "image_url": "a.png"},
        {"type": "input_text", "text": "this?"},
    )
    found = open_(rows({"messages": [chat, ANSWER]})).document(0).segments[1:8]
    assert found[0] == Text("What is")
    assert found[6] == Text("this?")
    media = [(m.modality, getattr(m.source, "name", m.source)) for m in found[1:6]]
    assert media == [
        ("image", b"hello"),
        ("audio", b"hello"),
        ("image", "a.png"),
        ("audio", "b.wav"),
        ("image", "a.png"),
    ]


def test_part_without_a_medium_takes_the_next_of_the_row(open_, rows):
    chat = [user({"type": "image"}, {"type": "image"}), ANSWER]
    document = open_(rows({"messages": chat, "images": ["a.png", "data:;base64,aGVsbG8="]})).document(0)
    assert [getattr(m.source, "name", m.source) for m in document.media] == ["a.png", b"hello"]
    source = open_(rows({"messages": chat, "images": ["a.png"]}))
    with pytest.raises(SampleError, match="image part is place 2 for image, and images holds 1 medium; take it out"):
        source.document(0)


def taken(source, index=0):
    """The texts and media of a document, marks left out."""
    found = source.document(index).segments
    return [s.text if isinstance(s, Text) else s.source.name for s in found if not isinstance(s, Mark)]


def chat(*texts):
    return [*({"role": "user", "content": text} for text in texts), ANSWER]


PLACED = {
    "<image>\nWhat is this?": ["a.png", "What is this?"],
    "What is this?\n<image>": ["What is this?", "a.png"],
    "Look: <image> there": ["Look: ", "a.png", " there"],
    "Look: \n<image>\n\nthere": ["Look: \n", "a.png", "\n\nthere"],
    "<image>": ["a.png"],
    "<audio> of <image>, <b>": ["<audio> of ", "a.png", ", <b>"],
}


@pytest.mark.parametrize("text", PLACED)
def test_placeholder_in_a_text_takes_the_next_medium_of_the_row(open_, rows, text):
    for column in ({"images": ["a.png"]}, {"image": "a.png"}, {"images": None, "image": ["a.png"]}):
        assert taken(open_(rows({"messages": chat(text), **column}))) == [*PLACED[text], ANSWER["content"]]


def test_placeholders_and_parts_take_media_in_order(open_, rows, tmp_path):
    (tmp_path / "c.png").write_bytes(b"picture")
    first = user({"type": "text", "text": "<image>\n<audio>\nHere"}, {"type": "image"})
    row = {"messages": [first, *chat("<image>")], "images": ["a.png", None, "c.png", "a.png"], "audio": "b.wav"}
    source = open_(rows(row))
    assert taken(source) == ["a.png", "b.wav", "Here", "c.png", "a.png", ANSWER["content"]]


def test_placeholder_of_a_row_without_media_is_text(open_, rows):
    html = chat("Close <video> and <image>\n tags", "<audio>")
    expected = ["Close <video> and <image>\n tags", "<audio>", ANSWER["content"]]
    assert taken(open_(rows({"messages": html}))) == expected


def test_placeholder_of_a_row_whose_column_is_empty_costs_the_row(open_, rows):
    for empty in ([], "", None):  # a table has null where a picture is missing
        source = open_(rows({"messages": chat("<image>"), "images": empty}))
        with pytest.raises(SampleError, match="image part holds no medium, and the row has none in images"):
            source.document(0)


def test_a_turn_that_says_nothing_is_no_answer(open_, rows):
    for nothing in (" ", "<image>\n"):
        row = {"messages": [*chat("Q")[:1], {**ANSWER, "content": nothing}], "image": "a.png"}
        with pytest.raises(
            SampleError, match=r"messages\[1\]\.content: the answer is empty; write it, or leave the row"
        ):
            open_(rows(row)).document(0)
    with pytest.raises(SampleError, match="no turn of the assistant with text to learn from"):
        open_(rows({"messages": chat("Q")[:1]})).document(0)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("function_calls", "f()", "calls of tools as a text are not read; write them into the content as text, or as"),
        ("tools", [{"name": "f"}], "tools that a turn offers are not read; write them into the text of the system, or"),
        ("functions", "def f()", "tools that a turn offers are not read; write them into the text of the system, or b"),
        ("reasoning_content", "It barks.", "thoughts beside the content are not read; write them into it"),
        ("reasoning", "It barks.", "thoughts beside the content are not read; write them into it"),
        ("thinking", "It barks.", "thoughts beside the content are not read; write them into it"),
    ],
)
def test_what_a_turn_says_beside_its_content_is_not_passed_over_in_silence(open_, rows, key, value, says):
    turns = [*chat("Q"), *chat("And?")[:1], {**ANSWER, key: value}]
    with pytest.raises(SampleError, match=rf"messages\[3\]\.{key}: {says}"):
        open_(rows({"messages": turns})).document(0)
    for empty in NOTHING:  # a table has the column in every turn
        assert taken(open_(rows({"messages": [*turns[:3], {**ANSWER, key: empty}]})))


@pytest.mark.parametrize("column", ["tools", "functions"])
@pytest.mark.parametrize("empty", NOTHING)
def test_a_chat_that_no_tool_is_offered_to_is_as_without_the_column(open_, rows, column, empty):
    for row in ({"messages": chat("Q")}, {"conversations": chat("Q")}, {"query": "Q", "response": "A"}):
        plain = open_(rows(row)).document(0).segments
        assert open_(rows({**row, column: empty})).document(0).segments == plain  # a table has it in every row


def test_tools_beside_a_chat_are_seen_in_tables_and_under_other_names(open_, tmp_path):
    tools = [[{"name": "f"}], [], None, [{"name": None}]]
    pq.write_table(pa.table({"messages": [chat("Q")] * 4, "tools": tools}), tmp_path / "chats.parquet")
    pq.write_table(pa.table({"messages": [chat("Q")] * 4, "apis": tools}), tmp_path / "named.parquet")
    for source in (open_(tmp_path / "chats.parquet"), open_(tmp_path / "named.parquet", columns={"tools": "apis"})):
        assert source.document(0).segments[0] == Mark(SYSTEM)
        assert [source.document(n).segments for n in (1, 2, 3)] == [source.document(1).segments] * 3


@pytest.mark.parametrize("empty", ["", " \n", [], [{"type": "text", "text": ""}]])
def test_an_empty_answer_among_others_costs_the_row(open_, rows, empty):
    turns = [*chat("Q"), *chat("And?")[:1], {**ANSWER, "content": empty}, *chat("So?")]
    with pytest.raises(SampleError, match=r'messages\[3\]\.content: the answer is empty; write it, or "loss": false'):
        open_(rows({"messages": turns})).document(0)
    shared = [{"from": "human", "value": "Q"}, {"from": "gpt", "value": empty}, {"from": "gpt", "value": "A"}]
    with pytest.raises(SampleError, match=r"conversations\[1\]\.value: the answer is empty"):
        open_(rows({"conversations": shared})).document(0)


def test_empty_turns_that_are_not_learned_cost_nothing(open_, rows):
    silent = {**ANSWER, "content": "", "loss": False}
    assert taken(open_(rows({"messages": [{"role": "user", "content": ""}, silent, *chat("Q")]})))
    pictured = {**ANSWER, "content": [{"type": "image", "image": "a.png"}]}
    assert taken(open_(rows({"messages": [*chat("Q"), *chat("And?")[:1], pictured]})))


@pytest.mark.parametrize(
    "key", [{"loss": False}, {"loss": 0}, {"weight": 0}, {"loss_scale": 0.0}, {"train": False, "loss": True}]
)
def test_turns_of_the_assistant_that_are_not_to_be_learned_are_not(open_, rows, key):
    turns = [*chat("Q")[:1], {**ANSWER, "content": "wrong", **key}, *chat("No.")[:1], {**ANSWER, "loss": True}]
    learned = [s for s in open_(rows({"messages": turns})).document(0).segments if getattr(s, "train", False)]
    assert learned == [Text(ANSWER["content"], train=True), Mark(END, train=True)]
    spoken = [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "wrong", **key}]
    with pytest.raises(SampleError, match="no turn of the assistant with text to learn from"):
        open_(rows({"conversations": spoken})).document(0)


def test_a_turn_that_is_learned_in_part_is_refused(open_, rows):
    with pytest.raises(SampleError, match=r"messages\[1\]\.weight: expected 0 or 1, false or true, got 0\.5"):
        open_(rows({"messages": [*chat("Q")[:1], {**ANSWER, "loss": 1, "weight": 0.5}]})).document(0)


GROUNDED = {"ref": ["a dog"], "bbox": [[331.5, 761.4, 853.5, 1594.8]]}


@pytest.mark.parametrize("asked", ["Find <ref-object>.", "What is in <bbox>?"])
@pytest.mark.parametrize("objects", [GROUNDED, str(GROUNDED), None])
def test_a_text_that_stands_open_for_an_object_costs_the_row(open_, rows, asked, objects):
    says = (
        r"\[0\]: <(bbox|ref-object)> stands for something in objects, which is not read; write its name or place into"
    )
    for row in ({"messages": chat(asked)}, {"query": asked, "response": "A"}):
        with pytest.raises(SampleError, match=says):
            open_(rows({**row, "objects": objects})).document(0)
        assert asked in taken(open_(rows(row)))  # a chat about ms-swift, or tags
    assert taken(open_(rows({"messages": chat("What?"), "objects": objects})))


def test_objects_beside_a_chat_are_seen_in_tables(open_, tmp_path):
    pq.write_table(pa.table({"messages": [chat("<bbox>?")], "objects": [GROUNDED]}), tmp_path / "chats.parquet")
    with pytest.raises(SampleError, match="<bbox> stands for something in objects"):
        open_(tmp_path / "chats.parquet").document(0)


def test_a_system_text_beside_the_chat_is_its_first_turn(open_, rows):
    (first, text, *_) = open_(rows({"messages": chat("Q"), "system": "Be brief."})).document(0).segments
    assert (first, text) == (Mark(SYSTEM), Text("Be brief."))
    assert open_(rows({"messages": chat("Q"), "system": ""})).document(0).segments[0] == Mark(USER)
    both = [{"role": "system", "content": "A"}, *chat("Q")]
    with pytest.raises(SampleError, match="a system text and the chat a turn of the system; keep one"):
        open_(rows({"messages": both, "system": "B"})).document(0)


def test_medium_that_no_turn_takes_is_refused(open_, rows):
    part, cause = {"type": "image"}, r'images holds 2 media, {} placed; put <image> or {{"type": "image"}} where'
    for turns, placed in (([user(part), ANSWER], 1), (chat("<image>"), 1), ([ANSWER], 0)):
        source = open_(rows({"messages": turns, "images": ["a.png", "a.png"]}))
        with pytest.raises(SampleError, match=cause.format(placed)):
            source.document(0)


def test_placeholder_beyond_the_media_of_the_row_is_refused(open_, rows):
    source = open_(rows({"messages": chat("<image><image>"), "image": "a.png"}))
    with pytest.raises(SampleError, match=r"messages\[0\]: image part is place 2 for image, and image holds 1"):
        source.document(0)


def test_rows_whose_columns_hold_other_media_are_left_out(open_, rows):
    row = {"messages": chat("<image>\nWhat?"), "images": ["a.png"]}
    source = open_(rows(row, {"messages": chat("And you?"), "images": []}), modalities=())
    assert (len(source), source.left_out) == (1, {"image": 1})


def test_column_that_was_named_goes_before_the_plural(open_, rows):
    row = {"messages": chat("<image>"), "photo": "a.png", "images": ["gone.png"]}
    assert taken(open_(rows(row), columns={"image": "photo"}))[0] == "a.png"


SHAREGPT = [
    {"from": "system", "value": "Be short."},
    {"from": "human", "value": "<image>\nWhat?"},
    {"from": "gpt", "value": "A cat."},
]


def test_chats_of_sharegpt_are_read_as_those_of_openai(open_, rows):
    openai = [
        {"role": "system", "content": "Be short."},
        user({"type": "image", "image": "a.png"}, {"type": "text", "text": "What?"}),
        {"role": "assistant", "content": "A cat."},
    ]
    lines = [{"conversations": SHAREGPT, "image": "a.png"}, {"messages": openai}]
    source = open_(rows(*lines))
    found = [[s if isinstance(s, Mark | Text) else s.source for s in source.document(i).segments] for i in range(2)]
    assert found[0] == found[1]
    assert len(open_(rows({"talk": SHAREGPT, "image": "a.png"}), columns={"messages": "talk"})) == 1


def test_errors_name_the_column_of_a_chat(open_, rows):
    source = open_(rows({"conversations": [{"from": "narrator", "value": "x"}]}))
    with pytest.raises(SampleError, match=r"conversations\[0\]\.from: unknown role 'narrator'"):
        source.document(0)


@pytest.mark.parametrize(
    ("turn", "cause"),
    [
        ({"form": "human", "value": "Q"}, r"talk\[0\]: no 'from'; did you mean form\?"),
        ({"from": "humn", "value": "Q"}, r"talk\[0\]\.from: unknown role 'humn'; did you mean human\?"),
        ({"from": "human", "valeu": "Q"}, r"talk\[0\]: no 'value'; did you mean valeu\?"),
        ({"from": "human", "value": None}, r"talk\[0\]\.value: expected text or a list of parts, got null"),
        ({"role": None, "content": None, "from": "humn", "value": "Q"}, r"talk\[0\]\.from: unknown role 'humn'"),
        ({"rôle": "user", "content": "Q"}, r"talk\[0\]: no 'role'; did you mean rôle\?"),
        ({"role": "usr", "content": "Q"}, r"talk\[0\]\.role: unknown role 'usr'; did you mean user\?"),
        ({"role": "user", "value": "Q"}, r"talk\[0\]: no 'content'; there are: role, value"),
        ({"role": None, "content": "Q", "from": None}, r"talk\[0\]\.role: unknown role None"),
        ({"text": "Q"}, r"talk\[0\]: no 'role'; there are: text"),
    ],
)
def test_errors_name_the_keys_that_a_turn_has(open_, rows, turn, cause):
    source = open_(rows({"talk": [turn, ANSWER]}, {"talk": chat("Q")}), columns={"conversations": "talk"})
    with pytest.raises(SampleError, match=cause):
        source.document(0)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"image_end": 2.0}, r"messages\[0\]: image_end of the image part is not read; write clip: \[start, end\]"),
        ({"start": 1.5, "end": None}, "start of the image part is not read"),
        ({"page": 2, "image": "a.gif"}, r"messages\[0\]: image part: page 2: a row chooses no page of a file"),
        ({"text": "A cat."}, "text beside the medium of the image part is not read; make it a text part"),
    ],
)
def test_what_the_part_of_a_medium_says_beside_is_not_passed_over_in_silence(open_, rows, said, cause):
    part = {"type": "image", "image": "a.png"}
    nothing = {**part, "image_start": 0.0, "end": None, "text": "", "detail": "low", "max_pixels": 9}
    source = open_(rows({"messages": [user({**part, **said}), ANSWER]}, {"messages": [user(nothing), ANSWER]}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert source.document(1).modalities == ("image",)


def test_urls_in_chats_are_refused(open_, rows):
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    source = open_(rows({"messages": [user(part), ANSWER]}))
    with pytest.raises(SampleError, match="URLs of kind 'https' are never opened"):
        source.document(0)


def test_parts_of_other_modalities_leave_the_row_out(open_, rows):
    part = {"type": "video_url", "video_url": {"url": "a.mp4"}}
    source = open_(rows({"messages": [user(part), ANSWER]}, {"text": "x"}))
    assert (len(source), source.left_out) == (1, {"video": 1})
    lidar = {"messages": [user({"type": "input_lidar", "input_lidar": "a.bin"}), ANSWER]}
    with pytest.raises(DataError, match="install the plugin for lidar"):
        open_(rows(lidar))


BAD = [
    ([user({"type": "text", "text": "hi"})], "no turn of the assistant"),
    ([{"role": "robot", "content": "x"}], r"messages\[0\].role: unknown role 'robot'"),
    ([{"role": ["user"], "content": "x"}], r"messages\[0\].role: unknown role"),
    ([{"role": "user", "content": 3}], r"messages\[0\].content: expected text or a list of parts, got a number"),
    ([{"role": "user"}], r"messages\[0\]: no 'content'; there are: role"),
    ([{"role": "user", "content": None}], "got null"),
    ([user({"text": "x"})], r"messages\[0\].content\[0\]: expected an object with a type"),
    ([user({"type": "text", "text": None}), ANSWER], "expected text, got null"),
    (["hi"], r"messages\[0\]: expected an object, got a string"),
]


@pytest.mark.parametrize(("chat", "cause"), BAD)
def test_malformed_chat_costs_that_row_alone(open_, rows, chat, cause):
    source = open_(rows({"messages": chat}, {"messages": [user({"type": "text", "text": "q"}), ANSWER]}))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert len(source.document(1).segments) == 6


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"video": "b.mp4", "messages": chat("<image>\nWhat?")}, ["b.mp4", "What?"]),
        ({"videos": ["b.mp4"] * 2, "messages": chat("<image>And <image>?")}, ["b.mp4", "And ", "b.mp4", "?"]),
        ({"video": "b.mp4", "query": "What? <image>", "response": "y"}, ["What? ", "b.mp4"]),
        ({"video": "b.mp4", "messages": chat("<video>What is <image>?")}, ["b.mp4", "What is <image>?"]),
        (
            {"video": "b.mp4", "messages": [user({"type": "video"}, {"type": "text", "text": "An <image>?"}), ANSWER]},
            ["b.mp4", "An <image>?"],
        ),
    ],
)
def test_the_place_of_a_picture_is_that_of_the_film_in_a_row_without_pictures(open_, rows, tmp_path, row, expected):
    path = rows(row)
    (tmp_path / "b.mp4").write_bytes(b"film")
    found = open_(path, modalities=("image", "video")).document(0).segments
    asked = [s.text if isinstance(s, Text) else s.source.name for s in found if not isinstance(s, Mark)][
        : len(expected)
    ]
    assert asked == expected


@pytest.mark.parametrize(
    "row",
    [
        {"video": "b.mp4", "messages": chat("<image><image>What?")},
        {"video": "b.mp4", "image": None, "messages": chat("<image>What?")},
        {"video": "b.mp4", "image": "a.png", "messages": chat("<image>What?")},
        {"image": "a.png", "messages": chat("<video>What?")},
    ],
)
def test_other_places_of_pictures_are_none_of_films(open_, rows, tmp_path, row):
    path = rows(row, {"text": "x"})
    (tmp_path / "b.mp4").write_bytes(b"film")
    with pytest.raises(SampleError, match=r"1 medium, 0 placed|has none"):
        open_(path, modalities=("image", "video")).document(0)

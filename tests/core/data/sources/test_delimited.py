"""CSV and TSV files."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import Text
from kosmos.data.sources.delimited import index_delimited
from kosmos.data.sources.since import opened_before
from kosmos.errors import DataError, SampleError

LETTERS = "ab ,;\"\t'é"
CELLS = st.text(st.sampled_from(LETTERS), max_size=6)
CELLS_OF_LINES = st.text(st.sampled_from(LETTERS + "\n"), max_size=6)

RENAMED = {"clip": "when", "audio": "sound", "text": "said"}


@pytest.fixture
def table(tmp_path):
    def write(text, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def texts(source):
    return [source.document(n).segments[-1].text for n in range(len(source))]


@given(
    written=st.one_of(
        st.tuples(st.sampled_from(",;"), st.lists(st.tuples(*[CELLS_OF_LINES] * 3), max_size=6)),
        st.tuples(st.just("\t"), st.lists(st.tuples(*[CELLS] * 3), max_size=6)),
    ),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_rows_that_were_written_are_read(tmp_path_factory, written, end):
    delimiter, rows = written
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, delimiter=delimiter)
    writer.writerows([("one", "two", "three"), *rows])
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(text.getvalue().encode())
    found = index_delimited(path)
    wanted = [
        dict(zip(("one", "two", "three"), (cell or None for cell in row), strict=True))
        for row in rows
        if any(map(str.strip, row)) or (delimiter == "\t" and any("\t" in cell for cell in row))
    ]
    assert [found.row(n) for n in range(len(found))] == list(found.scan(None)) == wanted


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_pictures_with_texts(open_, rows, table, name, mark):
    rows()  # the picture
    end = " " if mark == "\t" else "\n"  # between tabs no text has two lines
    path = table(f'image{mark}text\na.png{mark}"A cat{mark} 1,5; it{end}sleeps."\n', name)
    document = open_(path).document(0)
    assert (next(iter(document.media)).source.name, document.segments[-1]) == (
        "a.png",
        Text(f"A cat{mark} 1,5; it{end}sleeps.", True),
    )
    assert document.origin == f"{path}:2"


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_quotes_of_a_text_between_tabs_are_letters(open_, table, name):
    said = [
        '"Hello, he said',
        '"Yes," she said, "we can.',
        '"Yes," she said, "we can."',
        '5" nail',
        'fourth "x"',
        '"',
        '"""',
    ]
    source = open_(table("id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(said)), name))
    assert texts(source) == said
    assert [source.document(n).origin.rpartition(":")[2] for n in range(len(said))] == [
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
    ]


def test_quotes_around_a_whole_field_between_tabs_are_none_of_its_text(open_, table):
    source = open_(table('"id"\ttext\n1\t"5"" nail"\n"2"\t"a\tb"\n3\t"third"\r\n"4\ta"\n', "a.tsv"))
    assert texts(source) == ['5" nail', "a\tb", "third", 'a"']
    assert [source.table.row(n)["id"] for n in range(4)] == ["1", "2", "3", '"4']


def test_a_field_between_tabs_never_spans_lines(open_, table):
    source = open_(table('id\ttext\n1\t"two\nlines"\n2\tx\n', "a.tsv"))
    assert [source.document(n).segments[-1].text for n in (0, 2)] == ['"two', "x"]
    with pytest.raises(SampleError, match=r"a.tsv:3: expected 2 columns, as in the first line, got 1"):
        source.document(1)


def test_columns_templates_splits_and_ids(open_, table):
    path = table("nr,q,a,split\n1,Who?,I,train\n2,What?,This,test\n3,When?,Now,\n")
    given = {"columns": {"id": "nr"}, "template": "{q} → {a}"}
    assert texts(open_(path, **given)) == [" I", " Now"]
    assert texts(open_(path, split="held_out", **given)) == [" This"]
    assert texts(open_(path, columns={"prompt": "q", "completion": "a"})) == ["I", "Now"]


def test_lists_in_cells_are_read_as_json(open_, rows, table):
    rows()  # the media
    path = table('audio,clip,text\nb.wav,"[1.0, 2.5]",x\nb.wav,"[1, 2",y\nb.wav,,z\n')
    source = open_(path)
    assert [next(iter(source.document(n).media)).clip for n in (0, 2)] == [(1.0, 2.5), None]
    with pytest.raises(SampleError, match=r"rows.csv:3: clip: expected \[start, end\] in seconds, got '\[1, 2'"):
        source.document(1)
    renamed = open_(table("sound\twhen\tsaid\nb.wav\t[1, 2]\t[1, 2]\n", "a.tsv"), columns=RENAMED)
    document = renamed.document(0)
    assert (document.segments[0].clip, document.segments[-1].text) == ((1.0, 2.0), "[1, 2]")


@pytest.mark.parametrize("column", ["image", "images", "photo"])
def test_lists_of_media_in_cells(open_, rows, table, column):
    rows()  # the picture
    columns = {"image": "photo"} if column == "photo" else {}
    table("", "[1] a.png")
    lines = ['["a.png", "a.png"]', '[{"path": "a.png"}]', "a.png", "[1] a.png", "[]", "['a.png', 'a.png']"]
    source = open_(table("\n".join([f"{column}\ttext", *(f"{line}\tx" for line in lines)]), "a.tsv"), columns=columns)
    assert [len(list(source.document(n).media)) for n in range(5)] == [2, 1, 1, 1, 0]
    with pytest.raises(SampleError, match=rf'a.tsv:7: {column}: no list or object of JSON, as \["a", "b"\] is \(JSON'):
        source.document(5)


@pytest.mark.parametrize("column", ["messages", "conversations", "segments", "chat"])
def test_chats_and_segments_in_cells(open_, rows, table, column):
    rows()  # the picture
    turns = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat."}]
    cell = [{"image": "a.png"}, {"text": "A cat."}] if column == "segments" else turns
    cells = [json.dumps(cell).replace('"', '""'), json.dumps(cell)[:-4].replace('"', '""')]
    path = table("images,{}\n{}".format(column, "".join(f'a.png,"{cell}"\n' for cell in cells)))
    source = open_(path, columns={"messages": "chat"} if column == "chat" else {})
    document = source.document(0)
    assert document.modalities == ("image",)
    assert Text("A cat.", True) in document.segments
    with pytest.raises(SampleError, match=rf"rows.csv:3: {column}: no list or object of JSON"):
        source.document(1)


def test_what_a_path_leads_into_is_read_as_json_and_a_text_is_not(open_, table):
    path = table('q\ta\n[1] Who?\t{"text": ["I"]}\n{"x": 1}\t{"text": ["me"]}\n', "a.tsv")
    assert texts(open_(path, template="→ {q} {a.text[0]}")) == ["[1] Who? I", '{"x": 1} me']
    assert texts(open_(path, columns={"text": "a.text[0]"})) == ["I", "me"]
    plain = table('messages\n["x"]\n', "b.tsv")
    assert texts(open_(plain, template="{messages}")) == ['["x"]']
    assert texts(open_(table('texts\n["x"]\n', "b.tsv"), columns={"text": "texts"})) == ['["x"]']


def test_index_of_pandas_and_byte_order_mark(open_, table):
    assert texts(open_(table("\ufeff,text\n0,x\n1,y\n"))) == ["x", "y"]
    assert open_(table("\ufeff,text\n0,x\n")).table.row(0) == {"column 1": "0", "text": "x"}


def test_blank_lines_and_rows_are_none(open_, table):
    source = open_(table("text,n\r\nx,1\r\n\r\n,\r\n  ,\r\ny,2\r\n"))
    assert [source.document(n).origin[-1] for n in range(len(source))] == ["2", "6"]


def test_between_tabs_blank_lines_are_no_rows_and_a_byte_order_mark_no_text(open_, table):
    source = open_(table("\ufeff\n\n\ttext\r\n0\tx\n\t\n  \n1\ty", "a.tsv"))
    assert [(source.document(n).origin[-1], *texts(source)[n]) for n in range(len(source))] == [("4", "x"), ("7", "y")]


def test_rows_that_are_wrong_cost_themselves(open_, table):
    source = open_(table(b'text,n\nx,1\ny\nz,1,2\n\xff,1\na\rb,1\nlast "so" quoted,1\n'))
    causes = [
        "expected 2 columns, as in the first line, got 1",
        "got 3",
        "not UTF-8 at byte 0",
        "a carriage return stands",
    ]
    for index, cause in enumerate(causes, 1):
        with pytest.raises(SampleError, match=cause):
            source.document(index)
    assert source.document(5).segments == (Text('last "so" quoted', True),)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            'text,n\nx,1\n"y,2\nz,3\n',
            r"rows.csv:3: a quote is opened and never closed; the row that begins in this line takes all",
        ),
        ("", "expected the names of columns in the first line, got nothing"),
        ("\n\n", "expected the names of columns in the first line, got nothing"),
        ("text,text\nx,y\n", "column 'text' twice"),
        (b"te\xffxt\nx\n", "not UTF-8 at byte 2 of the first line"),
        ("text\rx\ry\r", "the first line: a carriage return"),
        ("id\ttext\r1\tx\r2\ty\r", "the first line: a carriage return"),
        (
            "a dog runs\nx\n",
            r"no column 'text'.*a dog runs.*If the first line .* is a row already, write a line with the names",
        ),
        ("text\n", "holds no rows"),
    ],
)
def test_files_that_nobody_can_read_are_refused(open_, table, text, cause):
    with pytest.raises(DataError, match=cause) as caught:
        open_(table(text))
    assert "\n" not in caught.value.line()


def test_a_long_cell(open_, table):
    assert texts(open_(table("text\n" + "x" * 200_000 + "\n"))) == ["x" * 200_000]


def test_a_folder_of_tables_is_read_by_splits(open_, table, tmp_path):
    (tmp_path / "set").mkdir()
    table("text\nx\n", "set/train.csv")
    table("text\ny\n", "set/test.csv")
    assert texts(open_(tmp_path / "set")) == ["x"]
    assert texts(open_(tmp_path / "set", split="held_out")) == ["y"]


def test_a_table_beside_other_data_is_left_alone(open_, rows, table, tmp_path):
    rows({"text": "row"}, name="set/train.jsonl")
    table("text\nx\n", "set/labels.csv")
    assert texts(open_(tmp_path / "set")) == ["row"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_file_that_is_written_anew_while_it_is_read_gives_no_pieces_of_its_rows(open_, table, name):
    def lines(words):
        rows = [f'{{"text": "{word} and more"}}' for word in words] if name.endswith("jsonl") else ["text", *words]
        return "".join(f"{row}\n" for row in rows)

    words = [f"word {n}" for n in range(20)]
    path = table(lines(words), name)
    source = open_(path)
    path.write_text(lines(["a longer word than before"] * 40))
    said = []
    for n in range(1, len(source)):
        with pytest.raises(SampleError) as refused:
            source.document(n)
        said.append(str(refused.value))
    assert all("the file was changed after its rows were found" in line for line in said), said


def test_rows_that_are_added_while_a_file_is_read_change_nothing(open_, table):
    path = table("text\none\ntwo\n")
    source = open_(path)
    before = texts(source)
    with path.open("a") as file:
        file.write("three\n")
    assert texts(source) == before


def test_what_stands_between_columns_is_said_where_it_is_another_sign(open_, tmp_path):
    (tmp_path / "metadata.csv").write_text("a|Two, two|two\nb|Zero, zero|zero\n")
    with pytest.raises(DataError, match=r"a comma, a semicolon or a tab, and \| is a letter, .*If the first line"):
        open_(tmp_path / "metadata.csv")


@pytest.mark.parametrize(
    ("lacking", "expected"), [((), "Lungs clear.\nHeart normal."), (["line ends"], "Lungs clear.\r\nHeart normal.")]
)
def test_lines_within_a_field_end_as_all_others(tmp_path, lacking, expected):
    (file := tmp_path / "reports.csv").write_bytes(b'id,text\r\n1,"Lungs clear.\r\nHeart normal."\r\n2,short\r\n')
    with opened_before(lacking=lacking):
        table = index_delimited(file)
    assert [table.row(n)["text"] for n in range(2)] == [expected, "short"]
    assert table.is_in_quotes(0, expected)

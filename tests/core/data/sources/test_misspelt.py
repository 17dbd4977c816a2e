"""Names of files that are written nearly as a file is, tables whose first line is a row, and stray spaces, are told."""

from __future__ import annotations

import pytest

from kosmos.data.sources.media import resolve
from kosmos.data.sources.remarks import remarks_of
from kosmos.errors import DataError, SampleError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("in\\16.JPG", r"no such file; write / in place of \\ between folders$"),
        ("In/16.jpg", "no such file; there is in/16.JPG, and capital letters count$"),
        (" in/16.JPG", "no such file; there is one without the space"),
        ("in/17.JPG", "no such file$"),
        ("OUT/secret.png", "no such file$"),
    ],
)
def test_what_a_name_may_mean_is_said(tmp_path, name, said):
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "root" / "in" / "16.JPG").write_bytes(b"picture")
    (tmp_path / "secret.png").write_bytes(b"of somebody else")
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    with pytest.raises(SampleError, match=said):
        resolve(tmp_path / "root", name)


def test_another_folder_is_not_advised_where_the_file_is_nearly_named(open_, rows):
    source = open_(rows({"image": "A.png", "text": "x"}), where="data.sources.0")
    with pytest.raises(SampleError, match=r"there is a\.png, and capital letters count$"):
        source.document(0)


def test_a_first_line_that_is_a_row_is_told(open_, rows):
    file = rows({}).with_name("rows.csv")
    file.write_text("a.png,A rose\na.png,A tulip\n")
    with pytest.raises(DataError, match=r"its first line \(a\.png, A rose\) .* write a line with the names above it"):
        open_(file)


@pytest.mark.parametrize("mark", [";", ",", "\t"])
@pytest.mark.parametrize("written", ["sep={}\n", '"sep={}"\r\n', "\ufeffsep={}\n"])
def test_a_line_that_states_what_stands_between_columns_is_none_of_the_table(open_, tmp_path, mark, written):
    (tmp_path / "rows.csv").write_text(written.format(mark) + f"id{mark}text\n1{mark}A rose\n")
    source = open_(tmp_path / "rows.csv")
    assert [segment.text for segment in source.document(0).segments] == ["A rose"]
    assert len(source) == 1


def test_spaces_that_are_learned_are_told(open_, tmp_path):
    (tmp_path / "rows.csv").write_text("id, text\n1, A rose\n2, A tulip\n")
    [line] = remarks_of(open_(tmp_path / "rows.csv"))
    assert "each value of text begins with a space" in line
    for meant in (
        "id,text\n1, A rose\n2,A tulip\n",
        'id,text\n1," A rose"\n2," A tulip"\n',
        "prompt,completion\nA?, yes\nB?, no\n",
    ):
        (tmp_path / "rows.csv").write_text(meant)
        assert not [*remarks_of(open_(tmp_path / "rows.csv"))]
    for name in ("tulips", "tulips "):
        (folder := tmp_path / "classes" / name).mkdir(parents=True)
        (folder / "a.png").write_bytes(b"picture")
    [line] = remarks_of(open_(tmp_path / "classes"))
    assert "a class of its own: 'tulips '" in line

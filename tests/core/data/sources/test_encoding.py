import json
import tarfile

import pytest

from kosmos.errors import DataError, SampleError

ROWS = [("text", "n"), ("Wie heißt das?", "1"), ("Où est-ce?", "2")]
OF_KIND = {
    "csv": "".join(f"{text},{n}\r\n" for text, n in ROWS),
    "tsv": "".join(f"{text}\t{n}\r\n" for text, n in ROWS),
    "jsonl": "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text, _ in ROWS),
    "json": json.dumps([{"text": text} for text, _ in ROWS], ensure_ascii=False),
}


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_rows_in_utf_16_or_32_are_refused_with_what_to_do(tmp_path, open_, kind, encoding):
    (tmp_path / f"rows.{kind}").write_bytes(OF_KIND[kind].encode(encoding))
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    said = rf"rows.{kind}: expected UTF-8, got {name}; convert it \(iconv -f {name} -t UTF-8 OLD > NEW\), or save it as"
    with pytest.raises(DataError, match=said) as caught:
        open_(tmp_path / f"rows.{kind}")
    assert ("Excel" in str(caught.value)) == (kind in ("csv", "tsv"))


@pytest.mark.parametrize("kind", OF_KIND)
def test_rows_in_latin_1_say_how_to_convert_the_file(tmp_path, open_, kind):
    text = OF_KIND[kind] if kind in ("csv", "tsv") else OF_KIND[kind].replace('"text"}', '"täxt"}')
    (tmp_path / f"rows.{kind}").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"none of its . rows can be read; .*Latin-1, convert it \(iconv -f CP1252 -t"):
        open_(tmp_path / f"rows.{kind}")


def test_a_header_in_latin_1_says_so(tmp_path, open_):
    (tmp_path / "rows.csv").write_bytes("größe,text\n1,x\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"rows.csv: not UTF-8 at byte 2 of the first line; .*iconv -f CP1252"):
        open_(tmp_path / "rows.csv")


def test_a_text_file_in_utf_16_costs_its_own_documents_and_says_so(tmp_path, open_):
    (tmp_path / "a.txt").write_text("whole\n", encoding="utf-8")
    (tmp_path / "b.txt").write_bytes("größer\n".encode("utf-16"))
    source = open_(tmp_path, held_out=0.0)
    assert source.document(0).segments[0].text == "whole\n"
    with pytest.raises(SampleError, match=r"b.txt:1: expected UTF-8, got UTF-16; convert it .*, or save it as UTF-8$"):
        source.document(1)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_text_file_in_utf_16_of_ascii_alone_says_so_though_it_is_utf_8_too(tmp_path, open_, encoding):
    (tmp_path / "b.txt").write_bytes("plain words\nof Latin letters\n".encode(encoding))
    with pytest.raises(SampleError, match=r"b.txt:1: expected UTF-8, got UTF-(16|32)[LB]E; convert it \(iconv"):
        open_(tmp_path / "b.txt", held_out=0.0).document(0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_the_text_of_a_medium_in_utf_16_says_so(tmp_path, open_, encoding):
    pair = tmp_path / "pair"
    pair.mkdir()
    (pair / "1.png").write_bytes(b"picture")
    (pair / "1.txt").write_bytes("a cat\n".encode(encoding))
    with tarfile.open(tmp_path / "pairs.tar", "w") as archive:
        for file in sorted(pair.iterdir()):
            archive.add(file, file.name)
    for path, name in ((pair, r"1\.png: 1"), (tmp_path / "pairs.tar", r"pairs\.tar:1: ")):
        with pytest.raises(SampleError, match=rf"{name}\.txt: expected UTF-8, got UTF-..([LB]E)?; convert it \(iconv"):
            open_(path).document(0)


@pytest.mark.parametrize("data", [bytes(4096), b"\0\0\n\0", b"a\0b\n", b""])
def test_zeros_alone_are_not_taken_for_utf_16(tmp_path, open_, data):
    (tmp_path / "rows.jsonl").write_bytes(data)
    with pytest.raises(DataError) as caught:
        open_(tmp_path / "rows.jsonl")
    assert "UTF-16" not in str(caught.value)
    assert "UTF-32" not in str(caught.value)

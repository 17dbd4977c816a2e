"""Nested paths lead into texts that are JSON, for every kind of rows alike."""

from __future__ import annotations

import csv
import json
import tarfile
from io import BytesIO

import pytest

from kosmos.data.document import Media, Text
from kosmos.errors import SampleError

TRUTH = json.dumps({"gt_parse": {"total": "1.10", "menu": [{"nm": "tea"}, {"nm": "cake"}]}, "note": '{"by": "ann"}'})


def as_tar(path, row):
    with tarfile.open(path, "w") as archive:
        data = json.dumps(row).encode()
        entry = tarfile.TarInfo("0.json")
        entry.size = len(data)
        archive.addfile(entry, BytesIO(data))


@pytest.fixture(params=["jsonl", "json", "parquet", "csv", "tar"])
def written(request, rows, table, tmp_path):
    """Writes one row to a file of that kind."""

    def write(row):
        if request.param == "parquet":
            return table({name: [value] for name, value in row.items()})
        if request.param == "jsonl":
            return rows(row)
        path = tmp_path / f"rows.{request.param}"
        if request.param == "json":
            path.write_text(json.dumps([row]))
        elif request.param == "tar":
            as_tar(path, row)
        else:
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([row.keys(), row.values()])
        return path

    return write


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("truth.gt_parse.total", "1.10"),
        ("truth.gt_parse.menu[-1].nm", "cake"),
        ("truth.note.by", "ann"),
    ],
)
def test_a_path_leads_into_a_text_of_json_whatever_the_rows_are_in(open_, written, path, expected):
    file = written({"truth": TRUTH, "question": "How much?"})
    by_template = open_(file, template=f"{{question}}\n→ {{{path}}}").document(0)
    assert by_template.segments[-1] == Text(expected, train=True)
    source = open_(file, columns={"query": "question", "response": path})
    assert Text(expected, train=True) in source.document(0).segments
    assert source.value(0, path) == expected


def test_rows_of_donut(open_, rows):
    truth = json.dumps({"gt_parse": {"company": "Käse & Co"}}, ensure_ascii=False)
    path = rows({"file_name": "a.png", "ground_truth": truth}, name="receipts/metadata.jsonl")
    source = open_(path.parent, template="[image:file_name] → {ground_truth.gt_parse.company}")
    medium, text = source.document(0).segments
    assert isinstance(medium, Media) and text == Text("Käse & Co", train=True)


def test_rows_are_held_out_and_weighed_by_what_a_text_of_json_says(open_, rows):
    path = rows(*({"text": f"{n}", "meta": json.dumps({"fold": n % 2, "trust": n / 2})} for n in range(4)))
    source = open_(path, columns={"weight": "meta.trust", "group": "meta.fold"}, held_out=0.5)
    assert [source.document(i).weight for i in range(len(source))] in ([0.0, 1.0], [0.5, 1.5])


@pytest.mark.parametrize(
    ("text", "path", "cause"),
    [
        ("plain words", "a.b", r"no column 'a\.b': a is text, and no JSON of an object or a list"),
        ("12", "a.b", r"no column 'a\.b': a is text, and no JSON"),
        ('{"b": 1', "a.b", r"no column 'a\.b': a is text that is no JSON \(Expecting"),
        ('{"b": "x"}', "a.b.c", r"no column 'a\.b\.c': a\.b is text, and no JSON"),
        ('{"bb": 1}', "a.b", r"no column 'a\.b'; there are: bb"),
        ("[1]", "a.b", r"no column 'a\.b'$"),
        ("x", "a[0]", r"\[0\] needs a list, got a string: a is text, and no JSON"),
        ("[" * 100_000, "a[0]", r"a is text that is no JSON"),
    ],
)
def test_a_text_that_is_no_json_says_that_it_is_text(open_, rows, text, path, cause):
    source = open_(rows({"a": text}), template=f"{{{path}}}")
    with pytest.raises(SampleError, match=cause):
        source.document(0)


def test_a_column_of_exactly_that_name_goes_first(open_, rows):
    source = open_(rows({"a": '{"b": "within"}', "a.b": "own"}), template="{a.b}")
    assert source.document(0).segments == (Text("own", train=True),)

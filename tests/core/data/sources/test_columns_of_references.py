"""Right answers that stand in several columns, as captions do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kosmos import ConfigError, load_plugins, make_run, open_rows, open_sources

CAPTIONS = "name,caption_1,caption_2,caption_3\n1,A dog barks,[Music] plays,A hound\n2,Rain,,Water\n"


def opened(tmp_path: Path, table: str = CAPTIONS, **source: Any) -> Any:
    (tmp_path / "a.csv").write_text(table)
    entry = {"path": str(tmp_path / "a.csv"), **source}
    config = make_run({"modalities": [], "data": {"sources": [entry], "held_out": 0}})
    return open_sources(config, load_plugins(), "train")[0]


@pytest.mark.parametrize("how", [{"template": "{name}: → {caption_1}"}, {}])
def test_references_of_several_columns_are_all_right(tmp_path: Path, how: dict[str, Any]) -> None:
    columns = {"references": ["caption_1", "caption_2", "caption_3"], **({} if how else {"text": "caption_1"})}
    source = opened(tmp_path, columns=columns, **how)
    assert source.document(0).references == ("A dog barks", "[Music] plays", "A hound")
    assert source.document(1).references == ("Rain", "Water")
    assert source.document(0).segments[-1].text.strip() == "A dog barks"


def test_a_column_of_references_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"columns\.references\[1\]: no column 'caption_9'"):
        opened(tmp_path, columns={"text": "caption_1", "references": ["caption_1", "caption_9"]})


def test_other_roles_have_one_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"columns\.text: expected one column; several"):
        opened(tmp_path, columns={"text": ["caption_1", "caption_2"]})


def test_a_run_that_is_saved_names_them_as_before(tmp_path: Path) -> None:
    config = make_run({"data": {"sources": [{"path": "a.csv", "columns": {"references": ["a", "b"]}}]}})
    again = make_run(config.model_dump(mode="json"))
    assert again.data.sources == config.data.sources


def test_rows_in_memory_name_them_likewise() -> None:
    rows = [{"text": "one", "b": "uno"}, {"text": "two", "b": "due"}]
    source = open_rows(make_run({"modalities": []}), rows, columns={"references": ["text", "b"]})
    assert source.document(0).references == ("one", "uno")


@pytest.mark.parametrize("how", [{"template": "{name}: → {c2}"}, {}])
def test_lists_of_json_in_several_columns_are_read(tmp_path: Path, how: dict[str, Any]) -> None:
    table = 'name,c1,c2\n1,"[""x"", ""y""]",z\n2,[Music],z\n3,"[1, 2]",[]\n'
    columns = {"references": ["c1", "c2"], **({} if how else {"text": "c2"})}
    source = opened(tmp_path, table, columns=columns, **how)
    found = [source.document(number).references for number in range(3)]
    assert found == [("x", "y", "z"), ("[Music]", "z"), ("[1, 2]", "[]")]


def test_the_inner_name_of_a_second_column_is_no_role(tmp_path: Path) -> None:
    line = r"columns\.references\[1\]: no modality and no role; name several as a list \(columns: {references: \["
    with pytest.raises(ConfigError, match=line):
        opened(tmp_path, columns={"text": "caption_1", "references[1]": "caption_2"})

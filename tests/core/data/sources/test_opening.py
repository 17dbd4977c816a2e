"""What ``open_source`` takes, and what it says about the rest."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from kosmos.data.sources import open_source
from kosmos.errors import ConfigError, DataError, KosmosError


def test_registered_dataset_is_built_with_its_options(open_):
    source = open_("rhymes", split="held_out", options={"lines": 5})
    assert (len(source), source.name) == (5, "rhymes")
    assert source.document(0).segments[0].text == "held_out 0"


def test_registered_dataset_under_another_name(open_):
    source = open_("rhymes", name="poems")
    assert source.name == "poems"
    assert source.document(1).origin == "rhyme 1"
    assert pickle.loads(pickle.dumps(source)).name == "poems"


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"options": {"line": 5}}, r"data.sources\[0\].options.line: unknown field; did you mean lines\?"),
        ({"options": {"lines": "many"}}, r"data.sources\[0\].options.lines: expected int"),
        ({"options": {"lines": 0}}, "its train part is empty"),
        ({"template": "{text}"}, "template and columns do not apply"),
        ({"columns": {"text": "x"}}, "template and columns do not apply"),
    ],
)
def test_wrong_settings_of_a_registered_dataset(open_, given, cause):
    with pytest.raises(KosmosError, match=cause):
        open_("rhymes", where="data.sources[0]", **given)


def test_registered_dataset_of_another_modality_says_what_to_add(open_):
    with pytest.raises(DataError, match=r"dataset 'pictures' holds image.*add image to --modalities"):
        open_("pictures", modalities=("audio",))
    assert len(open_("pictures", modalities=("image",))) == 3


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("rymes", r"no registered dataset \(did you mean rhymes\?\), no file or folder, and no hub id"),
        ("/nowhere/at/all", r"no registered dataset \(rhymes, pictures\), no file or folder"),
        ("", "no file or folder"),
        ("a\0b", "no file or folder"),
        ("x" * 5000, "no file or folder"),
    ],
)
def test_nothing_there_says_what_was_tried(open_, path, cause):
    with pytest.raises(DataError, match=cause) as caught:
        open_(path)
    assert "\n" not in caught.value.line()


def test_hub_id_offline_fails_at_once_in_one_line(open_):
    with pytest.raises(DataError, match="hub dataset 'nobody/nothing:config'") as caught:
        open_("nobody/nothing:config")
    assert "\n" not in caught.value.line()


def test_files_of_other_kinds_are_refused(open_, tmp_path):
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match=r"expected a .jsonl, .parquet or .txt file"):
        open_(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"no media in class folders \(suffixes of the installed modalities: .flac"):
        open_(tmp_path)


def test_folder_of_several_kinds_of_data_files_asks_for_one(open_, rows, tmp_path):
    rows({"text": "x"})
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"several kinds \(1 .jsonl, 1 .txt\); name a file"):
        open_(tmp_path)


def test_unknown_options_and_columns_name_the_nearest(open_, rows):
    path = rows({"text": "x"})
    with pytest.raises(ConfigError, match=r"options.chunk_char: unknown field; did you mean chunk_chars\?"):
        open_(path, options={"chunk_char": 5})
    with pytest.raises(ConfigError, match=r"columns.imgae: no modality and no role; did you mean image\?"):
        open_(path, columns={"imgae": "picture"})


def test_names_of_sources(open_, rows, tmp_path):
    path = rows({"text": "x"}, name="poems.v2.jsonl")
    assert open_(path).name == "poems.v2"
    assert open_(path, name="mine").name == "mine"
    for name in ("a.png", "b.wav"):
        (tmp_path / name).unlink()
    assert open_(f"{tmp_path}/").name == tmp_path.name


def test_sources_load_in_a_fresh_process_without_torch(open_, rows, tmp_path):
    sources = [
        open_(rows({"image": "a.png", "text": "x"}, {"text": "y"})),
        open_(rows({"q": "x", "a": "y"}, name="qa.jsonl"), template="{q} → {a}"),
    ]
    (tmp_path / "book.txt").write_text("some text")
    sources.append(open_(tmp_path / "book.txt"))
    (tmp_path / "sources.pickle").write_bytes(pickle.dumps(sources))
    program = (
        "import pickle, sys\n"
        f"sources = pickle.load(open({str(tmp_path / 'sources.pickle')!r}, 'rb'))\n"
        "print([s.document(i).origin for s in sources for i in range(len(s))])\n"
        "print('torch' in sys.modules, 'pyarrow' in sys.modules, 'datasets' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    origins = [s.document(i).origin for s in sources for i in range(len(s))]
    assert run.stdout.splitlines() == [str(origins), "False False False"]


def test_open_source_needs_no_torch():
    program = (
        "import sys, kosmos.data.sources; print([m for m in ('torch', 'pyarrow', 'datasets') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_registry_is_only_asked_for_datasets_and_modalities(registry, rows):
    asked = []

    class Watched:
        def specs(self, kind):
            asked.append(kind)
            return registry.specs(kind)

    open_source(str(rows({"text": "x"})), split="train", registry=Watched(), modalities=())
    assert set(asked) == {"dataset", "modality"}

"""What ``open_source`` takes, and what it says about the rest."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import PurePosixPath
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kosmos.components import DatasetSpec
from kosmos.data.sources import open_source
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.since import opened_before
from kosmos.data.sources.splits import split_of, splits_of_files
from kosmos.errors import ConfigError, DataError, KosmosError
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry


@given(st.text(st.sampled_from("aB./é "), max_size=12))
def test_suffixes_and_stems_are_those_of_pathlib(name):
    name = name.strip("/")
    assume("//" not in name and "/./" not in f"/{name}/")  # as no listing of a folder has them
    assert (suffix_of(name), stem_of(name)) == (PurePosixPath(name).suffix.lower(), PurePosixPath(name).stem)


@given(st.lists(st.lists(st.sampled_from(["train", "test", "a", "test.txt", "b.val.csv"]), min_size=1, max_size=3)))
def test_the_split_of_a_file_is_the_first_that_its_folders_or_its_stem_say(names):
    said = [next(filter(None, map(split_of, (*parts[:-1], PurePosixPath(parts[-1]).stem))), None) for parts in names]
    assert splits_of_files(["/".join(parts) for parts in names]) == said


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
        ({"template": "{text}"}, "template, columns, root and rows do not apply"),
        ({"columns": {"text": "x"}}, "template, columns, root and rows do not apply"),
    ],
)
def test_wrong_settings_of_a_registered_dataset(open_, given, cause):
    with pytest.raises(KosmosError, match=cause):
        open_("rhymes", where="data.sources[0]", **given)


def test_registered_dataset_of_another_modality_says_what_to_add(open_):
    with pytest.raises(DataError, match=r"dataset 'pictures' holds image.*a run with image among its --modalities"):
        open_("pictures", modalities=("audio",))
    assert len(open_("pictures", modalities=("image",))) == 3


def test_text_among_the_modalities_of_a_dataset_adds_nothing(registry):
    target = "kosmos_test_rhymes:Rhymes"
    sets = {
        name: DatasetSpec(name=name, target=target, summary="Lines.", modalities=modalities)
        for name, modalities in {"verses": ("text",), "captions": ("text", "image")}.items()
    }
    module = ModuleType("kosmos_test_verses")
    vars(module).update(KOSMOS_API=1, kosmos_datasets=hookimpl(lambda: sets.values()))
    more = Registry.from_modules({"more": module}, core=False)
    assert len(open_source("verses", registry=more, split="train", modalities=())) == 3
    with pytest.raises(DataError, match=r"dataset 'captions' holds image, which this run has not"):
        open_source("captions", registry=more, split="train", modalities=())


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("rymes", r"no registered dataset \(did you mean rhymes\?\), no file or folder, and no hub id"),
        ("/nowhere/at/all", r"no registered dataset \(rhymes, pictures\), no file or folder"),
        ("https://example.org/rows.jsonl", r"addresses are not read; download it and name the file or folder"),
        ("s3://bucket/rows", r"addresses are not read; .* or give a hub id \(namespace/name\)"),
        ("rhymes,pictures", r"these are 2 sources; give each a --data of its own"),
        ("rhymes, pictures", r"these are 2 sources; give each a --data of its own"),
        ("rhymes,nothing", r"no registered dataset \(rhymes, pictures\), no file or folder, "),
        ("", "no file or folder"),
        ("a\0b", "no file or folder"),
        ("x" * 5000, "no file or folder"),
    ],
)
def test_nothing_there_says_what_was_tried(open_, path, cause):
    with pytest.raises(DataError, match=cause) as caught:
        open_(path)
    assert "\n" not in caught.value.line()


def test_a_file_of_nearly_this_name_may_have_been_meant(open_, tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=rf"no file or folder \(did you mean {tmp_path}/photos\?\)"):
        open_(tmp_path / "foto-s")
    with pytest.raises(DataError, match=r"no file or folder, and"):  # the same folder is no likeness
        open_(tmp_path / "cl")


NO_SUCH_ID = "data 'nobody/nothing:config': no such file or folder, and as a dataset of the hub: "


def test_hub_id_offline_fails_at_once_in_one_line(open_):
    with pytest.raises(DataError, match=NO_SUCH_ID) as caught:
        open_("nobody/nothing:config")
    assert "\n" not in caught.value.line()


def test_files_of_other_kinds_are_refused(open_, tmp_path):
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(DataError, match=r"expected a .jsonl, .json, .parquet, .csv, .tsv, .tar or .txt file"):
        open_(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match=r"no media \(suffixes of the installed modalities: .flac, .*; found: 1 .xlsx$"):
        open_(tmp_path)


def test_a_folder_of_json_files_is_told_to_be_named_file_by_file(open_, tmp_path):
    for name in ("a.json", "b.json", "README.md", "notes.docx"):
        (tmp_path / name).write_text('[{"text": "x"}]')
    each = rf"\(--data {tmp_path}/a.json, --data {tmp_path}/b.json\)$"
    for root in (None, tmp_path):
        with pytest.raises(DataError, match=f"a folder of .json files is not read as a whole; name each.* {each}"):
            open_(tmp_path, root=root)
    (tmp_path / "c.jsonl").write_text('{"text": "x"}')
    assert len(open_(tmp_path, root=tmp_path)) == 1
    (tmp_path / "c.jsonl").rename(tmp_path / "c.png")
    with pytest.raises(DataError, match="holds media and no texts of theirs"):
        open_(tmp_path)


def test_a_folder_of_media_alone_is_told_what_texts_it_needs(open_, tmp_path):
    for name in ("one.mp4", "two.mp4", "3.png", "notes.docx"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=r"holds media and no texts of theirs") as refused:
        open_(tmp_path, modalities=("video",))
    assert str(refused.value) == (
        f"{tmp_path}: holds media and no texts of theirs (2 .mp4, 1 .png, such as 3.png); put a text of its name "
        'beside each (3.txt), list them in a manifest.jsonl ({"image": "3.png", "text": "..."}), or sort them into '
        "folders that are named by what is to be learned (CLASS/3.png)"
    )


COMPANIONS = {
    "b.jsonl.gz": ".jsonl.gz", "c.ndjson": ".ndjson", "sub/d.jsonl.zst": ".jsonl.zst", "LICENSE": "no suffix",
    "README.md": ".md", "README.txt": ".txt", "dataset_infos.json": ".json", "labels.csv": ".csv", "e.json.bak": ".bak",
}  # fmt: skip


def test_files_beside_data_files_are_counted(open_, rows, tmp_path):
    rows({"text": "one"}, name="set/a.jsonl")  # beside media that rows may name
    rows({"text": "two"}, name="set/sub/b.jsonl")
    (tmp_path / "set" / "sub" / "a.png").unlink()
    (tmp_path / "set" / "sub" / "b.wav").unlink()
    for name in (*COMPANIONS, ".hidden.gz", ".cache/x.gz"):
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / name).write_bytes(b"x")
    (tmp_path / "set" / "linked.gz").symlink_to(tmp_path / "set" / "b.jsonl.gz")
    source = open_(tmp_path / "set")
    told = [suffix for name, suffix in COMPANIONS.items() if not tells_of_data(name)]
    assert (len(source), source.left_out) == (2, Counter([*told, ".gz"]))


def test_files_beside_shards_and_texts_are_counted(open_, tmp_path):
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        (tmp_path / "1.tar.gz").write_bytes(b"x")
        archive.add(tmp_path / "1.tar.gz", "1.txt")
    assert open_(tmp_path).left_out == {".tar.gz": 1}
    (tmp_path / "0.tar").unlink()
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.mp4").write_bytes(b"film")
    source = open_(tmp_path, modalities=())
    assert source.left_out == {".tar.gz": 1, ".mp4": 1}


def test_a_folder_in_which_no_row_is_left_tells_what_was_passed_over(open_, rows, tmp_path):
    rows(name="set/a.jsonl")
    (tmp_path / "set" / "b.jsonl.gz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"set: holds no rows; passed over: 1 \(.jsonl.gz\)$"):
        open_(tmp_path / "set")
    rows({"image": "a.png", "text": "x"}, name="set/a.jsonl")
    with pytest.raises(
        DataError, match=r"no row is left \(1 with image\); .* --modalities; passed over: 1 \(.jsonl.gz\)$"
    ):
        open_(tmp_path / "set", modalities=("audio",))


@pytest.mark.parametrize(
    ("name", "command"), [("a.jsonl.lz4", "unlz4"), ("a.tar.gz", "gunzip"), ("a.TGZ", "gunzip"), ("a.zst", "unzstd")]
)
def test_compressed_files_are_to_be_decompressed_first(open_, tmp_path, name, command):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=rf"{name}: such compressed files are not read; decompress it .* \({command}\)"):
        open_(tmp_path / name)
    with pytest.raises(DataError, match=rf"found: 1 {name[name.rfind('.') :].lower()}; decompress the .* \({command}"):
        open_(tmp_path)


def test_folder_of_several_kinds_of_data_files_asks_for_one(open_, rows, tmp_path):
    rows({"text": "x"})
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"several kinds \(1 .jsonl, 1 .txt\); name a file"):
        open_(tmp_path)


@pytest.mark.parametrize(
    ("medium", "advice"),
    [
        ("images/1.png", r"or move the rows elsewhere to train on the names of the folders"),
        ("images/cat/1.png", r"or the folder of media \(--data {folder}/images\)"),
    ],
)
def test_folder_of_rows_beside_media_asks_for_one(open_, rows, tmp_path, medium, advice):
    file = rows({"text": "x"}, name="set/train.jsonl")
    (tmp_path / "set" / medium).parent.mkdir(parents=True)
    (tmp_path / "set" / medium).write_bytes(b"picture")
    cause = rf"set: holds media in class folders \(such as {medium}\) and data files \(1 .jsonl\); name the file "
    with pytest.raises(DataError, match=cause + rf"\(--data {file}\) {advice.format(folder=tmp_path / 'set')}"):
        open_(tmp_path / "set")


def test_rows_in_the_only_folder_of_media_have_to_be_named_or_moved(open_, rows, tmp_path):
    rows({"text": "x"}, name="set/train/metadata.jsonl")
    (tmp_path / "set" / "train" / "cat").mkdir()
    (tmp_path / "set" / "train" / "cat" / "1.png").write_bytes(b"picture")
    with pytest.raises(DataError, match=r"name the file \(--data .*/set/train/metadata.jsonl\) or move the rows"):
        open_(tmp_path / "set")


def test_list_of_labels_may_lie_beside_class_folders(open_, tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"picture")
    (tmp_path / "labels.txt").write_text("cat")
    assert open_(tmp_path).left_out == {".txt": 1}


def test_pipes_of_a_folder_are_passed_over(open_, rows, tmp_path):
    rows({"text": "x"}, name="set/a.jsonl")
    for name in ("a.png", "b.wav"):
        (tmp_path / "set" / name).unlink()
    (tmp_path / "set" / "b.jsonl").symlink_to("a.jsonl")
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "set")
    os.mkfifo(tmp_path / "set" / "c.jsonl")
    (tmp_path / "set" / "d.jsonl").symlink_to("c.jsonl")
    assert len(open_(tmp_path / "set")) == 2
    with pytest.raises(DataError, match=r"set/c.jsonl': neither a file nor a folder"):
        open_(tmp_path / "set" / "c.jsonl")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json", "manifest.jsonl", "metadata.jsonl"])
def test_a_link_out_of_a_folder_is_followed_where_it_is_named_or_the_run_has_it(open_, tmp_path, name):
    folder, secret = tmp_path / "set", tmp_path / "secret"
    folder.mkdir()
    row, modalities = {"text": "x"}, ()
    if name == "metadata.jsonl":
        (folder / "1.png").write_bytes(b"x")
        row, modalities = row | {"file_name": "1.png"}, ("image",)
    secret.write_text(f"{json.dumps(row)}\n" * 2)
    count = 1 if name == "a.txt" else 2
    (folder / name).symlink_to("../secret")
    itself = re.escape(f"{folder / name}: a link that leads out of {folder} (to {secret}) is refused; where that is ")
    with pytest.raises(DataError, match=rf"^{itself}meant, name the file itself \(--data {folder / name}\)"):
        open_(folder, modalities=modalities)
    with opened_before():
        assert len(open_(folder, modalities=modalities)) == count
    if name in ("a.txt", "a.jsonl"):
        assert len(open_(f"{folder}/a.*")) == count
        assert len(open_(folder, root=tmp_path)) == count


def test_snapshots_of_the_hub_link_to_blobs_and_other_folders_of_links_are_named_by_a_pattern(open_, tmp_path):
    snapshot, blobs = tmp_path / "repo/snapshots/abc", tmp_path / "repo/blobs"
    (snapshot / "data").mkdir(parents=True)
    blobs.mkdir()
    for number in range(2):
        (blobs / str(number)).write_text('{"text": "x"}\n')
        (snapshot / f"data/{number}.jsonl").symlink_to(f"../../../blobs/{number}")
    assert len(open_(snapshot)) == len(open_(snapshot / "data")) == 2
    (snapshot / "data").rename(tmp_path / "data")
    for number in range(2):
        (tmp_path / f"data/{number}.jsonl").unlink()
        (tmp_path / f"data/{number}.jsonl").symlink_to(blobs / str(number))
    with pytest.raises(DataError, match=r"name the files by a pattern \(--data '.*/data/\*.jsonl'\)$"):
        open_(tmp_path / "data")
    assert len(open_(f"{tmp_path}/data/*.jsonl")) == 2


@pytest.mark.parametrize("target", ["gone.jsonl", "a.jsonl"])
def test_link_that_leads_nowhere_is_said_to(open_, tmp_path, target):
    (tmp_path / "a.jsonl").symlink_to(target)
    with pytest.raises(DataError, match=r"a.jsonl: cannot be read \("):
        open_(tmp_path)


def test_unknown_options_and_columns_name_the_nearest(open_, rows):
    path = rows({"text": "x"})
    with pytest.raises(ConfigError, match=r"options.chunk_char: unknown field; did you mean chunk_chars\?"):
        open_(path, options={"chunk_char": 5})
    with pytest.raises(ConfigError, match=r"columns.imgae: no modality and no role; did you mean image\?"):
        open_(path, columns={"imgae": "picture"})
    with pytest.raises(ConfigError, match=r"columns.caption: no modality and no role; the role comes first: text: cap"):
        open_(path, columns={"caption": "text"})
    with pytest.raises(
        ConfigError, match=r"columns.label: no modality and no role; there are: .*, clip, .*, query, .*, tools"
    ):
        open_(path, columns={"label": "klass"})


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


def test_registry_is_only_asked_for_datasets_corpora_and_modalities(registry, rows):
    asked = []

    class Watched:
        def specs(self, kind):
            asked.append(kind)
            return registry.specs(kind)

    open_source(str(rows({"text": "x"})), split="train", registry=Watched(), modalities=())
    assert set(asked) == {"dataset", "corpus", "modality"}


def test_a_name_that_is_mistyped_is_no_hub_id(open_, tmp_path):
    (tmp_path / "swift.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"swfit\.jsonl': no such file; did you mean .*/swift\.jsonl\?"):
        open_(tmp_path / "swfit.jsonl")


def test_pictures_beside_texts_of_other_names_are_asked_about(open_, tmp_path):
    for name in ("1.png", "one.txt", "2.png", "two.txt"):
        (tmp_path / name).write_bytes(b"a caption")
    with pytest.raises(
        DataError, match=r"holds 2 files of media \(such as 1\.png\) beside \.txt files of other .* one name \(1\.txt\)"
    ):
        open_(tmp_path, modalities=("image",))
    assert len(open_(tmp_path, modalities=())) == 1 + 1


def test_folders_that_are_named_by_splits_are_no_classes(open_, tmp_path):
    for name in ("train/1.png", "test/2.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=r"\(such as test/2\.png\) are named by splits and say nothing to learn"):
        open_(tmp_path, modalities=("image",))


def test_a_modality_in_place_of_data_is_said_to_be_one(open_):
    with pytest.raises(DataError, match=r"data 'image': is a modality, not a data set; name .*--modalities image w"):
        open_("image")


@pytest.mark.parametrize("given", ["image,audio", "audio, text"])
def test_modalities_in_place_of_data_are_said_to_be_some(open_, given):
    several = given.replace(" ", "")
    said = rf"data '{given}': these are modalities, not data sets; name .* train --modalities {several} without --data"
    with pytest.raises(DataError, match=said):
        open_(given)


def test_a_plugin_that_may_have_brought_the_data_set_is_named_with_its_fault():
    def kosmos_datasets():
        raise RuntimeError("no licence")

    plugin = ModuleType("sonar")
    vars(plugin).update(KOSMOS_API=1, kosmos_datasets=hookimpl(kosmos_datasets))
    with pytest.raises(DataError, match=r"no registered dataset .* \(namespace/name\); it may be") as caught:
        open_source("pings", split="train", registry=Registry.from_modules({"sonar": plugin}), modalities=())
    fault = "missing because of the broken plugin sonar (sonar): kosmos_datasets raised RuntimeError: no licence"
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("row", "modalities", "advice"),
    [
        ({"audio_filepath": "b.wav"}, ("image", "audio"), r"name the column: .*columns: {audio: audio_filepath}}'$"),
        ({"path": "b.wav"}, ("image", "audio"), r"name the column: .*columns: {audio: path}}'$"),
        ({"path": "a.png"}, ("audio", "image"), r"name the column: .*columns: {image: path}}'$"),
        ({"audio_filepath": "b.snd"}, ("image", "audio"), r"name the column: .*columns: {audio: audio_filepath}}'$"),
        (
            {"path": "b.wav"},
            ("image",),
            r"needs a run with audio among its --modalities; name the column: .*columns: {audio: path}}'$",
        ),
        (
            {"path": "b.wav"},
            (),
            r"for the text alone give a template .*, or this needs a run with audio .*{audio: path}}'$",
        ),
        ({"thermal": "a.png"}, ("audio", "image"), r"{image: thermal}}', or install the plugin for thermal$"),
        ({"cloud": "b.ply"}, ("image",), r"{image: cloud}}', or install the plugin for cloud$"),
    ],
)
def test_a_column_that_nobody_named_is_named_for_the_modality_of_its_files(open_, rows, row, modalities, advice):
    path = rows({**row, "text": "x"})
    for name in ("b.snd", "b.ply"):
        (path.parent / name).write_bytes(b"there")
    with pytest.raises(DataError, match=advice):
        open_(path, modalities=modalities)


def test_a_path_into_a_folder_that_is_here_is_not_looked_up_elsewhere(open_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Smith_John" / "ct_scan").mkdir(parents=True)
    with pytest.raises(
        DataError, match=r"no such file or folder in Smith_John; did you mean Smith_John/ct_scan\?; it is"
    ) as raised:
        open_("Smith_John/ct_scans")
    assert "not looked up at the hub" in str(raised.value)

"""Ranks that somebody starts one by one, as on several nodes, and that were not told the same."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos.checkpoint.folder import load_newest
from kosmos.cli import main
from kosmos.data.bytes_tokenizer import ByteTokenizer
from support import drawn_once
from support.command import SMALL
from support.ranks import End, Told, start_ranks, train_in_turn
from support.torchrun import done, forked

RUN = (*SMALL, "data.lanes=2", "data.workers=0", "train.steps=2", "evaluate.max_documents=4")
SETTINGS = {
    "learning rate": ("train.learning_rate=0.5", "train.learning_rate: rank 0 has 0.0003, rank 1 has 0.5"),
    "width": ("backbone.width=64", "backbone.width: rank 0 has "),
    "checkpoints": ("checkpoint.every_steps=1", "checkpoint.every_steps: rank 0 has 200, rank 1 has 1"),
    "init": (
        "init=runs/nothing",
        "init: rank 0 has False, rank 1 has True; start all ranks with one installation",
    ),
}
"""What rank 1 is told beside, and what rank 0 says of it."""


def texts(folder: Path, rows: int) -> str:
    folder.mkdir(parents=True)
    file = folder / "texts.jsonl"
    file.write_text("".join(f'{{"text": "row {i} of them"}}\n' for i in range(rows)))
    return f"data.sources=[{{path: '{file}'}}]"


def setting(home: Path, field: str) -> list[Told]:
    told = ("--output", home / "run", *RUN, texts(home / "data", 60))
    return [told, (*told, field)]


def tokenizers(home: Path) -> list[Told]:
    """Other files under one name; each rank runs in a folder of its own."""
    for rank, marks in enumerate((("<a>",), ("<a>", "<b>"))):
        ByteTokenizer(marks).save(home / str(rank) / "words")
    told = ("--output", home / "run", *RUN, texts(home / "data", 60), "tokenizer=words")
    return [told, told]


def data(home: Path) -> list[Told]:
    told = ("--output", home / "run", *RUN)
    return [(*told, texts(home / "one", 60)), (*told, texts(home / "other", 40))]


def shards(home: Path) -> list[Told]:
    """As many rows under the same names, of which the files of one node were exchanged."""
    told = ("--output", home / "run", *RUN)
    for node, letters in (("one", "ab"), ("other", "ba")):
        (home / node).mkdir(parents=True)
        for number, letter in enumerate(letters):
            rows = [f'{{"id": "{letter}{i}", "text": "row {i}"}}\n' for i in range(30)]
            (home / node / f"{number}.jsonl").write_text("".join(rows))
    return [(*told, f"data.sources=[{{path: '{home / node}', name: texts}}]") for node in ("one", "other")]


def absent(home: Path) -> list[Told]:
    told = ("--output", home / "run", *RUN)
    return [(*told, texts(home / "data", 60)), (*told, f"data.sources=[{{path: '{home / 'gone.jsonl'}'}}]")]


def resumed_by_one(home: Path) -> list[Told]:
    told = ("--output", home / "run", *RUN, texts(home / "data", 60))
    assert main(["train", *map(str, told)]) == 0
    return [("--resume", home / "run"), told]


def unseen(home: Path) -> list[Told]:
    """The folder of the run lies in that in which a rank runs, of which each has one."""
    told = ("--output", "run", *RUN, texts(home / "data", 60))
    return [told, told]


def elsewhere(home: Path) -> list[Told]:
    """Both ranks see the folder of the run. Their data lie in other places, and their workers are not as many."""
    told = ("--output", home / "run", *RUN)
    return [(*told, texts(home / "one", 60)), (*told, texts(home / "other", 60), "data.workers=1")]


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[End]]]:
    """Cases that two ranks take in turn, by their names: a folder of each, and how the ranks ended."""
    home = tmp_path_factory.mktemp("cases")
    cases = {name: setting(home / name, field) for name, (field, _) in list(SETTINGS.items())[1:]}
    for made in (tokenizers, data, shards, absent, resumed_by_one, unseen, elsewhere):
        cases[made.__name__] = made(home / made.__name__)
    ends = train_in_turn(home, cases, own_folders=True)
    return lambda name: (home / name, ends[name])


def test_ranks_that_were_told_different_settings_all_end_and_the_first_says_which(tmp_path: Path) -> None:
    field, line = SETTINGS["learning rate"]
    programs = [("-m", "kosmos", "train", *told) for told in setting(tmp_path, field)]
    assert_refused(tmp_path, [run.end(at_most_s=90) for run in start_ranks(programs)], line)


@pytest.mark.parametrize("name", list(SETTINGS)[1:])
def test_the_first_of_two_ranks_says_which_setting_is_not_the_same(
    in_turn: Callable[[str], tuple[Path, list[End]]], name: str
) -> None:
    _, line = SETTINGS[name]
    assert_refused(*in_turn(name), line)


def assert_refused(home: Path, ends: list[End], line: str) -> None:
    (first, said), (other, silent) = ends
    assert (first, other) == (2, 2)
    assert f"error[config]: {line}" in said and "error" not in silent
    assert not (home / "run").exists()


def test_ranks_that_find_other_files_under_one_name_do_not_train(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    home, ((first, said), (other, silent)) = in_turn("tokenizers")
    assert (first, other) == (2, 2), said + silent
    assert re.search(
        r"error\[config\]: tokenizer: rank 0 has '(\d+) tokens, ids (\w{8})', rank 1 has '(?!\1)\d+ tokens, ids \2'; "
        "give every node the same files and packages",
        said,
    )
    assert not (home / "run").exists()


def test_ranks_whose_data_differ_do_not_train(in_turn: Callable[[str], tuple[Path, list[End]]]) -> None:
    home, ((first, said), (other, silent)) = in_turn("data")
    assert (first, other) == (3, 3)
    assert "error[data]: data.sources.0.documents: rank 0 has 57, rank 1 has 38; give every node the same" in said
    assert "error" not in silent
    assert not (home / "run").exists()


def test_ranks_whose_data_are_as_many_but_others_do_not_train(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    home, ((first, said), (other, silent)) = in_turn("shards")
    assert (first, other) == (3, 3), said + silent
    assert "error[data]: data.sources.0.fingerprint: rank 0 has " in said and "error" not in silent
    assert not (home / "run").exists()


def test_a_node_that_lacks_the_data_is_named(in_turn: Callable[[str], tuple[Path, list[End]]]) -> None:
    home, ((first, silent), (other, said)) = in_turn("absent")
    assert (first, other) == (3, 3), said + silent
    assert re.search(rf"gone.jsonl.* \(rank 1 alone, on {socket.gethostname()}\)$", said, re.MULTILINE)
    assert "error" not in silent
    assert not (home / "run").exists()


def test_a_rank_that_goes_on_and_one_that_begins_do_not_meet(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    _, ((first, said), (other, _)) = in_turn("resumed_by_one")
    assert (first, other) == (4, 4)  # a launcher starts them again: a node may see the folder of the run late
    assert "error[training]: --resume: rank 0 has True, rank 1 has False; give all ranks the same" in said


def test_a_folder_that_each_node_has_for_itself_is_found_out_before_the_first_step(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    home, ((first, silent), (other, said)) = in_turn("unseen")
    nodes = [home / "0", home / "1"]
    assert (first, other) == (2, 2), silent + said
    assert f"error[config]: run: rank 1 (on {socket.gethostname()}, in {nodes[1]}) does not see what rank 0" in said
    assert "error" not in silent
    assert not [*nodes[0].iterdir(), *nodes[1].iterdir()]


def test_data_may_lie_elsewhere_on_every_node_and_workers_be_as_many_as_it_has_cores_for(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    _, ends = in_turn("elsewhere")
    assert [status for status, _ in ends] == [0, 0], ends


def test_a_folder_that_all_see_keeps_nothing_of_the_look_at_it(
    in_turn: Callable[[str], tuple[Path, list[End]]],
) -> None:
    home, ends = in_turn("elsewhere")
    assert [status for status, _ in ends] == [0, 0], ends
    assert not [*(home / "run").glob(".seen*")]


def test_the_first_rank_alone_looks_at_given_documents_which_may_stand_in_another_order_on_each(tmp_path: Path) -> None:
    printed = done(forked(2, [drawn_once.__file__, tmp_path / "run"]))
    assert sorted(printed.splitlines()) == ["rank 0 read 32 rows first", "rank 1 read 0 rows first"]
    (told,) = load_newest(tmp_path / "run" / "checkpoints").state["order"]["data"]["sources"]
    assert told["fingerprint"]

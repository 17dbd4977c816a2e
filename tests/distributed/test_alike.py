"""Ranks that somebody starts one by one, as on several nodes, and that were not told the same."""

from __future__ import annotations

import inspect
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from kosmos import Document, Text, train_model
from kosmos.checkpoint.folder import load_newest
from kosmos.cli import main
from kosmos.data.bytes_tokenizer import ByteTokenizer
from support.command import SMALL
from support.ranks import End, Told, start_ranks, train_in_turn
from support.runs import small_run

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


IN_FOLDER = (
    "import os, sys; os.chdir(sys.argv.pop(1)); from kosmos.cli import main; from kosmos.train import alike; "
    "alike.SEEN_S = 2.0; sys.exit(main())"
)


def started(*ranks: Told, folders: Sequence[Path] = ()) -> list[End]:
    """Exit status of each rank and what it said, by what ``kosmos train`` of that rank is told.

    Args:
        folders: in which each of them runs.
    """
    programs = []
    for rank, told in enumerate(ranks):
        own = ("-c", IN_FOLDER, str(folders[rank])) if folders else ("-m", "kosmos")
        programs.append([*own, "train", *map(str, told)])
    return [run.end(at_most_s=90) for run in start_ranks(programs)]


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


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[End]]]:
    """Cases that two ranks take in turn, by their names: a folder of each, and how the ranks ended."""
    home = tmp_path_factory.mktemp("cases")
    cases = {name: setting(home / name, field) for name, (field, _) in list(SETTINGS.items())[1:]}
    cases |= {made.__name__: made(home / made.__name__) for made in (tokenizers, data, shards, absent, resumed_by_one)}
    ends = train_in_turn(home, cases, own_folders=True)
    return lambda name: (home / name, ends[name])


def test_ranks_that_were_told_different_settings_all_end_and_the_first_says_which(tmp_path: Path) -> None:
    field, line = SETTINGS["learning rate"]
    assert_refused(tmp_path, started(*setting(tmp_path, field)), line)


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


def test_a_folder_that_each_node_has_for_itself_is_found_out_before_the_first_step(tmp_path: Path) -> None:
    told = ("--output", "run", *RUN, texts(tmp_path / "data", 60))
    nodes = [tmp_path / "one", tmp_path / "other"]
    for node in nodes:
        node.mkdir()
    (first, silent), (other, said) = started(told, told, folders=nodes)
    assert (first, other) == (2, 2), silent + said
    assert f"error[config]: run: rank 1 (on {socket.gethostname()}, in {nodes[1]}) does not see what rank 0" in said
    assert "error" not in silent
    assert not [*nodes[0].iterdir(), *nodes[1].iterdir()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[End]]:
    """A folder that both ranks see, and their ends: of data in other places, with other numbers of workers."""
    home = tmp_path_factory.mktemp("trained")
    told = ("--output", "run", *RUN)
    ranks = (*told, texts(home / "one", 60)), (*told, texts(home / "other", 60), "data.workers=1")
    return home / "run", started(*ranks, folders=[home, home])


def test_data_may_lie_elsewhere_on_every_node_and_workers_be_as_many_as_it_has_cores_for(
    trained: tuple[Path, list[End]],
) -> None:
    _, ends = trained
    assert [status for status, _ in ends] == [0, 0], ends


def test_a_folder_that_all_see_keeps_nothing_of_the_look_at_it(trained: tuple[Path, list[End]]) -> None:
    output, ends = trained
    assert [status for status, _ in ends] == [0, 0], ends
    assert not [*output.glob(".seen*")]


class DrawnOnce:
    """Documents in an order that each process draws for itself, of which those of the first rank count."""

    name = "sums"

    def __init__(self) -> None:
        self.rows, self.reads = [*range(60)], 0
        Random(int(os.environ["RANK"])).shuffle(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def document(self, index: int) -> Document:
        callers = {frame.function for frame in inspect.stack(0)}
        self.reads += "sampled_fingerprint" in callers
        row = self.rows[index]
        return Document(f"sum {row}", (Text(f"{row} and 1: "), Text(str(row + 1), train=True)))


def train_on_drawn(output: str) -> None:
    source = DrawnOnce()
    config = small_run(Path(output), modalities=[], data={"lanes": 2, "workers": 0}, train={"steps": 2})
    train_model(config, sources=[source])
    print("read first:", source.reads, file=sys.stderr)


def test_the_first_rank_alone_looks_at_given_documents_which_may_stand_in_another_order_on_each(tmp_path: Path) -> None:
    program = ("-c", "import sys; from distributed.test_alike import train_on_drawn; train_on_drawn(sys.argv[1])")
    ends = [run.end(at_most_s=90) for run in start_ranks([[*program, tmp_path / "run"]] * 2)]
    assert [status for status, _ in ends] == [0, 0], ends
    assert [re.findall(r"read first: (\d+)", said) for _, said in ends] == [["32"], ["0"]]
    (told,) = load_newest(tmp_path / "run" / "checkpoints").state["order"]["data"]["sources"]
    assert told["fingerprint"]

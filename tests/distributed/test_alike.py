"""Ranks that somebody starts one by one, as on several nodes, and that were not told the same."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kosmos.data.bytes_tokenizer import ByteTokenizer
from support.command import SMALL, Started
from support.torchrun import LOOPBACK

RUN = (*SMALL, "data.lanes=2", "data.workers=0", "train.steps=2", "evaluate.max_documents=4")


def texts(folder: Path, rows: int) -> str:
    folder.mkdir()
    file = folder / "texts.jsonl"
    file.write_text("".join(f'{{"text": "row {i} of them"}}\n' for i in range(rows)))
    return f"data.sources=[{{path: '{file}'}}]"


IN_FOLDER = (
    "import os, sys; os.chdir(sys.argv.pop(1)); from kosmos.cli import main; from kosmos.train import alike; "
    "alike.SEEN_S = 2.0; sys.exit(main())"
)


def started(*ranks: tuple[object, ...], folders: Sequence[Path] = ()) -> list[tuple[int, str]]:
    """Exit status of each rank and what it said, by what ``kosmos train`` of that rank is told.

    Args:
        folders: in which each of them runs.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(len(ranks)), **LOOPBACK}
    runs = []
    for rank, told in enumerate(ranks):
        own = [sys.executable, "-c", IN_FOLDER, str(folders[rank]), "train", *map(str, told)] if folders else None
        runs.append(Started("train", *told, program=own, **place, RANK=str(rank), LOCAL_RANK=str(rank)))
    return [run.end(at_most_s=90) for run in runs]


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("train.learning_rate=0.5", "train.learning_rate: rank 0 has 0.0003, rank 1 has 0.5"),
        ("backbone.width=64", "backbone.width: rank 0 has "),
        ("checkpoint.every_steps=1", "checkpoint.every_steps: rank 0 has 200, rank 1 has 1"),
        ("init=runs/nothing", "init: rank 0 has False, rank 1 has True; start all ranks with one installation"),
    ],
)
def test_ranks_that_were_told_different_settings_all_end_and_the_first_says_which(
    tmp_path: Path, field: str, line: str
) -> None:
    told = ("--output", tmp_path / "run", *RUN, texts(tmp_path / "data", 60))
    (first, said), (other, silent) = started(told, (*told, field))
    assert (first, other) == (2, 2)
    assert f"error[config]: {line}" in said and "error" not in silent
    assert not (tmp_path / "run").exists()


def test_ranks_that_find_other_files_under_one_name_do_not_train(tmp_path: Path) -> None:
    nodes = [tmp_path / "one", tmp_path / "other"]
    for node, marks in zip(nodes, (("<a>",), ("<a>", "<b>")), strict=True):
        ByteTokenizer(marks).save(node / "words")
    told = ("--output", tmp_path / "run", *RUN, texts(tmp_path / "data", 60), "tokenizer=words")
    (first, said), (other, silent) = started(told, told, folders=nodes)
    assert (first, other) == (2, 2), said + silent
    assert re.search(
        r"error\[config\]: tokenizer: rank 0 has '(\d+) tokens, ids (\w{8})', rank 1 has '(?!\1)\d+ tokens, ids \2'; "
        "give every node the same files and packages",
        said,
    )
    assert not (tmp_path / "run").exists()


def test_ranks_whose_data_differ_do_not_train(tmp_path: Path) -> None:
    told = ("--output", tmp_path / "run", *RUN)
    (first, said), (other, silent) = started(
        (*told, texts(tmp_path / "one", 60)), (*told, texts(tmp_path / "other", 40))
    )
    assert (first, other) == (3, 3)
    assert "error[data]: data.sources.0.documents: rank 0 has 57, rank 1 has 38; give every node the same" in said
    assert "error" not in silent
    assert not (tmp_path / "run").exists()


def test_data_may_lie_elsewhere_on_every_node_and_workers_be_as_many_as_it_has_cores_for(tmp_path: Path) -> None:
    told = ("--output", tmp_path / "run", *RUN)
    ends = started((*told, texts(tmp_path / "one", 60)), (*told, texts(tmp_path / "other", 60), "data.workers=1"))
    assert [status for status, _ in ends] == [0, 0], ends


def test_a_rank_that_goes_on_and_one_that_begins_do_not_meet(tmp_path: Path) -> None:
    told = ("--output", tmp_path / "run", *RUN, texts(tmp_path / "data", 60))
    assert Started("train", *told).end()[0] == 0
    (first, said), (other, _) = started(("--resume", tmp_path / "run"), told)
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


def test_a_folder_that_all_see_keeps_nothing_of_the_look_at_it(tmp_path: Path) -> None:
    told = ("--output", "run", *RUN, texts(tmp_path / "data", 60))
    ends = started(told, told, folders=[tmp_path, tmp_path])
    assert [status for status, _ in ends] == [0, 0], ends
    assert not [*(tmp_path / "run").glob(".seen*")]

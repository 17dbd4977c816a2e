"""PyTorch's generators belong to the process: a run in a notebook or a thread leaves them as they were."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from kosmos import Reporter, generate_text, load_run, open_sources, resume_run, score, train_model
from kosmos.compose import compose
from kosmos.data.asked import prompt_of
from kosmos.model.weights import without_memory
from support.runs import rows_of, small_run, ticks_registry

DROPS = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48, "dropout": 0.3}


def state_of_the_process():
    numpy_state = np.random.get_state()
    return torch.get_rng_state().tolist(), numpy_state[1].tolist(), numpy_state[2], random.getstate()


def losses(run):
    return [row["loss"] for row in rows_of(run / "metrics.jsonl") if "loss" in row]


def test_what_a_run_draws_is_not_seen_by_whoever_draws_next(tmp_path):
    torch.manual_seed(5)
    before = state_of_the_process()
    run = train_model(small_run(tmp_path / "run", backbone=DROPS), registry=ticks_registry()).output
    resume_run(run, {"train": {"steps": 8}}, registry=ticks_registry())
    saved = load_run(run, registry=ticks_registry())
    held_out = open_sources(saved.composition.config, saved.composition.registry, "held_out")
    score(saved.composition, held_out, device="cpu", max_documents=4)
    generate_text(saved.composition, prompt_of(held_out[0].document(0))[0], max_new_tokens=2, temperature=1.0)
    assert state_of_the_process() == before


def test_what_a_caller_draws_between_steps_changes_no_step(tmp_path):
    class Drawing(Reporter):
        def step(self, row, steps):
            torch.manual_seed(row["step"])
            torch.rand(3)

    quiet, drawing = (
        train_model(small_run(tmp_path / name, backbone=DROPS), registry=ticks_registry(), reporter=reporter).output
        for name, reporter in (("quiet", Reporter()), ("drawing", Drawing()))
    )
    assert losses(quiet) == losses(drawing)


def test_runs_in_threads_of_one_process_come_to_what_each_comes_to_alone(tmp_path):
    def train(name):
        return losses(train_model(small_run(tmp_path / name, backbone=DROPS), registry=ticks_registry()).output)

    alone = train("alone")
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(train, ["first", "second", "third"])) == [alone] * 3


def test_composing_in_threads_draws_the_same_weights():
    def weights(_):
        return compose(small_run(), ticks_registry()).model.state_dict()

    first = weights(0)
    with ThreadPoolExecutor(4) as threads:
        for other in threads.map(weights, range(8)):
            assert all(torch.equal(first[name], other[name]) for name in first)


def test_what_another_thread_makes_has_memory():
    with without_memory(), ThreadPoolExecutor(1) as thread:
        assert torch.nn.Linear(2, 2).weight.is_meta
        assert not thread.submit(torch.nn.Linear, 2, 2).result().weight.is_meta

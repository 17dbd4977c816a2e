"""The search on machines of known speeds: what is chosen, after how many trials, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from kosmos.errors import TrainingError
from kosmos.tune.outcome import Facts, Outcome, Step, tokens_per_s, waiting
from kosmos.tune.search import AsTrained, Search
from kosmos.tune.settings import Settings

FACTS = Facts(
    device="cpu", device_name="CPU", precision="float32", parameters=20_000_000, cores=4, threads=4, processes=1,
    workers=1, most_workers=4, at_once_refused=None, compile_refused=None, longest=100,
)  # fmt: skip
TOKENS = 1024

Told = float | Outcome
"""Seconds of a step, or all of what a trial comes to."""


class Machine:
    """Makes trials of which it knows what they come to."""

    processes = None

    def __init__(self, of: Callable[[Mapping[str, Any], int], Told], facts: Facts = FACTS) -> None:
        """
        Args:
            of: the settings of a run, and how many trials there were, to what a trial comes to.
        """
        self.of, self.facts, self.trials = of, facts, []

    def run(self, settings: Mapping[str, Any], *, steps: int, seconds: float = 0.0, look: bool = False) -> Outcome:
        told = self.of(settings, len(self.trials))
        self.trials.append(settings)
        if isinstance(told, float):
            told = Outcome([Step(told, 0.0, TOKENS)] * steps, warm_up_s=2 * told, warm_up_steps=2, wall_s=5.0)
        return replace(told, facts=self.facts) if look else told


def search(machine: Machine, *, rounds: int = 2, **train: Any) -> Search:
    said: list[str] = []
    base = {
        "data": {"lanes": 4, "tokens_per_pack": 256},
        "train": train if "epochs" in train else {"steps": 100, **train},
    }
    found = Search(Settings("run.yaml", base, {}, {}), machine, rounds=rounds, steps=5, say=said.append)
    found.said = said  # type: ignore[attr-defined]
    found.go()
    return found


def at_once(settings: Mapping[str, Any]) -> int:
    return int(settings["train"]["lanes_at_once"])


def test_the_fastest_is_chosen_and_told_by_how_much():
    machine = Machine(lambda settings, _: {1: 1.0, 2: 0.8, 4: 0.5}[at_once(settings)])
    found = search(machine)
    assert found.overrides == {"train.lanes_at_once": 4}
    assert found.chosen is not None
    assert found.chosen.times == pytest.approx(2.0)
    assert len(machine.trials) == 1 + 2 * 3


def test_each_round_begins_with_another_and_a_slower_one_is_tried_once():
    machine = Machine(lambda settings, _: {1: 1.0, 2: 1.2, 4: 0.5}[at_once(settings)])
    search(machine)
    assert [at_once(settings) for settings in machine.trials] == [1, 1, 4, 2, 4, 1]


@pytest.mark.parametrize("gain", [0.97, 1.0, 1.02])
def test_what_is_not_three_percent_faster_is_left_alone(gain):
    found = search(Machine(lambda settings, _: 1.0 if at_once(settings) == 1 else 1 / gain))
    assert (found.chosen, found.overrides) == (None, {})


def test_what_one_round_calls_slower_is_left_alone_however_fast_it_was_in_the_others():
    def of(settings: Mapping[str, Any], number: int) -> float:
        return 1.0 if at_once(settings) == 1 else (0.2 if number <= 3 else 1.1)

    found = search(Machine(of))
    assert found.chosen is None
    assert max(one.times or 0.0 for one in found.tried) > 1.5


def test_a_machine_that_slows_down_between_rounds_changes_no_choice():
    def of(settings: Mapping[str, Any], number: int) -> float:
        return (3.0 if number > 3 else 1.0) * (1.0 if at_once(settings) == 1 else 0.9)

    found = search(Machine(of))
    assert found.chosen is not None
    assert found.chosen.times == pytest.approx(1 / 0.9)


def test_winners_of_different_parts_are_measured_together():
    def of(settings: Mapping[str, Any], _: int) -> Outcome:
        wait = 0.5 / max(1, settings["data"]["workers"] or 1)
        computing = 1.0 if at_once(settings) == 1 else 0.5
        return Outcome([Step(computing + wait, wait, TOKENS)] * 5, warm_up_s=1.0, warm_up_steps=1)

    found = search(Machine(of))
    assert found.overrides == {"train.lanes_at_once": 4, "data.workers": 4}
    assert found.chosen is found.tried[-1]


def test_together_is_left_where_one_alone_is_faster():
    def of(settings: Mapping[str, Any], _: int) -> Outcome:
        many = (settings["data"]["workers"] or 1) > 1
        rows = at_once(settings) > 1
        computing = {(False, False): 1.0, (True, False): 0.9, (False, True): 0.6, (True, True): 0.8}[many, rows]
        return Outcome([Step(computing, 0.05, TOKENS)] * 5, warm_up_s=1.0, warm_up_steps=1)

    found = search(Machine(of))
    assert found.overrides == {"train.lanes_at_once": 4}
    assert found.tried[-1].candidate.why == "together"


def test_what_compiling_takes_has_to_be_won_back_by_the_rest_of_the_run():
    def of(settings: Mapping[str, Any], _: int) -> Outcome:
        compiled = settings["train"]["compile"] is True
        return Outcome([Step(0.9 if compiled else 1.0, 0.0, TOKENS)] * 5, 30.0 if compiled else 1.0, 1)

    machine = Machine(of, replace(FACTS, threads=1))
    assert search(machine, steps=1000).overrides == {"train.compile": True}
    found = search(machine, steps=200)
    assert found.overrides == {}
    assert found.tried[0].pays == "its first steps take 29 s longer, which 291 steps win back; the run has 200"
    machine.facts = replace(machine.facts, steps=200)  # as those of its epochs were counted
    found = search(machine, epochs=3)
    assert found.tried[0].pays == "its first steps take 29 s longer, which 291 steps win back; the run has 200"


def test_a_setting_that_a_trial_refuses_is_a_row_and_no_end():
    def of(settings: Mapping[str, Any], _: int) -> Told:
        refused = Outcome(error="error[config]: train.lanes_at_once: dropout", status=2)
        return 1.0 if at_once(settings) == 1 else 0.5 if at_once(settings) == 2 else refused

    found = search(Machine(of))
    assert found.overrides == {"train.lanes_at_once": 2}
    assert [one.failed is not None for one in found.tried] == [True, False]
    assert "round 1 of 2  train.lanes_at_once=4: not possible: train.lanes_at_once: dropout" in found.said


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_that_training_refuses_is_refused_with_its_line_and_status(number):
    refused = Outcome(error="error[plugin]: no such encoder", status=3)
    with pytest.raises(AsTrained) as told:
        search(Machine(lambda settings, n: refused if n == number else 1.0))
    assert (told.value.line(), told.value.exit_status) == (refused.error, 3)


NO_ROOM = Outcome(error="error[training]: step 1: out of memory in a row", status=4, out_of_memory=True)


def test_a_run_that_memory_does_not_suffice_for_is_made_to_fit_and_made_fast_from_there():
    def of(settings: Mapping[str, Any], _: int) -> Told:
        fits = settings["train"]["gradient_checkpointing"] is True and settings["data"]["tokens_per_pack"] < 200
        return NO_ROOM if not fits else 1.0 if at_once(settings) == 1 else 0.5

    found = search(Machine(of))
    fits = {"data.tokens_per_pack": 128, "data.lanes": 8, "train.gradient_checkpointing": True}
    assert found.overrides == {**fits, "train.lanes_at_once": 4}
    assert [dict(one.candidate.overrides) for one in found.lacking] == [
        {},
        {"train.gradient_checkpointing": "selective"},
        {"train.gradient_checkpointing": True},
    ]


def test_where_nothing_fits_into_memory_that_is_said():
    with pytest.raises(TrainingError, match="by none of what was tried"):
        search(Machine(lambda settings, _: NO_ROOM))


@pytest.mark.parametrize("facts", [None, replace(FACTS, longest=None)])
def test_what_ends_before_it_has_looked_at_documents_looks_at_them_without_a_step(facts):
    class Ending(Machine):
        def run(self, settings: Mapping[str, Any], *, steps: int, seconds: float = 0.0, look: bool = False) -> Outcome:
            told = super().run(settings, steps=steps, seconds=seconds, look=look)
            return replace(told, facts=facts) if told.error else told

    def of(settings: Mapping[str, Any], number: int) -> Told:
        shorter = settings["data"]["tokens_per_pack"] < 200
        return Outcome() if number == 1 else NO_ROOM if not shorter else 1.0

    found = search(Ending(of), gradient_checkpointing=True)
    assert found.base.candidate.overrides == {"data.tokens_per_pack": 128, "data.lanes": 8}
    assert len(found.lacking) == 1


def test_a_run_that_fits_in_parts_alone_is_compared_with_what_takes_less_memory():
    def of(settings: Mapping[str, Any], _: int) -> Outcome:
        kept = settings["train"]["gradient_checkpointing"]
        seconds = {False: 2.0, "selective": 1.2, True: 1.4}[kept] if at_once(settings) == 1 else 3.0
        return Outcome([Step(seconds, 0.0, TOKENS)] * 5, 1.0, 1, is_short=kept is False)

    assert search(Machine(of)).overrides == {"train.gradient_checkpointing": "selective"}


def test_a_trial_that_had_to_wait_for_cores_is_made_again_and_the_faster_counts():
    def of(settings: Mapping[str, Any], number: int) -> Outcome:
        crowded = number == 1  # the first that counts, of the run as it is
        seconds = (1.0 if at_once(settings) == 1 else 0.99) * (2.0 if crowded else 1.0)
        return Outcome([Step(seconds, 0.0, TOKENS)] * 5, 1.0, 1, is_crowded=crowded)

    machine = Machine(of)
    found = search(machine, rounds=1)
    assert found.overrides == {}
    assert [at_once(settings) for settings in machine.trials] == [1, 1, 1, 4, 2]
    assert any("5 steps each, in 1 round beside the run as it is" in line for line in found.said)
    assert sum(line.startswith("warning: other programs use the cores") for line in found.said) == 1


def test_an_interrupt_leaves_what_was_measured():
    numbers = count()

    def of(settings: Mapping[str, Any], _: int) -> float:
        if next(numbers) == 3:
            raise KeyboardInterrupt
        return 1.0

    base = {"data": {"lanes": 4, "tokens_per_pack": 256}, "train": {"steps": 10}}
    found = Search(Settings(None, base, {}, {}), Machine(of), rounds=2, steps=5)
    with pytest.raises(KeyboardInterrupt):
        found.go()
    assert [len(one.outcomes) for one in (found.base, *found.tried)] == [1, 1, 0]
    assert found.tried[0].times == pytest.approx(1.0)


def test_speed_is_by_the_median_of_computing_and_the_mean_of_waiting():
    steps = [Step(1.0, 0.0, 100), Step(1.0, 0.0, 100), Step(9.0, 0.0, 100), Step(1.3, 0.3, 100), Step(2.2, 1.2, 100)]
    outcomes = [Outcome(steps[:2]), Outcome(steps[2:])]
    assert tokens_per_s(outcomes) == pytest.approx(100 / (1.0 + 1.5 / 5))
    assert waiting(outcomes) == pytest.approx(1.5 / 14.5)
    assert tokens_per_s([Outcome(error="x")]) == 0.0

"""The search: which trials are made, in which order, and what their figures come to. No torch here.

The speed of a machine moves by a third within minutes. So what is compared takes turns, in rounds that each begin with
another, and a setting counts as faster only by ``LEAST_GAIN`` or more, and if each round says that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol

from kosmos.config import RunConfig
from kosmos.data.free_memory import memory
from kosmos.errors import ConfigError, KosmosError, TrainingError
from kosmos.tune.candidates import Candidate, Situation, candidates, may_be_cut, rows_of, smaller
from kosmos.tune.outcome import Facts, Outcome, tokens_per_s, waiting
from kosmos.tune.settings import Settings, written

LEAST_GAIN = 1.03
"""Times the speed of the run as it is, from which on a setting counts as faster."""
FIRST_STEPS, FIRST_S = 3, 3.0
"""Of the first trial, which finds out how long a step is; where the user says how many to take, steps alone."""
TRIAL_S, FEWEST, MOST = 10.0, 4, 200
"""A trial counts as many steps as take so long, within these numbers."""
DOES_NOT_FIT = "out of memory: fewer rows at once would be computed, or parts of them"
AS_IT_IS = Candidate("rows", {}, "the run as it is")


class Runs(Protocol):
    """What makes trials: ``kosmos.tune.processes.Trials``."""

    processes: int | None

    def run(self, settings: dict[str, Any], *, steps: int, seconds: float = 0.0, look: bool = False) -> Outcome: ...


class AsTrained(KosmosError):
    """What training says of a run that it refuses, with its status."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.exit_status = status

    def line(self) -> str:
        return str(self)


@dataclass
class Tried:
    """A candidate and its trials, beside those of the run as it is in the same rounds."""

    candidate: Candidate
    outcomes: list[Outcome] = field(default_factory=list)
    beside: list[Outcome] = field(default_factory=list)
    pays: str = ""
    """Why it does not pay though its steps are faster."""

    @property
    def failed(self) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.error), None)

    @property
    def speed(self) -> float:
        """Useful tokens a second, 0 where none is known."""
        return 0.0 if self.failed else tokens_per_s(self.outcomes)

    @property
    def times(self) -> float | None:
        """Its speed over that of the run as it is; None where one of them is not known."""
        known = min(len(self.outcomes), len(self.beside))  # a round may have been cut short
        before = tokens_per_s(self.beside[:known])
        return tokens_per_s(self.outcomes[:known]) / before if before and self.speed else None

    @property
    def is_ahead(self) -> bool:
        """In each round so far."""
        both = zip(self.outcomes, self.beside, strict=False)
        return not self.failed and all(tokens_per_s([one]) > tokens_per_s([other]) for one, other in both)

    @property
    def is_faster(self) -> bool:
        return self.is_ahead and (self.times or 0.0) >= LEAST_GAIN and not self.pays


class Search:
    """Finds the fastest settings. What it has found so far may be read at any time."""

    def __init__(
        self,
        settings: Settings,
        trials: Runs,
        *,
        rounds: int,
        steps: int | None = None,
        thorough: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """
        Args:
            rounds: in which candidates take turns.
            steps: that each trial counts; None takes as many as last some seconds.
            thorough: try also what rarely pays or takes long.
            say: shows a line to the user.
        """
        self.settings, self.trials, self.rounds, self.steps = settings, trials, rounds, steps
        self.thorough, self.say = thorough, say
        self.first_s = FIRST_S if steps is None else 0.0
        self.first: Outcome | None = None
        self.base = Tried(AS_IT_IS)
        """The run as it is; where it lacks memory, the first settings by which it fits."""
        self.lacking: list[Tried] = []
        """What did not fit into memory."""
        self.tried: list[Tried] = []
        self.chosen: Tried | None = None
        """What is fastest; None where nothing is faster than ``base``."""
        self.is_crowded = False

    @property
    def overrides(self) -> dict[str, Any]:
        """What to set: so that the run fits into memory, and to be fastest."""
        return {**self.base.candidate.overrides, **(self.chosen.candidate.overrides if self.chosen else {})}

    @property
    def facts(self) -> Facts | None:
        return self.first.facts if self.first is not None else None

    def go(self) -> None:
        """Search.

        Raises:
            AsTrained: training would refuse the run.
            TrainingError: memory suffices for nothing that was tried.
            KeyboardInterrupt: a signal came.
        """
        self.say("a first trial of the run as it is, to see what is worth trying")
        first = self._begin()
        assert first.facts is not None
        situation = self._situation(first, first.facts)
        self.say(_told(situation))
        todo = candidates(situation)
        if not todo:
            self.say("nothing else is worth trying here")
        steps = self._steps(situation.step_s)
        if todo:
            self._tell_plan(first, todo, steps, situation.step_s)
        self._compare(todo, steps)
        winners = sorted((one for one in self.tried if one.is_faster), key=lambda one: -(one.times or 0.0))
        if not winners:
            return
        self.chosen = winners[0]
        together = self._together(winners)
        if together is not None:
            self._compare([together], steps)
            both = self.tried[-1]
            if both.is_faster and (both.times or 0.0) > (self.chosen.times or 0.0):
                self.chosen = both

    def _begin(self) -> Outcome:
        """The first trial, whose speed counts for nothing: it is the one that finds files not read before."""
        found = self._trial(self.base.candidate, FIRST_STEPS, seconds=self.first_s, look=True)
        if not found.error:
            self.first = found
            return found
        if not found.out_of_memory:
            raise AsTrained(found.error, found.status)
        self.lacking.append(Tried(self.base.candidate, [found]))
        config = self.settings.config()
        for one in smaller(config, self._with_lengths(config, found.facts), self.settings.is_fixed):
            self.say(f"out of memory; trying {_fields(one)}")
            found = self._trial(one, FIRST_STEPS, seconds=self.first_s, look=True)
            if not found.error and not found.is_short:
                self.base, self.first = Tried(one), found
                return found
            self.lacking.append(Tried(one, [found]))
        raise TrainingError(
            "out of memory, and by none of what was tried does the run fit; take smaller rows (data.tokens_per_pack), "
            "a smaller model, or more processes to share it (--nproc)"
        )

    def _with_lengths(self, config: RunConfig, facts: Facts | None) -> Facts | None:
        """With the lengths of documents, which a trial comes to look at only if memory suffices for its steps."""
        if not may_be_cut(config, 2) or any(map(self.settings.is_fixed, rows_of(config, 2))):
            return facts  # rows stay as they are, however long documents are
        self.say("out of memory; looking at the first documents, for how short rows can be")
        return self._trial(self.base.candidate, 0, look=True).facts or facts

    def _situation(self, first: Outcome, facts: Facts) -> Situation:
        room = None
        if facts.device == "cpu":
            there = memory()
            room = there.free / max(1, first.peak_memory_bytes) if there is not None else 0.0
        return Situation(
            self._config(self.base.candidate.overrides), facts,
            step_s=median(step.step_s for step in first.steps), waiting=waiting([first]),
            is_fixed=self.settings.is_fixed, thorough=self.thorough, room=room, lacks_memory=first.is_short,
        )  # fmt: skip

    def _config(self, overrides: Mapping[str, Any]) -> RunConfig:
        """The run with ``overrides``, and with the steps that its epochs were found to be."""
        config, facts = self.settings.config(overrides), self.facts
        if config.train.is_counted or facts is None:
            return config
        return config.model_copy(update={"train": config.train.in_steps(facts.steps)})

    def _steps(self, step_s: float) -> int:
        return self.steps or max(FEWEST, min(MOST, round(TRIAL_S / step_s)))

    def _tell_plan(self, first: Outcome, todo: Sequence[Candidate], steps: int, step_s: float) -> None:
        around = max(0.0, first.wall_s - sum(step.step_s for step in first.steps))
        each = around + steps * step_s
        minutes = self.rounds * (len(todo) + 1) * each / 60
        about = f"about {minutes:.0f} minutes" if minutes > 1.5 else f"about {60 * minutes:.0f} seconds"
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        self.say(
            f"trying {'; '.join(map(_fields, todo))}: {steps:,} steps each, in {rounds} beside the run as it "
            f"is: {about}"
        )

    def _compare(self, todo: Sequence[Candidate], steps: int) -> None:
        """Rounds of the run as it is and the candidates; one that a round has found slower is tried no more."""
        tried = [Tried(one) for one in todo]
        self.tried += tried
        going = [self.base, *tried]
        for number in range(self.rounds):
            start = number % len(going)
            self._round(number, [*going[start:], *going[:start]], steps)
            going = [self.base, *(one for one in tried if one.is_ahead)]
            if tried and len(going) == 1:
                break
        for one in tried:
            one.pays = self._pays(one) if one.candidate.pays_back else ""

    def _round(self, number: int, several: Sequence[Tried], steps: int) -> None:
        """A trial of each, in this order. Raises AsTrained where the run as it is fails."""
        done: dict[int, Outcome] = {}
        try:
            for one in several:
                outcome = self._trial(one.candidate, steps)
                if outcome.is_short and one is not self.base and not (self.first and self.first.is_short):
                    outcome = replace(outcome, error=DOES_NOT_FIT, out_of_memory=True)
                done[id(one)] = outcome
                one.outcomes.append(outcome)
                if one is self.base and outcome.error:
                    raise AsTrained(outcome.error, outcome.status)
                self._tell(number, one, outcome, done.get(id(self.base)))
        finally:  # what an interrupt leaves is shown too
            if (base := done.get(id(self.base))) is not None:
                for one in several:
                    one.beside += [base] if one is not self.base and id(one) in done else []

    def _pays(self, one: Tried) -> str:
        """Why longer first steps are not won back by the rest of the run; "" where they are."""
        if not one.is_ahead or (one.times or 0.0) < LEAST_GAIN:
            return ""
        longer = max(o.compile_s for o in one.outcomes) - min(o.compile_s for o in one.beside)
        steps = [step.step_s for outcome in one.beside for step in outcome.steps]
        saved = median(steps) * (1 - 1 / (one.times or 1.0))
        needed, whole = longer / saved, self._config({}).train.steps
        if needed <= whole:
            return ""
        return f"its first steps take {longer:.0f} s longer, which {needed:,.0f} steps win back; the run has {whole:,}"

    def _together(self, winners: Sequence[Tried]) -> Candidate | None:
        """The winners of different parts as one; None where there is one part, or they are refused together."""
        taken: list[Candidate] = []
        for one in winners:
            if all(one.candidate.part != other.part for other in taken) and _go_together([*taken, one.candidate]):
                taken.append(one.candidate)
        if len(taken) < 2:
            return None
        overrides: dict[str, Any] = {}
        for candidate in taken:
            overrides |= candidate.overrides
        notes = "; ".join(filter(None, (candidate.note for candidate in taken)))
        return Candidate("rows", overrides, "together", notes, pays_back=any(one.pays_back for one in taken))

    def _trial(self, one: Candidate, steps: int, *, seconds: float = 0.0, look: bool = False) -> Outcome:
        overrides = {**self.base.candidate.overrides, **one.overrides}
        try:
            settings = self.settings.config(overrides).model_dump(mode="json")
        except ConfigError as error:
            if not one.overrides:
                raise
            return Outcome(error=error.line(), status=error.exit_status)
        outcome = self.trials.run(settings, steps=steps, seconds=seconds, look=look)
        if not outcome.is_crowded:
            return outcome
        if not self.is_crowded:
            self.is_crowded = True
            self.say(
                "warning: other programs use the cores too; trials that wait for one are made twice, the faster counts"
            )
        if look or outcome.error:
            return outcome
        again = self.trials.run(settings, steps=steps, seconds=seconds)
        return again if tokens_per_s([again]) > tokens_per_s([outcome]) else outcome  # it was disturbed less

    def _tell(self, number: int, one: Tried, outcome: Outcome, base: Outcome | None) -> None:
        told = f"not possible: {line_of(outcome)}"
        if not outcome.error:
            speed = tokens_per_s([outcome])
            told = f"{speed:,.0f} tokens/s"
            if base is not None and one is not self.base:
                told += f", {speed / tokens_per_s([base]):.2f} times the run as it is"
        self.say(f"round {number + 1} of {self.rounds}  {_fields(one.candidate)}: {told}")


def line_of(outcome: Outcome) -> str:
    """What ended a trial, without the kind of error."""
    return outcome.error.partition("]: ")[2] if outcome.error.startswith("error[") else outcome.error


def _told(now: Situation) -> str:
    """The run and the machine in a line."""
    facts, data = now.facts, now.config.data
    threads = f"{facts.threads} threads" if facts.threads > 1 else "1 thread"
    where = facts.device_name + (f", {threads}" if facts.device == "cpu" else "")
    shared = f" in each of {facts.processes} processes" if facts.processes > 1 else ""
    return (
        f"{where}{shared}, products in {facts.precision}, {facts.parameters:,} parameters are trained; a step of "
        f"{data.lanes} x {data.tokens_per_pack:,} tokens takes {now.step_s:.2f} s, {100 * now.waiting:.0f} % of it "
        "waiting for rows"
    )


def _fields(one: Candidate) -> str:
    return " ".join(written(one.overrides)) or "as it is"


def _go_together(several: Sequence[Candidate]) -> bool:
    """Whether training allows it. Blocks that are compiled for a CPU take all cores, and so one row at a time."""
    fields: dict[str, Any] = {}
    for one in several:
        fields |= one.overrides
    return not (fields.get("train.compile") is True and fields.get("train.lanes_at_once", 1) > 1)

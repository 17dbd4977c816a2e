"""Documents that ``train_model`` and ``resume_run`` are given, in place of those that the run file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kosmos.config import RunConfig, SourceConfig
from kosmos.data.document import Source
from kosmos.data.fingerprint import LOOKED_AT, sampled_fingerprint, tells_itself
from kosmos.data.sources.given import SPLIT, is_noted, noted
from kosmos.errors import ConfigError, DataError
from kosmos.evaluate.given_sources import check_sources
from kosmos.train.length import Report, Wait


@dataclass(frozen=True)
class GivenData:
    """Documents of a caller in Python."""

    sources: Sequence[Source]
    held_out: Sequence[Source]

    @property
    def names(self) -> set[str]:
        return {source.name for source in (*self.sources, *self.held_out)}

    def sampled(self, report: Report) -> dict[int, str]:
        """What tells those of ``sources`` that do not tell themselves, by their numbers, where anything does.

        For one rank, which tells the others: what is drawn as a source is made, or stands in the order of a set, is
        another in each process. Datasets of plugins are not asked this, whose documents may cost too much.

        Args:
            report: told what is going on where it takes long.

        Raises:
            DataError: a source cannot be read at all.
        """
        found = {}
        for number, source in enumerate(self.sources):
            if not tells_itself(source):
                some = min(len(source), LOOKED_AT)
                wait = Wait(f"reading {some} of the documents of {source.name}, by which resume_run knows them", report)
                if told := sampled_fingerprint(source, wait.moved):
                    found[number] = told
        return found

    def check_some(self, *, resumed: bool) -> None:
        """Raises DataError where a source is empty, as what is left of documents that were all sorted out.

        One that is held out is refused where a run begins: its score would be that of nothing, which no later step
        would be compared with. Runs that were begun with one by earlier versions go on with it.
        """
        for name, sources in (("sources", self.sources), ("held_out", self.held_out)):
            for source in sources if not resumed or name == "sources" else ():
                if len(source) == 0:
                    raise DataError(f"{source.name}: holds no documents; leave it out of {name}, or give it some")


def given_data(
    config: RunConfig, sources: Sequence[Source] | None, held_out: Sequence[Source] = (), *, resumed: bool = False
) -> GivenData | None:
    """What ``train_model`` and ``resume_run`` are given; None where that is nothing.

    Args:
        resumed: whether the run has noted that it was given some (``noting``).

    Raises:
        ConfigError: they are no lists of sources, there is none to train on, or the run file names some too.
    """
    if sources is None:
        if held_out:
            raise ConfigError("held_out: stands beside sources; what data.sources hold out is scored by itself")
        return None
    check_sources(sources)
    check_sources(held_out, "held_out")
    if not sources:
        raise ConfigError("sources: there are none; leave it out to train on data.sources of the run")
    if any(not (resumed and is_noted(entry.path)) for entry in config.data.sources):
        raise ConfigError("sources: the run has data.sources too; give one of them")
    if not (resumed or held_out):
        _refuse_share(config)
    return GivenData(sources, held_out)


def _refuse_share(config: RunConfig) -> None:
    """Raises ConfigError where a share is to be held out, which would be done of no documents that are given.

    The default of a run file, which each written one states, means nothing by it.
    """
    share = config.data.held_out
    if share not in (0, type(config.data).model_fields["held_out"].default):
        raise ConfigError(
            f"data.held_out {share:g}: is of data.sources, and the run is given its sources; give train_model held_out "
            f"({SPLIT}), or set data.held_out to 0 to train on all of them"
        )


def noting(config: RunConfig, given: GivenData | None) -> RunConfig:
    """The run with a note of the sources that it was given, which no command can open."""
    if given is None:
        return config
    entries = [SourceConfig(path=noted(source.name), name=source.name) for source in given.sources]
    return config.model_copy(update={"data": config.data.model_copy(update={"sources": entries})})

"""What the order of samples and the weights depend on: a run that goes on must have what its checkpoint had."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.checkpoint import AVERAGED
from kosmos.config import BackboneConfig, RunConfig
from kosmos.data.document import Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.shuffle import blocks_of, digest
from kosmos.data.sources.given import is_noted
from kosmos.errors import CheckpointError, KosmosError
from kosmos.names import listed
from kosmos.plugins import Registry
from kosmos.train.saved_state import check_types

PARTS = ("encoder", "connector")
"""Of a stream, what decides how many tokens a medium takes."""
FREE = ("workers", "quarantine", "sources")
"""Fields of ``data`` that change nothing of the order. Sources count by name and size: folders may move."""

LEARNS = ("freeze", "freeze_connector", "lora")
"""Fields that say what of a part is trained."""
NO_OPTIONS = {*BackboneConfig.model_fields, "weights"}
"""What stands beside a component's options, or says where its weights lie."""
HELD_OUT = "held_out"
"""What stands beside the settings of data where documents were given in Python."""
ENDS = "ends"
"""Fact of a source of text files: which documents of a file have an end. Older runs lack it, and all have."""
PIECES = "pieces"
"""Fact of a source whose media have time, and of a run: which rows of pieces of media are bad samples. Older runs lack
it, and have learned more of them as the text of the whole (``kosmos.data.sources.since``)."""
RULES = "lengths"
"""Those of ``PIECES`` as they are now."""
READS = "reads"
"""Fact of a run: what it reads of rows that were bad samples before, or were not read right. Older runs lack it
(``kosmos.data.sources.since``)."""
LATER = ("questions", "corpora", "patterns", "clips of objects", "numbers as stored", "spaces", "line ends")
"""What was added to ``READS`` since it is noted: how questions with several answers are read; folders that are corpora
of plugins; compressed files of a pattern; seconds in objects of media without time; numbers of 32 and 16 bits; spaces
around what rows are held out by; line ends in CSV. Runs that note it without these lack them (``since.lacks``)."""
READ = ["texts alone", "names in archives", "bytes of nothing in turn", "media of turns", "columns once", *LATER]
"""``READS`` as they are now."""
CODECS = "codecs"
"""What tells the codecs of a run, by modality, from others (``kosmos.data.writer.identity_of``)."""
FACTS = (".documents", ".blocks", ".fingerprint", f".{ENDS}", f".{PIECES}")
"""How the paths of what counts of a source, and is no setting, end."""


def sample_order(
    config: RunConfig,
    sources: Sequence[Source],
    held_out: Sequence[Source] = (),
    codecs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Settings and sources that decide which document comes when and how many tokens it takes. Plain values.

    Args:
        held_out: what was given in Python to be scored, which has to stay, too: scores are compared.
        codecs: of the run, as ``codecs_of`` tells them.
    """
    settings = settings_of(config)
    set_of = settings["data"]["sources"] or [{} for _ in sources]
    opened = [{**_facts(source), **entry} for source, entry in zip(sources, set_of, strict=True)]
    beside: dict[str, Any] = {HELD_OUT: {source.name: _facts(source) for source in held_out}} if held_out else {}
    beside |= {CODECS: dict(codecs)} if codecs else {}
    return {**settings, "data": {**settings["data"], "sources": opened}, PIECES: RULES, READS: READ, **beside}


def with_fingerprints(order: Mapping[str, Any], found: Mapping[int, str]) -> dict[str, Any]:
    """``sample_order`` of sources of which some, by their numbers, were told from others by their documents."""
    sources = [
        {**facts, "fingerprint": found[number]} if number in found else facts
        for number, facts in enumerate(order["data"]["sources"])
    ]
    return {**order, "data": {**order["data"], "sources": sources}}


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings of ``sample_order``, without what the sources hold."""
    dumped = config.model_dump(mode="json")
    data = {name: value for name, value in dumped["data"].items() if name not in FREE}
    set_of = [_without(entry, "name", "path", "root") for entry in dumped["data"]["sources"]]
    parts = {name: {part: stream[part] for part in PARTS} for name, stream in dumped["streams"].items()}
    return {"data": {**data, "sources": set_of}, "modalities": _modalities(dumped["modalities"]), "streams": parts}


def _modalities(dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of modalities; of a codec its name, where there is one, since what else counts of it is in ``CODECS``,
    and older runs have no such setting."""
    return {
        name: _without(settings, "codec") | ({"codec": settings["codec"]["name"]} if settings["codec"] else {})
        for name, settings in dumped.items()
    }


def _facts(source: Source) -> dict[str, Any]:
    """What counts of a source. Its blocks, where it has some, since files may be written anew with other row groups."""
    blocks = blocks_of(source)
    told = {"blocks": digest(blocks) if blocks else None, "fingerprint": fingerprint_of(source)}
    told[ENDS] = "last" if getattr(source, "cuts_texts", False) else None
    told[PIECES] = RULES if getattr(source, "has_time", False) else None
    return {"name": source.name, "documents": len(source), **{name: is_ for name, is_ in told.items() if is_}}


def _without(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


def made_by(config: RunConfig) -> dict[str, Any]:
    """What the state of a checkpoint keeps of the settings beside ``order``, for ``check_goes_on``."""
    return {
        "made_with": config.train.optimizer.name,
        "made_of": made_of(config),
        "minimized": minimized(config),
    }


def minimized(config: RunConfig) -> dict[str, Any] | None:
    """The objective with its options; None is the cross entropy of tokens."""
    return None if config.train.objective is None else config.train.objective.model_dump(mode="json")


def check_goes_on(
    state: Mapping[str, Any],
    config: RunConfig,
    order: Mapping[str, Any],
    where: Path,
    registry: Registry,
) -> None:
    """Refuse to go on with other data, or another model, optimizer or objective, than a checkpoint was made with.

    Args:
        state: of the checkpoint.
        order: as ``sample_order`` tells it now.
        registry: of components, which know what takes effect where an option of theirs is left out.

    Raises:
        CheckpointError: names the field that differs.
    """
    check_types(state)
    if AVERAGED in state:
        raise CheckpointError(
            f"{where}: {_made_of_steps(state[AVERAGED])}, without the state of an optimizer; begin a run with it "
            f"(init={where.parent.parent})"
        )
    given = any(is_noted(entry.path) for entry in config.data.sources)
    check_same_order(state["order"], order, where, registry, given=given)
    if (made := state.get("made_of")) is not None:  # older ones lack it
        check_same_model(made, made_of(config), where, registry)
    made_with, now = state.get("made_with"), config.train.optimizer.name  # older ones lack it
    if made_with not in (None, now):
        raise CheckpointError(
            f"{where}: was made with train.optimizer {made_with}, whose state {now} has no use "
            "for; leave train.optimizer as it was, or start a new run"
        )
    if (then := state.get("minimized")) != minimized(config):  # runs that lack it had none
        said = "the cross entropy of tokens" if then is None else ", ".join(f"{k} {v}" for k, v in then.items())
        raise CheckpointError(
            f"{where}: was made with another train.objective ({said}), whose losses and scores do not compare; leave "
            "it as it was, or begin a run with these weights (init)"
        )


def _made_of_steps(steps: Sequence[int]) -> str:
    if not steps:
        return "holds weights that were saved by themselves"
    return f"is the mean of the checkpoints of steps {listed(map(str, steps))}"


def check_same_order(
    saved: Mapping[str, Any],
    now: Mapping[str, Any],
    where: Path,
    registry: Registry | None = None,
    *,
    given: bool = False,
) -> None:
    """Refuse to go on with other data than the checkpoint was made with.

    Args:
        registry: as of ``check_goes_on``; without one an option that states its default is another than one left out.
        given: whether the sources were given in Python.

    Raises:
        CheckpointError: names the field that differs.
    """
    _refuse_first(other_order(saved, now, registry), where, why_not, given=given)


def other_order(
    saved: Mapping[str, Any], now: Mapping[str, Any], registry: Registry | None
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted path and both values of what differs in two of ``sample_order`` or of ``settings_of``."""

    def in_effect(path: str, value: Any, order: Mapping[str, Any]) -> Any:
        match path.split("."):
            case ["modalities", name, "processor", option] if registry:
                options = order["modalities"][name]["processor"]
                return _in_effect("modality", {"name": name, **options}, option, registry, value)
            case ["streams", name, ("encoder" | "connector") as kind, option] if (
                registry and order["streams"][name][kind]
            ):
                return _in_effect(kind, order["streams"][name][kind], option, registry, value)
        return value

    both = saved.keys() & now.keys()  # older ones have nothing held out, nor has who goes on without any
    saved, now = ({name: value for name, value in stated(order).items() if name in both} for order in (saved, now))
    return _others(saved, now, in_effect)


def why_not(path: str, order: str = "the order of samples would not go on") -> str:
    """What would be another if a setting of ``sample_order`` were; ``order`` if it is that alone."""
    steps = path.split(".")
    if steps[0] == "streams":
        return "the model would be another"
    if steps[0] == CODECS or "codec" in steps:
        return "the tokens by which it writes would mean other media"
    if steps[0] == HELD_OUT:
        return "scores of other documents compare with none before"
    if "processor" in steps or {"template", "columns"} & set(steps):
        return "what the model is shown would be another"
    return order


def made_of(config: RunConfig) -> dict[str, Any]:
    """Settings that the weights of a run, and what its optimizer knows of them, belong to. Plain values."""
    dumped = config.model_dump(mode="json")
    streams = dumped["streams"].items()
    lora = {name: _without(stream["lora"], "dropout", "adapter") for name, stream in streams if stream["lora"]}
    # Where a model of transformers lies may change: the checkpoint has its weights.
    backbone = _without(dumped["backbone"], "learning_rate", "model")
    backbone["lora"] = backbone["lora"] and _without(backbone["lora"], "dropout", "adapter")
    return {
        "backbone": backbone,
        "frozen": {name: True for name, stream in streams if stream["freeze"]},
        "frozen_connectors": {name: True for name, stream in streams if stream["freeze_connector"]},
        "lora": lora,
        "train": {"weights": dumped["train"]["weights"]},
    }


def model_fields(saved: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two of ``made_of`` as the fields of a run file that say them."""
    kinds = ("frozen", "frozen_connectors", "lora")
    streams = sorted({name for made in (saved, now) for kind in kinds for name in made.get(kind, ())})

    def of_stream(made: Mapping[str, Any], name: str) -> dict[str, Any]:  # of which older checkpoints have less
        frozen, connectors, lora = (made.get(kind, {}) for kind in kinds)
        return {"freeze": name in frozen, "freeze_connector": name in connectors, "lora": lora.get(name)}

    def fields(made: Mapping[str, Any]) -> dict[str, Any]:
        of_streams = {name: of_stream(made, name) for name in streams}
        return {"backbone": made["backbone"], "streams": of_streams, "train": made["train"]}

    return fields(saved), fields(now)


def check_same_model(saved: Mapping[str, Any], now: Mapping[str, Any], where: Path, registry: Registry) -> None:
    """Refuse to go on with another model than the checkpoint's, though its tensors may have the same shapes.

    Raises:
        CheckpointError: names the field that differs.
    """

    def why(path: str) -> str:
        trained = {*LEARNS}.isdisjoint(path.split("."))
        return "its weights are of another model" if trained else "its optimizer knows of other parameters"

    _refuse_first(other_model(saved, now, registry), where, why)


def other_model(saved: Mapping[str, Any], now: Mapping[str, Any], registry: Registry) -> Iterator[tuple[str, Any, Any]]:
    """Dotted path and both values of what differs in two of ``made_of``."""

    def in_effect(path: str, value: Any, made: Mapping[str, Any]) -> Any:
        part, _, option = path.partition(".")
        return _in_effect(part, made[part], option, registry, value) if part == "backbone" else value

    return _others(*model_fields(saved, now), in_effect)


def _in_effect(kind: str, component: Mapping[str, Any], option: str, registry: Registry, value: Any) -> Any:
    """What an option comes to, which may be left out; ``value`` where the component does not tell.

    Args:
        component: its ``name`` and its options.
        value: of the option, as it is stated.
    """
    from kosmos.train.taken_parts import in_effect

    if option in NO_OPTIONS:
        return value
    options = {name: value for name, value in component.items() if name not in NO_OPTIONS}
    try:
        return in_effect(registry, kind, component["name"], options, kind).get(option, value)
    except KosmosError:  # options that today's component refuses: that they differ is what is to be said
        return value


def _others(
    saved: Mapping[str, Any], now: Mapping[str, Any], in_effect: Callable[[str, Any, Mapping[str, Any]], Any]
) -> Iterator[tuple[str, Any, Any]]:
    """What differs; ``in_effect`` tells what a value of ``saved`` or ``now`` comes to."""
    for path, one, other in differences(saved, now, ""):
        before, after = in_effect(path, one, saved), in_effect(path, other, now)
        unknown = path.endswith((".fingerprint", f".{ENDS}", f".{PIECES}")) and None in (
            before,
            after,
        )  # older checkpoints lack it
        if before != after and not unknown:  # else one of them states what the other leaves to the component
            yield path, before, after


def _refuse_first(
    others: Iterator[tuple[str, Any, Any]], where: Path, why: Callable[[str], str], *, given: bool = False
) -> None:
    """Raises CheckpointError of what differs, if anything does."""
    # A setting that was changed is the cause where what is there differs, too.
    for path, before, after in sorted(others, key=lambda found: found[0].endswith(FACTS)):
        suits = path.startswith("data.") or {*LEARNS, "processor"} & set(path.split("."))  # its weights do
        begins = f" that begins with its weights (init={where.parent.parent}, and init.optimizer=true to take what its"
        go_on = f"{begins} optimizer knows); schedule and order of samples begin anew" if suits else ""
        raise CheckpointError(
            f"{where}: was made with {_told(path, before, after, given)}; {why(path)}. "
            f"{_as_before(path, before, given)}, or start a new run{go_on}"
        )


def _told(path: str, before: Any, after: Any, given: bool) -> str:
    if path.endswith(".fingerprint"):
        files = ": files were renamed, exchanged or put in another order, or the ids of rows are others"
        which = f"other documents of {path.rpartition('.')[0]}, or in another order, though they are as many"
        return which + ("" if given else files)
    if path.startswith(f"{CODECS}."):
        return f"another codec of {path.partition('.')[2]}"
    return f"{path} {shown(before)}, the run now has {shown(after)}"


def _as_before(path: str, before: Any, given: bool) -> str:
    """What to do where a source, or a setting, is another one: of a source's facts only the name is a field."""
    if given and path.startswith(("data.sources", HELD_OUT)):
        anew = "; for one that makes its documents anew each time, add a method fingerprint() that returns None"
        again = (
            f"Give resume_run the {'held_out' if path.startswith(HELD_OUT) else 'sources'} that the run was begun with"
        )
        return again + (anew if path.endswith(".fingerprint") else "")
    if path.endswith(FACTS):
        return f"Bring back the files of {path.rpartition('.')[0]} as they were"
    if path.endswith(".name") and path.startswith("data.sources."):
        return f"Set {shlex.quote(f'{path}={before}')}"
    if path.startswith(f"{CODECS}."):
        return f"Give modalities.{path.partition('.')[2]}.codec the options, and the weights, that it had"
    return f"Leave {path} as it was"


def stated(order: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of ``sample_order`` where two are compared.

    Without the streams whose parts are those of their modality: one may be named for its learning rate alone. And
    without ``LATER``: a run that was begun before some of these goes on without them.
    """
    named = {n: parts for n, parts in order["streams"].items() if any(parts.values())}
    streams = {n: {p: _placeless(c) for p, c in parts.items()} for n, parts in named.items()}
    reads = {READS: [rule for rule in order[READS] if rule not in LATER]} if order.get(READS) else {}
    data = {"long_chats": "cut", **order["data"]}  # older ones lack it
    return {**order, "data": data, "streams": streams, **reads}


def _placeless(part: Mapping[str, Any] | None) -> Any:
    """A component without where its weights lie, which may change: the checkpoint has them. That it has some stays."""
    return {**part, "weights": True} if part and part.get("weights") else part


def differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Dotted path and both values of what differs in two plain values, which stand at ``path``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}.{number}")
    elif one != other:
        yield path, one, other


def shown(value: Any) -> str:
    """A plain value as an error shows it: a component by its name, None as YAML has it."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(shown(v) for v in value) + "]"
    return str(value["name"]) if isinstance(value, Mapping) and "name" in value else repr(value)

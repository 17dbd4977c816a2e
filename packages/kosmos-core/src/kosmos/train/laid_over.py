"""A trained run with fields laid over its run file: its data may lie elsewhere, and it may be computed elsewhere.

What would make another model is refused, by what a run that goes on must have in common with its checkpoint
(``kosmos.train.order``), and so is what has no effect where nothing is trained. Options of processors may be others
where that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kosmos.config import RunConfig
from kosmos.config_length import LENGTHS
from kosmos.data.sources.opening import short_name
from kosmos.errors import ConfigError
from kosmos.lock import keeping
from kosmos.plugins import Registry, load_plugins
from kosmos.run_file import lay_over
from kosmos.train.order import differences, made_of, other_model, other_order, settings_of, shown, why_not
from kosmos.train.other_processors import modality_of
from kosmos.train.output import RunFolder

ROWS = ("data.tokens_per_pack", "data.cells_per_pack", "data.long_chats")
"""Fields that say what a row holds: which documents are scored whole, and not which they are."""
TAKES_EFFECT = (
    *ROWS, "data.sources", "evaluate.sources", "evaluate.choices", "evaluate.metrics", "train.device",
    "train.precision", "train.compile", "train.hang_s", "plugins", "backbone", "streams",
)  # fmt: skip
"""Fields that count for a trained run, of which some would make it another one."""
NO_EFFECT = ("learning_rate", "connector_learning_rate")
"""Fields among them that do not."""
BEST = "evaluate.best"
MODEL = "the model would be another"
OPTIONS = {
    "data.workers": "--workers", "evaluate.max_documents": "--max-documents", "evaluate.generate": "--generate",
    BEST: "--step best with it",
}  # fmt: skip


class LaidOver(NamedTuple):
    """A run with ``overrides``."""

    config: RunConfig
    plugins: Registry
    processors: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """By modality the options of its processor in the run, where they are others now."""
    told: tuple[str, ...] = ()
    """Of each of these what a user should know of it."""


def laid_over(
    folder: RunFolder,
    overrides: Mapping[str, Any],
    registry: Registry | None = None,
    *,
    chosen_by_best: bool = False,
    may_be_shown: bool = False,
) -> LaidOver:
    """The run of a folder, as its model is built, with ``overrides``. A source whose path they change keeps its name.

    Args:
        registry: of components; None loads the plugins that the run names.
        chosen_by_best: whether ``evaluate.best`` says which checkpoint is taken.
        may_be_shown: whether the model may be shown its media otherwise than in training.

    Raises:
        ConfigError: one of them is wrong, would make another model, or would have no effect.
        PluginError: a plugin that it names is not installed.
    """
    where = str(folder.run_file)
    layers = [folder.read_config(), folder.read_model()]
    before = lay_over(layers, [], where=where, over=where)
    if not overrides:
        return LaidOver(before, keeping(folder.path, registry or load_plugins(before.plugins)))
    stated = folder.goes_on_with(overrides)
    plugins = keeping(folder.path, registry or load_plugins(stated.plugins))
    length = next((name for name in LENGTHS if (overrides.get("train") or {}).get(name) is not None), None)
    more = (BEST,) if chosen_by_best else ()
    told = _check(lay_over(layers[:1], [], where=where, over=where), stated, plugins, length, more)
    if told and not may_be_shown:
        raise ConfigError(f"{next(iter(told.values()))}; leave it out")
    config = lay_over(layers, [overrides], where=where, over=f"changes to {where}")
    sources = [
        now if now.name is not None or now.path == then.path else now.model_copy(update={"name": _name(then)})
        for now, then in zip(config.data.sources, before.data.sources, strict=True)
    ]
    config = config.model_copy(update={"data": config.data.model_copy(update={"sources": sources})})
    others = dict.fromkeys(str(modality_of(path)) for path in told)
    processors = {name: before.modalities[name].processor for name in others}
    return LaidOver(config, plugins, processors, tuple(f"{line} than it was trained on" for line in told.values()))


def _name(source: Any) -> str:
    return source.name or short_name(source.path)


def _check(
    before: RunConfig, now: RunConfig, registry: Registry, length: str | None, more: tuple[str, ...]
) -> dict[str, str]:
    """What is shown of media otherwise, by the field: a line that begins with it."""
    takes_effect, told = (*TAKES_EFFECT, *more), dict[str, str]()
    for path, one, other in other_order(settings_of(before), settings_of(now), registry):
        if path.startswith(ROWS):
            continue
        if modality_of(path) is not None:
            told[path] = _differs(path, one, other, "the model is shown something else")
            continue
        why = MODEL if path.split(".")[0] == "modalities" else "what is held out would be another"
        _refuse(path, one, other, why_not(path, why))
    for path, one, other in other_model(made_of(before), made_of(now), registry):
        _refuse(path, one, other, MODEL)
    for found, _, _ in differences(_plain(before), _plain(now), ""):
        if found == "train.steps" and length is None:  # of as many tokens, in rows of another length
            continue
        if modality_of(found) is not None or _is_of_codec(found):  # told above, or states a default; see other_codecs
            continue
        path = f"train.{length}" if found == "train.steps" else found  # to which the others come
        if path.split(".")[-1] in NO_EFFECT or not any(_is_within(path, field) for field in takes_effect):
            option = next((OPTIONS[field] for field in OPTIONS if _is_within(path, field)), None)
            use = f"; give {option}" if option else ", as nothing is trained; leave it out"
            raise ConfigError(f"{path}: has no effect on a trained run{use}")
    return told


def _is_of_codec(path: str) -> bool:
    """Whether it is an option of a codec: where its weights lie, or what makes it another, which the checkpoint
    tells."""
    match path.split("."):
        case ["modalities", _, "codec", _, *_]:
            return True
    return False


def _is_within(path: str, field: str) -> bool:
    return path == field or path.startswith(f"{field}.")


def _plain(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude={"output"})


def _differs(path: str, before: Any, now: Any, why: str) -> str:
    return f"{path}: {shown(before)} in the run, {shown(now)} here: {why}"


def _refuse(path: str, before: Any, now: Any, why: str) -> None:
    raise ConfigError(f"{_differs(path, before, now, why)}; leave it out")

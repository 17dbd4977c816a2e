"""Core's own components, registered like any plugin's.

To add one, write its factory where it belongs and name it below.
"""

from __future__ import annotations

from collections.abc import Iterator

from kosmos.components import (
    API_VERSION,
    BackboneSpec,
    CommandSpec,
    ConnectorSpec,
    DatasetSpec,
    MetricSpec,
    ObjectiveSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrackerSpec,
)
from kosmos.hookspecs import hookimpl

KOSMOS_API = API_VERSION


@hookimpl
def kosmos_connectors() -> Iterator[ConnectorSpec]:
    at = "kosmos.model.connectors"
    yield ConnectorSpec(name="linear", target=f"{at}:LinearConnector", summary="One linear map a cell.")
    yield ConnectorSpec(name="mlp", target=f"{at}:MLPConnector", summary="Two linear maps and a GELU a cell.")
    yield ConnectorSpec(name="pool", target=f"{at}:PoolConnector", summary="Blocks of cells averaged, then an MLP.")
    yield ConnectorSpec(
        name="resampler",
        target="kosmos.model.resampler:ResamplerConnector",
        summary="Learned latents read an item by cross-attention; a fixed number of slots.",
    )


@hookimpl
def kosmos_backbones() -> Iterator[BackboneSpec]:
    yield BackboneSpec(
        name="decoder",
        target="kosmos.model.decoder:Decoder",
        summary="Kosmos's own decoder; presets tiny, small, kosmos-1, 7b, 18b.",
    )
    yield BackboneSpec(
        name="hf",
        target="kosmos.model.huggingface:HuggingFaceBackbone",
        summary="A causal language model of transformers, by id, folder or configuration.",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(name="sums", target="kosmos.data.samples:SumsSource", summary="Sums of small numbers in words.")


@hookimpl
def kosmos_metrics() -> Iterator[MetricSpec]:
    at = "kosmos.evaluate.metrics"
    yield MetricSpec(name="exact_match", target=f"{at}:exact_match", summary="Share of texts that are as expected.")
    for unit, what in (("word", "words"), ("char", "characters")):
        yield MetricSpec(
            name=f"{unit}_error_rate", target=f"{at}:{unit}_error_rate", lower_is_better=True,
            summary=f"Edits over {what} (torchmetrics).",
        )  # fmt: skip
    yield MetricSpec(name="bleu", target="kosmos.evaluate.bleu:bleu", summary="Corpus BLEU as SacreBLEU has it.")
    yield MetricSpec(name="rouge_l", target=f"{at}:rouge_l", summary="Longest common subsequence of words as F1.")
    yield MetricSpec(name="cider", target="kosmos.evaluate.cider:cider", summary="CIDEr-D of texts that describe.")
    yield MetricSpec(
        name="macro_f1", target="kosmos.evaluate.class_metrics:macro_f1", summary="Mean of the F1 of each class."
    )
    yield MetricSpec(
        name="balanced_accuracy", target="kosmos.evaluate.class_metrics:balanced_accuracy",
        summary="Mean of the recall of each class.",
    )  # fmt: skip
    yield MetricSpec(
        name="kappa", target="kosmos.evaluate.agreement:kappa",
        summary="Cohen's kappa of classes, weighted for grades.",
    )  # fmt: skip
    at = "kosmos.evaluate.answer_metrics"
    yield MetricSpec(name="vqa_accuracy", target=f"{at}:vqa_accuracy", summary="VQA's accuracy over several answers.")
    yield MetricSpec(name="anls", target=f"{at}:anls", summary="DocVQA's likeness of characters, best of the answers.")
    yield MetricSpec(
        name="relaxed_accuracy", target=f"{at}:relaxed_accuracy", summary="ChartQA's share of numbers within 5 %."
    )


@hookimpl
def kosmos_optimizers() -> Iterator[OptimizerSpec]:
    for name, summary in {
        "lion": "Sign of an interpolated momentum, in one pass.",
        "lion8bit": "Lion with one byte of state a parameter.",
        "lion-pytorch": "Lion of the package lion-pytorch.",
        "muon": "Orthogonal steps of matrices; else AdamW.",
        "adamw": "Adam with decoupled weight decay (torch, fused).",
    }.items():
        target = f"kosmos.train.optimizers:{name.replace('-', '_')}"
        yield OptimizerSpec(name=name, target=target, summary=summary, parameterwise=True)


@hookimpl
def kosmos_schedules() -> Iterator[ScheduleSpec]:
    at = "kosmos.train.schedules"
    yield ScheduleSpec(name="linear", target=f"{at}:linear", summary="Warmup, then linear to zero.")
    yield ScheduleSpec(name="cosine", target=f"{at}:cosine", summary="Warmup, then half a cosine to a tenth.")
    yield ScheduleSpec(name="wsd", target=f"{at}:wsd", summary="Warmup, the peak, linear to zero in the last fifth.")
    yield ScheduleSpec(name="inverse_sqrt", target=f"{at}:inverse_sqrt", summary="Warmup, then over the root of steps.")
    yield ScheduleSpec(name="constant", target=f"{at}:constant", summary="Warmup, then the peak.")


@hookimpl
def kosmos_objectives() -> Iterator[ObjectiveSpec]:
    at = "kosmos.train.preferences"
    yield ObjectiveSpec(
        name="dpo", target=f"{at}:DPO", unit="pair", reference=True,
        summary="Pairs of answers, against the model as it was; also IPO and hinge.",
    )  # fmt: skip
    yield ObjectiveSpec(name="simpo", target=f"{at}:SimPO", unit="pair", summary="Pairs of answers, by mean tokens.")
    yield ObjectiveSpec(name="orpo", target=f"{at}:ORPO", unit="pair", summary="Better answers, and odds over worse.")


@hookimpl
def kosmos_trackers() -> Iterator[TrackerSpec]:
    at = "kosmos.train.trackers"
    yield TrackerSpec(name="tensorboard", target=f"{at}:TensorBoard", summary="Event files in OUTPUT/tensorboard.")
    yield TrackerSpec(name="wandb", target=f"{at}:WeightsAndBiases", summary="Weights & Biases, offline by default.")


@hookimpl
def kosmos_commands() -> Iterator[CommandSpec]:
    """In the order of ``kosmos --help``."""
    at = "kosmos.commands"
    yield CommandSpec(name="train", target=f"{at}.train:app", summary="Train a model on what is installed.")
    yield CommandSpec(name="data", target=f"{at}.data:app", summary="Look at what a run would train on, and check it.")
    yield CommandSpec(name="plan", target=f"{at}.plan:app", summary="Tell what a run comes to, before it is trained.")
    yield CommandSpec(name="tune", target=f"{at}.tune:app", summary="Find the settings that train fastest here.")
    yield CommandSpec(name="eval", target=f"{at}.evaluate:app", summary="Score a trained run.")
    yield CommandSpec(name="score", target=f"{at}.score:score", summary="Score a file of answers, without a model.")
    yield CommandSpec(name="generate", target=f"{at}.generate:app", summary="Generate text from media and prompts.")
    yield CommandSpec(name="chat", target=f"{at}.chat:app", summary="Talk with a model that has learned from chats.")
    yield CommandSpec(
        name="report", target=f"{at}.report:report", summary="Sum up a run: steps, losses, bad samples, goodput."
    )
    yield CommandSpec(
        name="checkpoint", target=f"{at}.checkpoint:app", summary="List, verify, prune, average, branch off."
    )
    yield CommandSpec(name="export", target=f"{at}.export:export", summary="Write a model as one file of safetensors.")
    yield CommandSpec(
        name="import", target=f"{at}.importing:import_model", summary="Begin with a published model of several parts."
    )
    yield CommandSpec(name="launch", target=f"{at}.launch:app", summary="Write launch files for clusters.")
    yield CommandSpec(name="tokenizer", target=f"{at}.tokenizer:app", summary="Train a tokenizer on your texts.")
    yield CommandSpec(
        name="plugins",
        target=f"{at}.plugins:app",
        summary="List the installed plugins and what is wrong with them.",
    )
    yield CommandSpec(name="explain", target=f"{at}.explain:explain", summary="Say what a field or component means.")
    yield CommandSpec(name="plugin", target=f"{at}.plugin:app", summary="Write a plugin; test what it promises.")

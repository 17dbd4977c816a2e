"""What the figures of a run mean: the columns of ``metrics.jsonl``, what progress lines and reports call them, and the
classes of goodput."""

from __future__ import annotations

from collections.abc import Mapping

from kosmos.names import plain

COLUMNS = {
    "step": "the number of the step",
    "loss": "the mean loss over the target tokens of all ranks, in nats, or over the units of `train.objective`; null "
    "where it is not finite",
    "objective": "only with `train.objective`: means of what it tells of its units, and `cross_entropy`, the mean over "
    "the target tokens but those of worse answers",
    "module_losses": "only where parts of the model hand on losses of their own: the sum of each over the step, over "
    "what `loss` is a mean over, by its part and name. They are minimized beside `loss`, and not in it",
    "loss_by_modality": "the loss, by the modalities that a document holds",
    "loss_by_source": "the loss, by the source of a document",
    "tokens": "tokens in the rows of the step, padding excluded",
    "text_tokens": "those of `tokens` that are text",
    "media_tokens": "those of `tokens` that stand for media",
    "tokens_so_far": "`tokens` of all steps up to this one, those that a guard left out or went back behind included",
    "tokens_by_source": "`tokens`, by the source of their documents",
    "documents_by_source": "`documents`, by their source",
    "epoch": "documents in the rows of all steps up to this one, over the documents of the sources; not where the "
    "sources have weights",
    "epoch_by_source": "only where the sources have weights, instead of `epoch`: of each source the documents in the "
    "rows of all steps up to this one, over the documents that it has",
    "target_tokens": "tokens that the loss looks at",
    "documents": "documents in the rows of the step",
    "fill": "the part of the rows' token budget that is used; the rest is padding",
    "cells_by_stream": "encoder cells of the step, by stream",
    "imbalance_by_stream": "where a step has several rows: the most cells of a row over the mean of all rows; 1 where "
    "all have equally many",
    "learning_rate": "the rate of the first parameter group at this step",
    "learning_rate_by_part": "only where they differ: the rates of the backbone and of each stream, and of connectors "
    "that have one of their own",
    "grad_norm": "the norm of all gradients before clipping",
    "grad_norm_by_part": "where there are several: the norm of the backbone's gradients and of each stream's; not with "
    "release_gradients",
    "step_s": "seconds of the step, without what lies between steps: saving, scoring, trackers",
    "data_wait_s": "of the seconds of the step those spent waiting for rows, by the rank that waited longest. Where "
    "they are many, take more data.workers; kosmos tune tries it",
    "data_wait_share": "the share of the step that was spent waiting for rows: `data_wait_s` over `step_s`",
    "tokens_per_s": "`tokens` over `step_s`",
    "text_tokens_per_s": "`text_tokens` over `step_s`",
    "media_tokens_per_s": "`media_tokens` over `step_s`",
    "samples_per_s": "`documents` over `step_s`",
    "processes": "how many trained the step",
    "peak_memory_bytes": "most memory taken so far, of the accelerator or else of the process, by the rank that took "
    "most",
    "flops": "operations of the step on all ranks, counted as torch runs them: a trained module counts three times its "
    "forward pass, a frozen backbone twice, a frozen encoder once, and each once more where `train.objective` compares "
    "with the model as it was",
    "peak_flops": "what all devices can do in a second: GPUs by their data sheets, others by matrix products that are "
    "measured as a run starts, too low where other programs compute meanwhile",
    "mfu": "`flops` over what `peak_flops` comes to in the seconds of the step; attention counts in full, by "
    "the real lengths of documents",
    "mfu_half_causal": "as `mfu`, but of attention only what the causal mask leaves",
    "mfu_by_module": "`mfu`, by the module that computes",
    "skipped": "true where a guard left the update out",
    "compilations": "programs that torch has compiled so far, where blocks are compiled",
}
"""Of ``metrics.jsonl``, with what each means."""

GOODPUT = {
    "productive": "the steps that are kept in the end",
    "start_up": "from the start of the process to the first step",
    "compile": "what torch's compiler took, in steps and scorings",
    "checkpoint_load": "reading a checkpoint",
    "blocking_save": "saving, as far as steps wait for it",
    "data_wait": "waiting for rows",
    "evaluation": "scoring held-out documents",
    "trackers": "in trackers and observers, which the next step waits for",
    "fault_detection": "finding out what is wrong after a failure",
    "restart": "between two launches",
    "lost_work": "steps that a later launch took again",
    "skipped_steps": "steps whose update a guard left out",
    "unknown": "what nobody claimed",
}
"""Classes of ``goodput.jsonl``: each second of a run is in one."""

CALLED = {
    "data wait": "data_wait_share",
    "imbalance": "imbalance_by_stream",
    "throughput": "tokens_per_s",
    "tokens/s": "tokens_per_s",
    "samples/s": "samples_per_s",
    "peak": "peak_memory_bytes",
    "memory": "peak_memory_bytes",
    "compiled": "compilations",
    "model_flops_utilization": "mfu",
}
"""Names of columns in progress lines, in reports and elsewhere."""

WHAT_GOODPUT_IS = (
    "Of the wall time of a run, from the first launch to the last second, the share of the steps that are kept in the "
    "end. Every second is in one class; kosmos report sums them up, and goodput.jsonl holds them by launch."
)


def column(name: str) -> tuple[str, str] | None:
    """The column that a name stands for, and what it means; None where it stands for none. Case and the marks between
    words do not count."""
    return _named(name, {called: (ours, COLUMNS[ours]) for called, ours in CALLED.items()}) or _named(
        name, {ours: (ours, meaning) for ours, meaning in COLUMNS.items()}
    )


def goodput_class(name: str) -> tuple[str, str] | None:
    """As ``column``, of the classes of goodput."""
    return _named(name, {ours: (ours, meaning) for ours, meaning in GOODPUT.items()})


def _named(name: str, known: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    wanted = _plain(name)
    return next((found for called, found in known.items() if _plain(called) == wanted), None)


def _plain(name: str) -> str:
    return plain(name).replace(" ", "")

"""What other programs that score and generate call the options of ``kosmos eval``, ``generate`` and ``chat``."""

from __future__ import annotations

from collections.abc import Mapping

from kosmos.names import plain

_SAMPLING = {
    "--stop TEXT, and the end token of the run's tokenizer": "stop_words stop_sequences until eos_token_id",
    "--max-new-tokens": "max_length max_tokens max_gen_toks",
    "a text is sampled by --temperature, --top-k and --top-p, and is greedy without": (
        "do_sample num_beams beams min_p repetition_penalty length_penalty gen_kwargs generation_kwargs"
    ),
    "--data PATH continues each document of it": "input input_file prompts prompts_file dataset",
    "texts are written up to 32 at once": "batch_size num_batches",
    "--answers FILE takes the texts of --data": "output output_file output_path",
    "once for each sample, with another --seed": "n num_return_sequences num_samples",
    "'kosmos generate --data PATH --nproc N' shares documents out": "num_processes gpus",
    "each process holds the whole model": "tensor_parallel_size",
    "--step N, or best": "checkpoint ckpt",
    'a row of a .jsonl file says it of its medium, for --data: {"MODALITY": FILE, "clip": [START, END]}': (
        "clip start end offset duration"
    ),
    'a row of a .jsonl file says it of its medium, for --data: {"MODALITY": {"path": FILE, "rate_hz": N}}': (
        "rate_hz sampling_rate sample_rate"
    ),
}
GENERATE = _SAMPLING
"""What to say, by the names that it answers. Of ``kosmos generate`` and ``chat``."""
EVAL = {
    "--data FILE scores documents, and --choices FILE questions with answers to choose from": (
        "task tasks benchmark dataset eval_dataset"
    ),
    "documents are scored in rows of data.tokens_per_pack, however many there are": (
        "batch_size per_device_eval_batch_size eval_batch_size"
    ),
    "--max-documents": "limit max_samples num_samples max_eval_samples",
    "--answers FILE takes what --generate and --choices give": "log_samples predictions predict_with_generate",
    "scores go to standard output: --json > FILE": "output output_path output_file out",
    "--stop TEXT": "stop_words stop_sequences until",
    "answers of --generate are greedy, of at most --max-new-tokens": (
        "gen_kwargs generation_kwargs temperature top_k top_p num_beams seed do_sample"
    ),
    "as a field of its file: --choices '{path: FILE, shots: 5}'": "num_fewshot few_shot fewshot",
    "as a field of its source: --data '{path: PATH, template: ...}'": "template",
    "as a field of its source: --data '{path: PATH, columns: {...}}', or --choices '{path: PATH, columns: {...}}' of "
    "questions with answers to choose from": "columns",
    "--nproc": "num_processes gpus",
    "--step N, or best": "checkpoint ckpt",
}
"""Likewise of ``kosmos eval``."""


def called_elsewhere(option: str, table: Mapping[str, str]) -> str:
    """What to say of an option that other programs have; empty where none has it."""
    wanted = plain(option.lstrip("-"))
    return next((said for said, names in table.items() if wanted in map(plain, names.split())), "")

"""Generation, greedy and sampled: a document at a time and many together, beside transformers', in one call.

    python benchmarks/generate.py [--preset small] [--tokens 48] [--together 32] [--rounds 3]

The limit of one document: each token reads all weights once, so bytes of the weights over the bandwidth of a copy;
together the weights are read once for all. The peer is a Llama of the same shape whose weights are in the dtype of the
products, with its own cache, on prompts of the same lengths, padded on the left where they are several. Weights are
random: what is written means nothing, and greedily nobody ends before the last token. "Its Llama in Kosmos" is a Llama
of transformers as our backbone. What is sampled is sampled among all tokens at temperature 1, in Kosmos by a seed for
each document, and there a text may end earlier. Sides take turns in every round; medians of milliseconds a token of a
document, of those that were written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import torch
from workload import DATA

from kosmos import make_run
from kosmos.compose import Composition, compose
from kosmos.data.batch import ReadyDocument
from kosmos.data.document import Document, Text
from kosmos.generate import generate_ids, generate_together, ready_prompt
from kosmos.model.weights import materialize
from kosmos.plugins import load_plugins

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def documents(count: int) -> list[Document]:
    """Texts of 20 to 50 characters: of real text where it is there."""
    file = DATA / "text" / "tinyshakespeare.txt"
    text = file.read_text(encoding="utf-8") if file.exists() else "Now is the winter of" * 50 * count
    return [Document(f"{i}", (Text(text[1000 * i : 1000 * i + 20 + i % 31]),)) for i in range(count)]


def composed(backbone: dict[str, Any], device: torch.device = CPU) -> Composition:
    torch.manual_seed(0)
    parts = compose(make_run({"backbone": backbone}), load_plugins())
    materialize(parts.model, CPU, draw=True)
    parts.model.eval().to(device)
    return parts


def llama(shape: Any) -> dict[str, Any]:
    """Fields of a Llama of a decoder's shape."""
    return {
        "hidden_size": shape.width, "intermediate_size": shape.ffn_width, "tie_word_embeddings": False,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
    }  # fmt: skip


def of_transformers(shape: Any, vocab_size: int, dtype: torch.dtype, device: torch.device = CPU) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    with device:  # on a GPU weights are drawn at once
        return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **llama(shape))).eval().to(dtype)


def theirs(model: Any, lengths: Sequence[int], tokens: int, temperature: float = 0.0) -> int:
    """Tokens that transformers writes."""
    ids, mask = torch.zeros(2, len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, -length:], mask[row, -length:] = torch.randint(3, 200, (length,)), 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    how: dict[str, Any] = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0,
            **{"do_sample": False, **how},
        )  # fmt: skip
    return int(out[:, ids.shape[1] :].numel())


def ours(
    parts: Composition, prompts: Sequence[ReadyDocument], tokens: int, dtype: torch.dtype, temperature: float = 0.0
) -> int:
    given: dict[str, Any] = {"max_new_tokens": tokens, "temperature": temperature, "dtype": dtype}
    written = generate_together(parts, prompts, device=_device(parts), seeds=range(len(prompts)), **given)
    return sum(map(len, written))


def one_by_one(
    parts: Composition, found: Sequence[Document], tokens: int, dtype: torch.dtype, temperature: float = 0.0
) -> int:
    given: dict[str, Any] = {"max_new_tokens": tokens, "temperature": temperature, "dtype": dtype}
    written = (generate_ids(parts, one, device=_device(parts), seed=seed, **given) for seed, one in enumerate(found))
    return sum(map(len, written))


def launched(parts: Composition, side: Callable[..., int], *given: Any) -> int:
    """A side without graphs of a GPU."""
    backbone: Any = parts.model.backbone
    backbone.capturable = False
    try:
        return side(parts, *given)
    finally:
        del backbone.capturable


def _device(parts: Composition) -> torch.device:
    return next(parts.model.parameters()).device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--together", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    parts, found = composed({"name": "decoder", "preset": given.preset}), documents(given.together)
    prompts = [ready_prompt(parts, document) for document in found]
    lengths, few = [len(prompt.plan) for prompt in prompts], 3
    backbone: Any = parts.model.backbone
    hosted = composed({"name": "hf", "config": {"model_type": "llama", **llama(backbone.shape)}})
    size = sum(p.numel() for p in backbone.parameters())
    print(f"{size / 1e6:.0f} M parameters, {torch.get_num_threads()} threads, ms a token of a document\n")
    print(
        "| dtype | limit of one | Kosmos, one by one | transformers | together: Kosmos | its Llama in Kosmos "
        "| transformers |\n|---|---|---|---|---|---|---|"
    )
    for (name, dtype), temperature in product(DTYPES.items(), (0.0, 1.0)):
        how = given.tokens, dtype, temperature
        peer = of_transformers(backbone.shape, backbone.vocab_size, dtype)
        sides: list[Callable[[], int]] = [
            partial(one_by_one, parts, found[:few], *how),
            lambda peer=peer, at=temperature: sum(theirs(peer, [n], given.tokens, at) for n in lengths[:few]),  # type: ignore[misc]
            partial(ours, parts, prompts, *how),
            partial(ours, hosted, prompts, *how),
            partial(theirs, peer, lengths, given.tokens, temperature),
        ]
        times: list[list[float]] = [[] for _ in sides]
        for number in range(given.rounds):
            for side in range(number, number + len(sides)):
                times[side % len(sides)].append(_ms_a_token(sides[side % len(sides)]))
        one, one_peer, together, in_kosmos, together_peer = map(median, times)
        print(
            f"| {name}{', sampled' if temperature else ''} | {_limit_ms(size, dtype):.1f} "
            f"| {one:.1f} | {one_peer:.1f} ({one_peer / one:.2f}x) "
            f"| {together:.1f} | {in_kosmos:.1f} | {together_peer:.1f} ({together_peer / together:.2f}x, "
            f"{together_peer / in_kosmos:.2f}x) |",
            flush=True,
        )


def _ms_a_token(side: Callable[[], int]) -> float:
    begin = perf_counter()
    tokens = side()
    return (perf_counter() - begin) / tokens * 1e3


def _limit_ms(size: int, dtype: torch.dtype) -> float:
    """To read the weights once, at the rate of a copy."""
    weights = torch.ones(size, dtype=dtype)
    into, seconds = torch.empty_like(weights), []
    for _ in range(5):
        begin = perf_counter()
        into.copy_(weights)
        seconds.append(perf_counter() - begin)
    return median(seconds) / 2 * 1e3


if __name__ == "__main__":
    main()

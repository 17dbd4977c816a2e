"""Text from a document: greedy or sampled, with a key-value cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kosmos.compose import Composition
from kosmos.data.asked import prompt_of
from kosmos.data.batch import PackedBatch, ReadyDocument, assemble, ready_document, to_tensors
from kosmos.data.document import Document
from kosmos.data.document_plan import DocumentPlan
from kosmos.data.transfer import to_device
from kosmos.errors import ConfigError, NoToken, SampleError
from kosmos.given import is_number, whole
from kosmos.model.allowed import Allowed, Tokens
from kosmos.model.choosing import GREEDY_BELOW, NO_TOKEN, choose
from kosmos.model.continuing import continuing
from kosmos.model.not_finite import part_not_finite, weight_not_finite
from kosmos.model.omni import OmniModel
from kosmos.model.own_losses import output_of
from kosmos.model.prepacked import Prepacked
from kosmos.model.segments import Segments
from kosmos.runtime.devices import autocast


def pass_over(told: object) -> None:
    """Where nobody is told of what is written, or read."""


def texts_of(name: str, given: object) -> tuple[str, ...]:
    """An argument that is a list of texts. Raises ConfigError where it is something else, or one is empty."""
    texts = (given,) if isinstance(given, str) else given  # also a text alone
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f'{name}: expected a list of texts, none of them empty, such as ["\\n"], got {given!r:.60}')
    return tuple(texts)


def generate_ids(
    composition: Composition,
    document: Document,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    written: Callable[[int], object] = pass_over,
) -> list[int]:
    """Token ids of the continuation, without the end token. See ``generate_text`` and ``generate_alone``."""
    return generate_alone(
        composition,
        ready_prompt(composition, document),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        device=device,
        dtype=dtype,
        seed=seed,
        written=written,
    )


def generate_alone(
    composition: Composition,
    prompt: ReadyDocument,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    written: Callable[[int], object] = pass_over,
) -> list[int]:
    """As ``generate_ids``, of a document that is decoded. What is sampled depends on it and on the seed alone.

    Args:
        written: told each token. What it returns as true ends the text behind it.
    """
    check_sampling(temperature, top_k, top_p)
    batch = to_tensors(assemble([prompt], composition.planner.routes, composition.streams)).to(device)
    backbone: Any = composition.model.backbone
    ends = composition.planner.stops
    random = torch.Generator().manual_seed(seed)
    steps, ids = continuing(backbone, device, one=True), list[int]()
    left, position = room_behind(backbone, len(batch.token_ids), max_new_tokens), len(batch.token_ids)
    head, allowed = _head(composition, dtype), _allowed(composition, 1, device)
    with _as_it_writes(composition.model, device, dtype), Prepacked(backbone, head) as products:
        x = composition.model.embed(batch)
        hidden = output_of(backbone(x, batch.position_ids, Segments(batch.lengths), steps.cache))
        while len(ids) < max_new_tokens:
            (token,) = choose(allowed(_logits(head, hidden[-1:]), [0]), temperature, top_k, top_p, [random])
            _check_chosen(token, prompt.plan.origin, len(ids), composition.model, batch)
            if token in ends:
                break
            ids.append(token)
            allowed.add(0, token)
            if written(token) or len(ids) > left or len(ids) == max_new_tokens:
                break
            products.count()
            hidden = steps([token], [position])
            position += 1
    return ids


def generate_together(
    composition: Composition,
    prompts: Sequence[ReadyDocument],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    device: torch.device,
    dtype: torch.dtype,
    seeds: Sequence[int] = (),
    written: Sequence[Callable[[int], object]] = (),
) -> list[list[int]]:
    """As ``generate_alone``, of several documents at once, by a backbone that has a ``new_batch_cache``.

    A token of one document takes nearly as long as one of each of ten: reading the weights is most of it. Rounding is
    that of products of several rows, as in scoring.

    Args:
        max_new_tokens: at least 1; each document may write all of them.
        seeds: of each document; none are needed for the most likely tokens.
        written: that of each document.

    Raises:
        ConfigError: as ``generate_text``.
        SampleError: a document is longer than the backbone has positions for.
        TrainingError: as ``generate_text``.
    """
    check_sampling(temperature, top_k, top_p)
    batch = to_tensors(assemble(prompts, composition.planner.routes, composition.streams)).to(device)
    backbone: Any = composition.model.backbone
    ends = composition.planner.stops
    lengths, randoms = list(batch.lengths), [torch.Generator().manual_seed(seed) for seed in seeds]
    steps, ids = continuing(backbone, device, one=False), [list[int]() for _ in lengths]
    left = [min(max_new_tokens, 1 + room_behind(backbone, length, max_new_tokens)) for length in lengths]
    going, head = list(range(len(lengths))), _head(composition, dtype)
    allowed = _allowed(composition, len(lengths), device)
    with _as_it_writes(composition.model, device, dtype), Prepacked(backbone, head) as products:
        x = composition.model.embed(batch)
        hidden = output_of(backbone(x, batch.position_ids, Segments(batch.lengths), steps.cache))
        hidden = hidden[to_device(torch.tensor(lengths), device).cumsum(0) - 1]
        while True:
            tokens = choose(allowed(_logits(head, hidden), going), temperature, top_k, top_p, randoms)
            on = []
            for place, (document, token) in enumerate(zip(going, tokens, strict=True)):
                _check_chosen(token, prompts[document].plan.origin, len(ids[document]), composition.model, batch)
                if token not in ends:
                    ids[document].append(token)
                    allowed.add(document, token)
                    is_over = written[document](token) if written else False
                    if not is_over and len(ids[document]) < left[document]:
                        on.append(place)
            if not on:
                return ids
            if len(on) < len(going):
                steps.keep(on)
                going, tokens = [going[i] for i in on], [tokens[i] for i in on]
                randoms = [randoms[i] for i in on] if randoms else randoms
            products.count()
            hidden = steps(tokens, [lengths[document] + len(ids[document]) - 1 for document in going])


@contextmanager
def _as_it_writes(model: nn.Module, device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """In evaluation, without gradients, and in the type of products; it is as it was behind it.

    In inference mode autocast keeps no weight that it has cast: it would cast all of them for every token.
    """
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.inference_mode() if dtype == torch.float32 else torch.no_grad(), autocast(device, dtype):
            yield
    finally:
        if was_training:
            model.train()


def _head(composition: Composition, dtype: torch.dtype) -> nn.Linear:
    """[.., D] -> [.., V], V being the tokenizer's: a pretrained backbone may have rows for more, which mean nothing.

    Cast once here: what is cut from a parameter is none, so autocast would not keep it.
    """
    backbone: Any = composition.model.backbone
    weight: Tensor = backbone.output_weight().detach()[: composition.tokenizer.vocab_size].float().to(dtype)
    head = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    head.weight = nn.Parameter(weight, requires_grad=False)
    return head


def _allowed(composition: Composition, documents: int, device: torch.device) -> Allowed:
    """What may come next by the codecs of the run."""
    writers = [route.writer for route in composition.planner.routes.values() if route.writer is not None]
    media = [Tokens(writer.begin, writer.end, writer.code_ids, writer.books, writer.length) for writer in writers]
    return Allowed(media, composition.tokenizer.vocab_size, documents, device)


def _logits(head: nn.Linear, hidden: Tensor) -> Tensor:
    logits: Tensor = head(hidden.to(head.weight.dtype))
    return logits


def room_behind(backbone: Any, prompt: int, wanted: int) -> int:
    """Tokens that the backbone may read behind a prompt. Raises SampleError where the prompt itself is too long."""
    longest: int | None = getattr(backbone, "longest", None)
    if longest is None:
        return wanted
    if prompt > longest:
        raise SampleError(f"takes {prompt} tokens and the backbone has positions for {longest}")
    return longest - prompt


def why_ended(backbone: Any, prompt: int, written: int, max_new_tokens: int) -> str:
    """Why no more tokens were written behind a prompt of so many: ``end`` of the model's, ``max_new_tokens``, or
    ``positions``, of which the backbone has no more."""
    if written == max_new_tokens:
        return "max_new_tokens"
    longest: int | None = getattr(backbone, "longest", None)
    return "positions" if longest is not None and prompt + written > longest else "end"


def check_document(document: object, name: str = "document") -> None:
    """Raises ConfigError where it is none."""
    if not isinstance(document, Document):
        example = "Document('prompt', (Text('Once'),))"
        raise ConfigError(f"{name}: expected a Document, such as {example}, got {document!r:.60}")


def warn_of_answers(documents: Sequence[Document]) -> None:
    """Warns the caller of a public function where documents hold their answers already."""
    ends = [document.origin for document in documents if not document.goes_on and prompt_of(document)]
    if ends:
        more = f" and {len(ends) - 1:,} more" if len(ends) > 1 else ""
        warnings.warn(
            f"{ends[0]}{more}: ends in an answer that is learned, and is continued behind that; leave the answer out, "
            "or let generate_answers ask",
            stacklevel=4,  # through the decorator of the function
        )


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises ConfigError as ``generate_text``."""
    if not (is_number(temperature) and temperature >= 0):
        raise ConfigError(f"temperature: expected a number from 0 on, got {temperature!r:.60}")
    if top_k is not None:
        whole("top_k", top_k, least=1)
    if top_p is not None and not (is_number(top_p) and 0 < top_p <= 1):
        raise ConfigError(f"top_p: expected a number above 0 and up to 1, got {top_p!r:.60}")
    if temperature < GREEDY_BELOW and (top_k, top_p) != (None, None):
        raise ConfigError("top_k, top_p: say what is sampled from; give a temperature above 0, or leave them out")


def prompt_batch(composition: Composition, document: Document) -> PackedBatch:
    """The document as a row of its own, to be continued."""
    ready = ready_prompt(composition, document)
    return to_tensors(assemble([ready], composition.planner.routes, composition.streams))


Look = Callable[[DocumentPlan], object]
"""Told of each prompt before it is decoded. What it raises stands in the way."""


def ready_prompt(composition: Composition, document: Document, look: Look = pass_over) -> ReadyDocument:
    """The document planned and decoded, to be continued."""
    planner = composition.planner
    plan = planner.prompt(document)
    look(plan)
    return ready_document(plan, planner.routes, "prompt")


def _check_chosen(token: int, origin: str, written: int, model: OmniModel, prompt: PackedBatch) -> None:
    """Raises TrainingError where no token could be chosen behind so many."""
    if token == NO_TOKEN:
        no_token = f"{origin}: the model gives no token {written + 1} a probability (its logits are not finite)"
        part = None if (weight := weight_not_finite(model)) else part_not_finite(model, [prompt])
        weights = f"{weight or 'its run went wrong and its weights are of no use'}; take an earlier checkpoint (--step)"
        raise NoToken(f"{no_token}: {part or weights}")

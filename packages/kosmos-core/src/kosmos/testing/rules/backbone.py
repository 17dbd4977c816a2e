"""What a backbone promises: documents of a row are alone, the future is not seen, and a cache changes nothing.

Letters: T = tokens of the row, D = width, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from kosmos.model.caches import KeyValueBatch
from kosmos.model.continuing import Continuing, Launched, OneShape
from kosmos.model.segments import Segments
from kosmos.model.weights import drawn_later, materialize, without_memory
from kosmos.testing.interrupted import undisturbed
from kosmos.testing.items import apart, silence
from kosmos.testing.promise import BrokenPromise, Unchecked, rule
from kosmos.testing.subjects import ComponentUnderTest

VOCABULARY = 300
LENGTHS = (7, 1, 12, 5)
TOLERANCE = 1e-4
"""Of the largest value, in float32: 4e-7 was measured of core's decoder."""


def fresh(backbone: ComponentUnderTest) -> Any:
    torch.manual_seed(0)
    module = backbone.build(VOCABULARY).train()
    silence(module)
    return module


def some_tokens() -> Tensor:
    return torch.randint(0, VOCABULARY, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))


def hidden_states(module: Any, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
    positions = torch.cat([torch.arange(length) for length in lengths])
    hidden: Tensor = module(module.embed(tokens), positions, Segments(tuple(lengths)))
    return hidden


@rule("backbone", "shapes", "embed gives [T, D], hidden states are [T, D] and the output weight is [V, D]")
def shapes(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()
    found = {
        "embed": (module.embed(tokens), (len(tokens), module.width)),
        "hidden states": (hidden_states(module, tokens, LENGTHS), (len(tokens), module.width)),
        "output weight": (module.output_weight(), (module.vocab_size, module.width)),
    }
    for name, (tensor, expected) in found.items():
        if tuple(tensor.shape) != expected or not tensor.isfinite().all():
            given = f"{list(tensor.shape)}, finite {bool(tensor.isfinite().all())}"
            raise BrokenPromise(f"{name}: {given}; expected {list(expected)} of finite numbers")
    if module.vocab_size < VOCABULARY:
        raise BrokenPromise(f"vocab_size is {module.vocab_size}; {VOCABULARY} were asked for")


@rule("backbone", "packed-equals-alone", "documents of one row have the hidden states that they have one by one")
def packed_equals_alone(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()
    packed = torch.split(hidden_states(module, tokens, LENGTHS), list(LENGTHS))
    for number, (document, mine) in enumerate(zip(torch.split(tokens, list(LENGTHS)), packed, strict=True)):
        if not (error := apart(mine, hidden_states(module, document, [len(document)]))) <= TOLERANCE:
            who = f"document {number + 1} of a row of {LENGTHS} tokens"
            raise BrokenPromise(f"{who} differs by {error:.2g} of the largest from itself alone")


@rule("backbone", "causal", "a token does not change the hidden states of those before it")
def causal(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()[:12]
    before = hidden_states(module, tokens, [12])
    for place in (1, 6, 11):
        changed = tokens.clone()
        changed[place] = (changed[place] + 1) % VOCABULARY
        if not (error := apart(before[:place], hidden_states(module, changed, [12])[:place])) <= TOLERANCE:
            raise BrokenPromise(f"token {place + 1} of 12 changes those before it by {error:.2g} of the largest")


@rule("backbone", "cache-changes-nothing", "token by token with a cache gives the hidden states of the whole")
def cache_changes_nothing(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone).eval(), some_tokens()[:12]
    with torch.no_grad():
        whole, cache, parts = hidden_states(module, tokens, [12]), module.new_cache(), []
        for begin, end in ((0, 5), (5, 6), (6, 7), (7, 12)):
            x, positions = module.embed(tokens[begin:end]), torch.arange(begin, end)
            parts.append(module(x, positions, Segments((end - begin,)), cache))
    if not (error := apart(whole, torch.cat(parts))) <= TOLERANCE:
        raise BrokenPromise(f"12 tokens in pieces of 5, 1, 1 and 5 differ by {error:.2g} of the largest")


@rule("backbone", "together-equals-alone", "documents continued together have the hidden states that each has alone")
def together_equals_alone(backbone: ComponentUnderTest) -> None:
    module = fresh(backbone).eval()
    if not hasattr(module, "new_batch_cache"):
        if getattr(module, "capturable", False):
            raise BrokenPromise("it says capturable, and has no new_batch_cache")
        raise Unchecked("the backbone has no new_batch_cache")
    documents = [tokens.repeat(4) for tokens in torch.split(some_tokens(), list(LENGTHS))]
    with torch.no_grad():
        alone = [hidden_states(module, document, [len(document)]) for document in documents]
        cpu, as_graphs = torch.device("cpu"), getattr(module, "capturable", False)
        if as_graphs and not isinstance(module.new_batch_cache(), KeyValueBatch):
            raise BrokenPromise("it says capturable, and its new_batch_cache gives no KeyValueBatch")
        ways: list[Continuing] = [Launched(module, cpu, module.new_batch_cache())]
        for way in [*ways, OneShape(module, cpu)] if as_graphs else ways:
            for going, number, place, mine in _continued(module, way, documents):
                if not (error := apart(mine, alone[number][place])) <= TOLERANCE:
                    which = f"token {place + 1} behind a prompt of {LENGTHS[number]}, {going} documents together"
                    how = " in rows of one shape (capturable)," if isinstance(way, OneShape) else ","
                    raise BrokenPromise(f"{which}{how} differs by {error:.2g} of the largest from the document alone")


def _continued(module: Any, steps: Continuing, documents: Sequence[Tensor]) -> Iterator[tuple[int, int, int, Tensor]]:
    """Three tokens of each behind prompts of LENGTHS, of which one document is given the first alone.

    Gives how many documents are continued, the number of one, the place of its token and the token's hidden states.
    """
    going = [0, 1, 2, 3]
    prompts = torch.cat([document[:length] for document, length in zip(documents, LENGTHS, strict=True)])
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    module(module.embed(prompts), positions, Segments(LENGTHS), steps.cache)
    for more in range(3):
        if more == 1:
            going = [0, 2, 3]
            steps.keep(going)
        places = [LENGTHS[number] + more for number in going]
        tokens = [int(documents[number][place]) for number, place in zip(going, places, strict=True)]
        hidden = steps(tokens, places)
        for number, place, mine in zip(going, places, hidden, strict=True):
            yield len(going), number, place, mine


@rule("backbone", "gradient-everywhere", "every trainable parameter gets a gradient")
def gradient_reaches_everything(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()
    logits = hidden_states(module, tokens, LENGTHS) @ module.output_weight().T
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits, tokens.roll(1)))
    missing = [n for n, p in module.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    if missing:
        raise BrokenPromise(f"no gradient reaches {', '.join(missing[:3])}")


@rule("backbone", "threads", "two threads that run it at once, each on a row of its own, get what each gets alone")
def threads(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()

    def mine() -> Tensor:
        return hidden_states(module, tokens, LENGTHS)

    def other() -> Tensor:
        return hidden_states(module, tokens.flip(0), LENGTHS[::-1])

    undisturbed(module, mine, other, "the hidden states")


@rule("backbone", "drawn-later", "made without memory and drawn afterwards, it is the one that draws as it is made")
def drawn_later_is_the_same(backbone: ComponentUnderTest) -> None:
    if not drawn_later(backbone.registry.resolve("backbone", backbone.spec.name)):
        raise Unchecked("the backbone has no draw_weights of its own")
    torch.manual_seed(0)
    with without_memory():  # first: what is remembered of its classes would hide that it is not found out here
        later = backbone.build(VOCABULARY)
    torch.rand(1)  # as other parts draw that are made before memory is there
    materialize(later, torch.device("cpu"), draw=True)
    torch.manual_seed(0)
    at_once = backbone.build(VOCABULARY)
    parts, expected = ({n: type(m) for n, m in model.named_modules()} for model in (later, at_once))
    if other := [n for n in {**expected, **parts} if parts.get(n) is not expected.get(n)]:
        raise BrokenPromise(f"{other[0] or 'the backbone'} is a module of another class, or there is none")
    found = dict(chain(later.named_parameters(), later.named_buffers()))
    for name, tensor in chain(at_once.named_parameters(), at_once.named_buffers()):
        if not torch.equal(tensor, found[name]):
            raise BrokenPromise(f"{name} has other values")


RULES = (
    shapes,
    packed_equals_alone,
    causal,
    cache_changes_nothing,
    together_equals_alone,
    threads,
    gradient_reaches_everything,
    drawn_later_is_the_same,
)

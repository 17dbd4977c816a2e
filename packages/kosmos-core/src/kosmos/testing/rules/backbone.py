"""What a backbone promises: documents of a row are alone, the future is not seen, and a cache changes nothing.

Letters: T = tokens of the row, D = width, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from kosmos.errors import cause, own_line
from kosmos.model.caches import KeyValueBatch
from kosmos.model.continuing import Continuing, Launched, OneShape
from kosmos.model.own_losses import output_of
from kosmos.model.segments import Segments
from kosmos.model.weights import drawn_later, materialize, without_memory
from kosmos.names import listed
from kosmos.testing.interrupted import undisturbed
from kosmos.testing.items import apart, output, own_losses, silence
from kosmos.testing.promise import BrokenPromise, Unchecked, rule
from kosmos.testing.subjects import ComponentUnderTest

VOCABULARY = 300
LENGTHS = (7, 1, 12, 5)
LONG = (65, 63, 1, 130, 253, 257)
"""A row of 769: documents end at 128 and 512 tokens of it, where pieces of a scan do, and within such pieces, and are
longer than 64, 128 and 256, as windows and pieces are."""
PROMPTS = (LENGTHS, (65, 1, 130, 257))
"""Of documents that are continued together, each by ``MORE`` tokens."""
MORE = 3
TOGETHER = f"documents continued together, of 1 to {max(PROMPTS[1])} tokens, have the hidden states that each has alone"
STEPS = {12: (5, 6, 7, 12), 259: (62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 254, 255, 256, 257, 258, 259)}
"""Tokens of a document that is continued, and where the pieces end that it is given in: one by one around 64, 128 and
256."""
LONG_AND_SHORT = " and ".join(map(str, STEPS))
TOLERANCE = 1e-4
"""Of the largest value, in float32: 4e-7 was measured of core's decoder."""


def fresh(backbone: ComponentUnderTest) -> Any:
    torch.manual_seed(0)
    module = backbone.build(VOCABULARY).train()
    silence(module)
    return module


def some_tokens(count: int = sum(LENGTHS)) -> Tensor:
    return torch.randint(0, VOCABULARY, (count,), generator=torch.Generator().manual_seed(0))


def within_longest(module: Any, lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths of documents, none longer than the backbone has positions for."""
    longest = getattr(module, "longest", None)
    return tuple(length if longest is None else min(length, longest) for length in lengths)


@contextmanager
def long_documents(module: Any, tokens: int) -> Iterator[None]:
    """What a backbone raises of documents that are longer than its positions is told as that."""
    try:
        yield
    except (BrokenPromise, SystemExit):
        raise
    except Exception as error:  # a seam: the plugin's own code
        if tokens <= sum(LENGTHS):
            raise
        where = own_line(error, type(module).__module__)
        raise BrokenPromise(
            f"a document of {tokens} tokens raised {cause(error)}{where}; a backbone that has positions for fewer "
            "states how many in `longest`"
        ) from error


def hidden_states(module: Any, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
    positions = torch.cat([torch.arange(length) for length in lengths])
    return output(module, module.embed(tokens), positions, Segments(tuple(lengths)))


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


@rule(
    "backbone",
    "packed-equals-alone",
    f"documents of one row, of 1 to {max(LONG)} tokens, have the hidden states that they have one by one",
)
def packed_equals_alone(backbone: ComponentUnderTest) -> None:
    module = fresh(backbone)
    for lengths in (LENGTHS, within_longest(module, LONG)):
        tokens = some_tokens(sum(lengths))
        with long_documents(module, max(lengths)):
            packed = torch.split(hidden_states(module, tokens, lengths), list(lengths))
            alone = [
                hidden_states(module, document, [len(document)]) for document in torch.split(tokens, list(lengths))
            ]
        for number, (mine, expected) in enumerate(zip(packed, alone, strict=True)):
            if not (error := apart(mine, expected)) <= TOLERANCE:
                who = f"document {number + 1} of a row of {lengths} tokens"
                raise BrokenPromise(f"{who} differs by {error:.2g} of the largest from itself alone")


@rule(
    "backbone",
    "causal",
    f"a token does not change the hidden states of those before it, in documents of {LONG_AND_SHORT} tokens",
)
def causal(backbone: ComponentUnderTest) -> None:
    module = fresh(backbone)
    for count, places in zip(STEPS, ((1, 6, 11), (63, 64, 65, 128, 200, 256, 258)), strict=True):
        (length,) = within_longest(module, (count,))
        tokens = some_tokens(length)
        with long_documents(module, length):
            before = hidden_states(module, tokens, [length])
            for place in (one for one in places if one < length):
                changed = tokens.clone()
                changed[place] = (changed[place] + 1) % VOCABULARY
                if not (error := apart(before[:place], hidden_states(module, changed, [length])[:place])) <= TOLERANCE:
                    which = f"token {place + 1} of {length}"
                    raise BrokenPromise(f"{which} changes those before it by {error:.2g} of the largest")


@rule(
    "backbone",
    "cache-changes-nothing",
    f"{LONG_AND_SHORT} tokens with a cache, in pieces and one by one, give the hidden states of the whole",
)
def cache_changes_nothing(backbone: ComponentUnderTest) -> None:
    module = fresh(backbone).eval()
    for count, stated in STEPS.items():
        (length,) = within_longest(module, (count,))
        ends = [*(end for end in stated if end < length), length]
        tokens = some_tokens(length)
        with torch.no_grad(), long_documents(module, length):
            whole, cache, parts = hidden_states(module, tokens, [length]), module.new_cache(), []
            for begin, end in pairwise((0, *ends)):
                x, positions = module.embed(tokens[begin:end]), torch.arange(begin, end)
                parts.append(output(module, x, positions, Segments((end - begin,)), cache))
        for part, (begin, end) in zip(parts, pairwise((0, *ends)), strict=True):
            if not (error := apart(whole[begin:end], part)) <= TOLERANCE:
                which = f"token {end}" if end - begin == 1 else f"tokens {begin + 1} to {end}"
                pieces = listed([str(last - first) for first, last in pairwise((0, *ends))], at_most=4)
                raise BrokenPromise(
                    f"{which} of {length}, given in pieces of {pieces}, differ by {error:.2g} of the largest"
                )


@rule("backbone", "together-equals-alone", TOGETHER)
def together_equals_alone(backbone: ComponentUnderTest) -> None:
    module = fresh(backbone).eval()
    if not hasattr(module, "new_batch_cache"):
        if getattr(module, "capturable", False):
            raise BrokenPromise("it says capturable, and has no new_batch_cache")
        raise Unchecked("the backbone has no new_batch_cache")
    cpu, as_graphs = torch.device("cpu"), getattr(module, "capturable", False)
    if as_graphs and not isinstance(module.new_batch_cache(), KeyValueBatch):
        raise BrokenPromise("it says capturable, and its new_batch_cache gives no KeyValueBatch")
    for prompts in PROMPTS:
        lengths = tuple(length - MORE for length in within_longest(module, [length + MORE for length in prompts]))
        if min(lengths) < 1:
            continue
        with torch.no_grad(), long_documents(module, max(lengths) + MORE):
            documents = torch.split(some_tokens(sum(lengths) + 4 * MORE), [length + MORE for length in lengths])
            alone = [hidden_states(module, document, [len(document)]) for document in documents]
            ways: list[Continuing] = [Launched(module, cpu, module.new_batch_cache())]
            for way in [*ways, OneShape(module, cpu)] if as_graphs else ways:
                for going, number, place, mine in _continued(module, way, documents):
                    if not (error := apart(mine, alone[number][place])) <= TOLERANCE:
                        which = f"token {place + 1} behind a prompt of {lengths[number]}, {going} documents together"
                        how = " in rows of one shape (capturable)," if isinstance(way, OneShape) else ","
                        raise BrokenPromise(
                            f"{which}{how} differs by {error:.2g} of the largest from the document alone"
                        )


def _continued(module: Any, steps: Continuing, documents: Sequence[Tensor]) -> Iterator[tuple[int, int, int, Tensor]]:
    """The last tokens of four documents behind the rest of them, of which one document is given the first alone.

    Gives how many documents are continued, the number of one, the place of its token and the token's hidden states.
    """
    going, lengths = [0, 1, 2, 3], tuple(len(document) - MORE for document in documents)
    prompts = torch.cat([document[:-MORE] for document in documents])
    positions = torch.cat([torch.arange(length) for length in lengths])
    module(module.embed(prompts), positions, Segments(lengths), steps.cache)
    for more in range(MORE):
        if more == 1:
            going = [0, 2, 3]
            steps.keep(going)
        places = [lengths[number] + more for number in going]
        tokens = [int(documents[number][place]) for number, place in zip(going, places, strict=True)]
        hidden = steps(tokens, places)
        for number, place, mine in zip(going, places, hidden, strict=True):
            yield len(going), number, place, mine


@rule("backbone", "gradient-everywhere", "every trainable parameter gets a gradient")
def gradient_reaches_everything(backbone: ComponentUnderTest) -> None:
    module, tokens = fresh(backbone), some_tokens()
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    given = module(module.embed(tokens), positions, Segments(LENGTHS))
    losses = own_losses(given, module, filled=True)
    logits = output_of(given) @ module.output_weight().T
    total = sum(losses.values(), torch.nn.functional.cross_entropy(logits, tokens.roll(1)))
    torch.autograd.backward(total)
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

"""What is scored and written is the same where a caller in Python is within an autocast of its own."""

from __future__ import annotations

import pytest
import torch

from kosmos import Document, Documents, Text, generate_answers, generate_text, generate_texts, score
from kosmos.compose import compose
from kosmos.runtime.devices import apart_from_autocast
from support.runs import small_run, ticks_registry

ASKED = [Document(f"sum {n}", (Text(f"{n} + 1 = "), Text(str(n + 1), train=True))) for n in range(6)]
PROMPTS = [Document(f"sum {n}", (Text(f"{n} + 1 = "),)) for n in range(3)]
MOST = {"max_new_tokens": 6}


@pytest.fixture
def parts():
    return compose(small_run(), ticks_registry())


def halve(model) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def test_scores_are_of_the_weights_as_they_are(parts) -> None:
    found = []
    for within in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=within):
            first = score(parts, [Documents("sums", ASKED)], workers=0).overall.loss
            halve(parts.model)
            found.append((first, score(parts, [Documents("sums", ASKED)], workers=0).overall.loss))
        parts.model.load_state_dict(compose(small_run(), ticks_registry()).model.state_dict())
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_bf16_scores_are_of_the_weights_as_they_are(parts) -> None:
    sums = [Documents("sums", ASKED)]
    with torch.autocast("cpu", torch.bfloat16):
        score(parts, sums, dtype=torch.bfloat16, workers=0)
        halve(parts.model)
        within = score(parts, sums, dtype=torch.bfloat16, workers=0).overall.loss
    assert within == score(parts, sums, dtype=torch.bfloat16, workers=0).overall.loss


@pytest.mark.parametrize(
    "write",
    [
        lambda parts: [generate_text(parts, document, **MOST) for document in PROMPTS],
        lambda parts: generate_texts(parts, PROMPTS, **MOST),
        lambda parts: [answer.text for answer in generate_answers(parts, Documents("sums", ASKED), **MOST)],
    ],
)
def test_texts_are_written_in_the_type_that_is_asked_for(parts, write) -> None:
    types = set()
    parts.model.backbone.register_forward_hook(lambda module, given, hidden: types.add(hidden.dtype))
    plain, of_fp32 = write(parts), set(types)
    types.clear()
    with torch.autocast("cpu", torch.bfloat16):
        assert write(parts) == plain
    assert types == of_fp32


def test_who_takes_answers_has_its_autocast_in_between(parts) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        for _ in generate_answers(parts, Documents("sums", ASKED), **MOST):
            assert torch.is_autocast_enabled("cpu")


@apart_from_autocast()
def fails_apart() -> None:
    assert not torch.is_autocast_enabled("cpu")
    assert torch.is_autocast_cache_enabled()
    raise ValueError("on purpose")


def test_autocast_is_as_it_was_also_where_something_failed() -> None:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False), torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match="on purpose"):
            fails_apart()
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_cache_enabled()
        assert torch.autocast_decrement_nesting() == 1
        assert torch.autocast_increment_nesting() == 2
    assert not torch.is_autocast_enabled("cpu")

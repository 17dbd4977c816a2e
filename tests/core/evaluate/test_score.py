from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from kosmos import ConfigError, DataError, Document, Documents, Text, score
from kosmos.compose import compose
from kosmos.data.asked import prompt_of
from kosmos.data.batch import DocumentInfo
from kosmos.data.document import Source
from kosmos.evaluate.asking import generate_text
from kosmos.evaluate.score import _by_document
from kosmos.testing.fake_gpu import CUDA, fake_gpu, put_on
from kosmos.train.run import train_model
from kosmos.train.saved import load_run
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource

CPU = torch.device("cpu")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
}
BACKBONES = {"decoder": {}, "hf": {"name": "hf", "config": LLAMA}}


@dataclass(frozen=True)
class One:
    """A source of one document of another."""

    source: Source
    index: int
    name: str = "one"

    def __len__(self) -> int:
        return 1

    def document(self, index: int) -> Document:
        return self.source.document(self.index)


@pytest.fixture(scope="module", params=BACKBONES)
def trained(request, tmp_path_factory):
    """A model that is right about some documents and wrong about others."""
    output = tmp_path_factory.mktemp(request.param) / "run"
    over = {"backbone": BACKBONES[request.param], "train": {"steps": 90, "optimizer": "adamw", "learning_rate": 1e-2}}
    over["data"] = {"sources": ["ticks", "sums"], "tokens_per_pack": 256}
    over["evaluate"] = {"max_documents": 2}
    train_model(small_run(output, **over), registry=ticks_registry())
    return load_run(output, registry=ticks_registry()).composition


@pytest.fixture(scope="module")
def sources(trained):
    return [TicksSource("held_out", 240), trained.registry.build("dataset", "sums", "held_out")]


def alone(trained, source, index):
    return score(trained, [One(source, index)], device=CPU, workers=0)


def test_exact_match_is_what_real_greedy_generation_gives_document_by_document(trained, sources):
    right = []
    for source in sources:
        for index in range(12):
            prompt, expected = prompt_of(source.document(index))
            text = generate_text(trained, prompt, max_new_tokens=40)
            right.append(text == expected)
            assert alone(trained, source, index).overall.exact_match == float(right[-1]), (text, expected)
    assert 0 < sum(right) < len(right)


def test_scores_of_sources_and_modalities_are_the_sums_over_their_documents(trained, sources):
    losses, targets, counts = {}, {}, {}
    for source in sources:
        for index in range(len(source)):
            document = source.document(index)
            number = sum(int(plan.train[1:].sum()) for plan in trained.planner.plan(document))
            one = alone(trained, source, index)
            for key in (("source", source.name), *(("modality", m) for m in document.modalities), ("all", "")):
                losses[key] = losses.get(key, 0.0) + one.overall.loss * number
                targets[key] = targets.get(key, 0) + number
                counts[key] = counts.get(key, 0) + 1
    packed = score(trained, sources, device=CPU, workers=0)
    by_source = {("source", name): part for name, part in packed.by_source.items()}
    by_modality = {("modality", name): part for name, part in packed.by_modality.items()}
    for key, found in {**by_source, **by_modality, ("all", ""): packed.overall}.items():
        assert found.documents == counts[key]
        assert found.loss == pytest.approx(losses[key] / targets[key], rel=1e-6)  # measured: 3.5e-8
        assert found.perplexity == math.exp(found.loss)
    assert set(packed.by_modality) == {"ticks", "text"}
    assert packed.by_modality["ticks"] == packed.by_source["ticks"]


@pytest.mark.parametrize("workers", [1, 3])
def test_scores_are_the_same_with_and_without_workers(trained, sources, workers):
    few = {"device": CPU, "max_documents": 100}
    assert score(trained, sources, workers=0, **few) == score(trained, sources, workers=workers, **few)


def test_at_most_so_many_documents_of_each_source_are_scored(trained, sources):
    found = score(trained, sources, device=CPU, workers=0, max_documents=7)
    assert {name: s.documents for name, s in found.by_source.items()} == {"ticks": 7, "sums": 7}


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")
def test_a_gpu_computes_a_row_while_the_one_before_is_counted(trained, sources):
    there = deepcopy(trained)
    rows = []
    with fake_gpu() as gpu:
        put_on(there.model)
        found = score(there, sources, device=CUDA, workers=0, at=lambda phase, **more: rows.append(phase))
    assert len(rows) > 3
    assert found.overall.documents == sum(map(len, sources))
    # Where no row is left to be given: what is behind is waited for.
    assert [wait.split(" at ")[0] for wait in gpu.waits] == ["Event.synchronize"]


def test_documents_that_cannot_be_read_are_named_and_left_out(trained):
    source = TicksSource("train", 30, broken=(4, 9))
    found = score(trained, [source], device=CPU, workers=0)
    assert found.overall.documents == 28
    assert sorted(i.origin for i in found.incidents) == ["ticks 4", "ticks 9"]


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ([], "sources: there are none"),
        ([TicksSource("train", 0)], "ticks: empty"),
        ([TicksSource("train", 2, broken=(0, 1))], "2 left out, the first ticks 0: "),
    ],
)
def test_where_no_document_could_be_scored_there_are_no_scores(trained, sources, says):
    with pytest.raises(DataError, match=f"^no document could be scored; {says}"):
        score(trained, sources, device=CPU, workers=0)
    assert score(trained, sources, device=CPU, workers=0, allow_none=True).overall.documents == 0


def test_two_sources_of_one_name_are_not_scored_as_one(trained):
    with pytest.raises(ConfigError, match="sources: two are called 'ticks'; give each a name of its own"):
        score(trained, [TicksSource("train", 3), TicksSource("held_out", 3)], device=CPU, workers=0)


def test_scoring_leaves_the_model_as_it_was(trained, sources):
    before = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    for mode in (True, False):
        trained.model.train(mode)
        score(trained, [replace(sources[0], size=10)], device=CPU, workers=0)
        assert trained.model.training == mode
    assert all(torch.equal(t, before[name]) for name, t in trained.model.state_dict().items())
    assert all(p.grad is None for p in trained.model.parameters())


def test_where_the_last_documents_are_all_broken_they_are_named_and_the_others_scored(trained):
    for broken, good in (((29,), 29), (tuple(range(30)), 0)):
        found = score(trained, [TicksSource("train", 30, broken=broken)], device=CPU, workers=0, allow_none=True)
        assert found.overall.documents == good
        assert len(found.incidents) == len(broken)


class Looked(np.ndarray):
    """Counts the values that operations on it look at."""

    values = 0

    def __array_ufunc__(self, operation, method, *given, **more):
        plain = [x.view(np.ndarray) if isinstance(x, Looked) else x for x in given]
        Looked.values += sum(x.size for x in given if isinstance(x, Looked))
        return getattr(operation, method)(*plain, **more)


@pytest.mark.parametrize("many", [50, 400])
def test_counting_a_row_looks_at_each_position_once_however_many_documents_it_has(many):
    length, trained = 20, 9
    documents = [DocumentInfo("", "lines", ("text",), at * length, length, at * length + 15) for at in range(many)]
    positions = np.concatenate([np.arange(trained) + document.start + 10 for document in documents])
    losses, right = np.arange(len(positions), dtype=np.float64), np.ones(len(positions), np.bool_)
    right[[0, -1]] = False  # before the first document's answer, and within the last one's
    Looked.values = 0
    found = _by_document(documents, positions.view(Looked), losses, right)
    assert [tally.right for tally in found] == [1] * (many - 1) + [0]
    assert [tally.targets for tally in found] == [trained] * many
    assert [tally.loss for tally in found] == [losses[at : at + trained].sum() for at in range(0, len(losses), trained)]
    assert Looked.values <= 2 * len(positions)


def test_bits_per_byte_are_the_losses_over_the_bytes_of_what_is_learned(trained, sources):
    learned = []
    scores = score(trained, sources, device=CPU, workers=0, max_documents=20)
    for source in sources:
        found = score(trained, [source], device=CPU, workers=0, max_documents=20)
        nats = []
        score(
            trained, [source], device=CPU, workers=0, max_documents=20,
            told=lambda document, losses, nats=nats: nats.append((document.origin, losses.sum())),
        )  # fmt: skip
        by_origin = {source.document(n).origin: source.document(n) for n in range(len(source))}
        texts = [t.text for origin, _ in nats for t in by_origin[origin].segments if getattr(t, "train", False)]
        nbytes, bits = len("".join(texts).encode()), sum(loss for _, loss in nats) / math.log(2)
        assert found.overall.bits_per_byte == pytest.approx(bits / nbytes)
        assert scores.by_source[source.name].bits_per_byte == pytest.approx(bits / nbytes)
        learned.append((bits, nbytes))
    bits, nbytes = map(sum, zip(*learned, strict=True))
    assert scores.overall.bits_per_byte == pytest.approx(bits / nbytes)


@pytest.mark.parametrize("tokens", [128, 130, 131])
def test_characters_that_the_end_of_a_row_cuts_are_counted_once(tokens):
    text = "\N{HIRAGANA LETTER A}" * 200  # of three bytes each, in pieces that begin with the last token before
    composed = compose(small_run(data={"tokens_per_pack": tokens}), ticks_registry())
    document = Document("d", (Text(text, train=True),))
    found = score(composed, [Documents("one", [document])], device=CPU, workers=0).overall
    losses = []
    told = lambda _, own: losses.append(own.sum())  # noqa: E731
    score(composed, [Documents("one", [document])], device=CPU, workers=0, told=told)
    bits = sum(losses) / math.log(2) / len(text.encode())
    assert found.bits_per_byte == pytest.approx(bits, rel=0.006)

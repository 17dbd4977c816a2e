from __future__ import annotations

import json
import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import typer

from kosmos import ConfigError, Document, Media, SampleError, Text, TrainingError, generate_text
from kosmos.commands import generate as command
from kosmos.compose import compose, open_sources
from kosmos.config import SourceConfig
from kosmos.data.chat import chat_prompt, holds_chats
from kosmos.data.document import Mark
from kosmos.data.tokenizer import END, EOS
from kosmos.evaluate.generated import generate_answers
from kosmos.generate import NO_TOKEN, _choose, generate_ids, generate_together, prompt_batch, prompt_of, ready_prompt
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
}
BACKBONES = {
    "decoder": {"layers": 2, "kv_heads": 1},
    "kosmos-1": {"layers": 2, "positions": "xpos", "norm": "layer", "activation": "gelu", "sub_ln": True},
    "hf": {"name": "hf", "config": LLAMA},
}
SERIES = np.linspace(-1, 1, 13, dtype=np.float32)


@pytest.fixture(scope="module", params=BACKBONES)
def parts(request):
    parts = compose(small_run(backbone=BACKBONES[request.param]), ticks_registry())
    parts.model.eval()
    with torch.no_grad():  # initial logits are too even for a test of which token is the most likely
        for parameter in parts.model.parameters():
            parameter.mul_(2)
    return parts


def documents():
    yield Document("text", (Text("one plus"),))
    yield Document("ticks", (Media("ticks", SERIES),))
    yield Document("both", (Text("a"), Media("ticks", SERIES), Text("b"), Media("ticks", -SERIES[:5]), Text("c")))


def recomputed(parts, document, count):
    """Greedy, the whole row anew for each token."""
    ids = []
    for _ in range(count):
        batch = prompt_batch(parts, document)
        length = len(batch.token_ids) + len(ids)
        batch.token_ids = torch.cat([batch.token_ids, torch.tensor(ids, dtype=torch.int64)])
        batch.labels = torch.full((length,), -100)
        batch.position_ids = torch.arange(length)
        (info,) = batch.documents
        batch.documents = (type(info)(info.origin, info.source, info.modalities, 0, length),)
        with torch.inference_mode():
            logits = parts.model.hidden(batch)[-1] @ parts.model.backbone.output_weight().T
        ids.append(int(logits.argmax()))
    return ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_documents_that_are_continued_together_get_what_each_gets_alone(parts, dtype):
    given = {"device": torch.device("cpu"), "dtype": dtype}
    prompts = [ready_prompt(parts, document) for document in documents()]
    # 80 tokens: buffers have to grow on the way.
    together = generate_together(parts, prompts, max_new_tokens=80, **given)
    alone = [
        generate_ids(parts, document, max_new_tokens=80, temperature=0.0, seed=0, **given) for document in documents()
    ]
    if dtype == torch.float32:
        assert together == alone
    else:  # products of several rows round in other places; the first token shows what was read of the prompt
        assert [ids[:1] for ids in together] == [ids[:1] for ids in alone]
    assert max(map(len, together)) > 4


def test_answers_are_those_of_each_document_alone_in_its_order(parts, monkeypatch):
    monkeypatch.setattr("kosmos.evaluate.generated.AT_ONCE", 3)
    given = {"device": torch.device("cpu"), "dtype": torch.float32, "max_new_tokens": 6}
    source = TicksSource("train", 20)
    answers = generate_answers(parts, source, max_documents=11, **given)
    assert len(answers) == 11
    by_origin = {document.origin: document for document in map(source.document, range(len(source)))}
    for answer in answers:
        prompt, expected = prompt_of(by_origin[answer.origin])
        assert (answer.expected, answer.text) == (expected, generate_text(parts, prompt, **given))


def test_cached_greedy_generation_equals_the_whole_row_anew_for_each_token(parts):
    for document in documents():
        cached = generate_ids(
            parts, document, max_new_tokens=24, temperature=0.0, device=torch.device("cpu"), dtype=torch.float32, seed=0
        )
        anew = recomputed(parts, document, 24)
        ends = [i for i, token in enumerate(anew) if token in marks(parts)]
        assert cached == anew[: ends[0] if ends else None]
        assert len(cached) > 4


def marks(parts):
    return {parts.tokenizer.mark_id(name) for name in (EOS, END)}


def test_sampling_is_repeated_by_its_seed_and_differs_between_seeds(parts):
    document = next(documents())
    texts = [generate_text(parts, document, max_new_tokens=30, temperature=1.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    greedy = [generate_text(parts, document, max_new_tokens=30, seed=seed) for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_top_k_and_top_p_say_what_is_sampled_from():
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()

    def sampled(temperature=1.0, top_k=None, top_p=None):
        random = torch.Generator().manual_seed(0)
        return {_choose(logits, temperature, top_k, top_p, random) for _ in range(300)}

    assert sampled() == sampled(top_k=9) == sampled(top_p=1.0) == {0, 1, 2, 3}
    assert [sampled(top_k=k) for k in (1, 2, 3)] == [{1}, {1, 3}, {1, 3, 2}]
    assert [sampled(top_p=p) for p in (0.01, 0.39, 0.41, 0.69, 0.71)] == [{1}, {1}, {1, 3}, {1, 3}, {1, 3, 2}]
    assert sampled(top_k=2, top_p=0.89) == sampled(top_k=3, top_p=0.6) == {1, 3}
    # the most likely has 0.533 at this temperature
    assert sampled(temperature=0.5, top_p=0.5) == {1}


def test_the_samples_of_top_k_stand_in_the_proportion_of_their_probabilities():
    logits, random = torch.tensor([0.1, 0.6, 0.3]).log(), torch.Generator().manual_seed(0)
    found = [_choose(logits, 1.0, 2, None, random) for _ in range(2000)]
    assert found.count(1) / len(found) == pytest.approx(2 / 3, abs=0.04)  # four standard errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"temperature": 1.0, "top_k": 0}, "top_k: expected a number of tokens from 1 on, got 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p: expected a number above 0 and up to 1, got 0.0"),
        ({"temperature": 1.0, "top_p": float("nan")}, "top_p: expected a number above 0 and up to 1, got nan"),
        ({"top_p": 0.9}, "top_k, top_p: say what is sampled from; give a temperature above 0"),
    ],
)
def test_what_cannot_be_sampled_from_is_refused(parts, given, says):
    with pytest.raises(ConfigError, match=says):
        generate_text(parts, next(documents()), **given)


@pytest.mark.parametrize("temperature", [1e-45, 1e-9, 1e-6])
def test_a_temperature_near_zero_takes_the_most_likely_token(parts, temperature):
    document = next(documents())
    greedy = generate_text(parts, document, max_new_tokens=12)
    assert generate_text(parts, document, max_new_tokens=12, temperature=temperature) == greedy


@pytest.mark.parametrize("temperature", [float("inf"), float("nan"), -1.0])
def test_a_temperature_that_is_no_number_from_zero_on_is_refused(parts, temperature):
    with pytest.raises(ConfigError, match=f"temperature: expected a number from 0 on, got {temperature}"):
        generate_text(parts, next(documents()), temperature=temperature)


@contextmanager
def weights_gone_wrong(parts, value):
    """As a run that diverges leaves them, in the part that all tokens pass."""
    weight = parts.model.backbone.output_weight()
    before = weight.detach().clone()
    with torch.no_grad():
        weight[5] = value
        yield
        weight.copy_(before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("given", [{}, {"temperature": 1.0}, {"temperature": 0.5, "top_k": 3, "top_p": 0.9}])
def test_weights_that_are_not_finite_write_nothing(parts, given, value):
    says = r"text: the model gives no token 1 a probability .* take an earlier checkpoint \(--step\)"
    with weights_gone_wrong(parts, value):
        with pytest.raises(TrainingError, match=says):
            generate_text(parts, next(documents()), max_new_tokens=3, **given)
        device = {"device": torch.device("cpu"), "dtype": torch.float32}
        with pytest.raises(TrainingError, match=says):
            generate_together(parts, [ready_prompt(parts, d) for d in documents()], max_new_tokens=3, **device)


@pytest.mark.parametrize("logits", [[math.nan, 1.0], [-math.inf] * 3, [math.inf, 0.0], [math.inf, -math.inf]])
def test_a_token_is_chosen_by_finite_logits_alone(logits):
    for temperature in (0.0, 1.0):
        assert _choose(torch.tensor(logits), temperature, None, None, torch.Generator()) == NO_TOKEN
    # what a backbone rules out does not rule out the rest
    for temperature in (0.0, 1.0):
        assert _choose(torch.tensor([-math.inf, 0.0, -math.inf]), temperature, 2, 0.9, torch.Generator()) == 1


def test_sampling_leaves_the_random_state_of_torch_alone(parts):
    before = torch.get_rng_state()
    generate_text(parts, next(documents()), max_new_tokens=3, temperature=1.0, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_more_tokens_than_allowed_are_written(parts):
    for count in (1, 2, 5):
        ids = generate_ids(
            parts,
            next(documents()),
            max_new_tokens=count,
            temperature=1.0,
            device=torch.device("cpu"),
            dtype=torch.float32,
            seed=0,
        )
        assert len(ids) <= count


def test_the_order_of_media_and_text_matters(parts):
    a, b = Media("ticks", SERIES), Media("ticks", -SERIES)
    hidden = []
    for segments in ((a, b, Text("x")), (b, a, Text("x")), (Text("x"), a, b)):
        with torch.inference_mode():
            hidden.append(parts.model.hidden(prompt_batch(parts, Document("d", segments)))[-1])
    assert not torch.allclose(hidden[0], hidden[1], atol=1e-4)
    assert not torch.allclose(hidden[0], hidden[2], atol=1e-4)


def test_a_broken_medium_is_a_sample_error(parts):
    with pytest.raises(SampleError, match="holds no values"):
        generate_text(parts, Document("d", (Media("ticks", SERIES[:0]),)))
    with pytest.raises(SampleError, match="neither text nor media"):
        generate_text(parts, Document("d", ()))


def test_a_document_is_split_at_its_last_trained_text():
    prompt, expected = prompt_of(TicksSource("train").document(0))
    assert [type(s) for s in prompt.segments] == [Media]
    assert expected in ("rising", "falling")
    turn = (Text("q"), Text("a", train=True), Mark("<end>", train=True))
    two_turns = Document("d", (*turn, Text("q2"), Text("a2", train=True), Mark("<end>", train=True)))
    prompt, expected = prompt_of(two_turns)
    assert prompt.segments == (*turn, Text("q2"))
    assert expected == "a2"


@pytest.mark.parametrize(
    "segments", [(), (Text("a", train=True),), (Text("a"), Text("b")), (Text("a", train=True), Text("b", train=True))]
)
def test_a_document_without_question_and_answer_has_no_prompt(segments):
    assert prompt_of(Document("d", segments)) is None


# chats

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "ticks", "ticks": "a.npy"}, {"type": "text", "text": "Up or down?"}]},
    {"role": "assistant", "content": "Up <|end|>"},
    {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": " this?"}]},
    {"role": "assistant", "content": "Neither."},
]


class TicksOfFiles:
    """The processor of ticks, of files: a JSONL source gives paths."""

    def __init__(self, processor):
        self.processor = processor

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def plan(self, media):
        return self.processor.plan(Media("ticks", np.load(media.source)))


@pytest.fixture(params=["bytes", "hf"])
def chats(request, tmp_path):
    """The planner of a run, and the documents of a JSONL file of chats as training reads it."""
    np.save(tmp_path / "a.npy", SERIES)
    rows = [{"messages": row, "split": "train"} for row in (CHAT[:3], CHAT, CHAT[1:], CHAT[3:])]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"messages": CHAT, "split": "test"}]))
    tokenizer = "bytes"
    if request.param == "hf":
        from kosmos.data.tokenizer import train_tokenizer

        train_tokenizer(["Be brief. Up or down? And this? Neither."] * 9, vocab_size=300, folder=tmp_path / "bpe")
        tokenizer = str(tmp_path / "bpe")
    run = small_run(data={"sources": [str(file)], "workers": 0}, tokenizer=tokenizer)
    parts = compose(run, ticks_registry())
    route = parts.planner.routes["ticks"]
    object.__setattr__(route, "processor", TicksOfFiles(route.processor))
    (source,) = open_sources(run, ticks_registry(), "train")
    assert len(source) == 4
    return parts.planner, [source.document(i) for i in range(4)], tmp_path / "a.npy"


def before_the_answer(planner, document):
    """The tokens that training has in front of the last answer of the assistant."""
    (plan,) = planner.plan(document)
    trained = np.flatnonzero(plan.train)
    last = trained[np.flatnonzero(np.diff(trained, prepend=-9) > 1)[-1]]
    return plan.token_ids[:last].tolist()


def test_the_prompt_of_a_chat_is_token_for_token_what_training_has_in_front_of_the_answer(chats):
    planner, documents, file = chats
    first = [Media("ticks", file), Text("Up or down?")]
    then = [Text("And"), Text(" this?")]
    prompts = [
        chat_prompt(first, system="Be brief."),
        chat_prompt(then, system="Be brief.", history=[(first, "Up <|end|>")]),
        chat_prompt(then, history=[(first, "Up <|end|>")]),
        chat_prompt(then),
    ]
    lengths = set()
    for document, prompt in zip(documents, prompts, strict=True):
        ids = planner.prompt(prompt).token_ids.tolist()
        assert ids == before_the_answer(planner, document)
        lengths.add(len(ids))
    assert len(lengths) == 4


def test_the_command_lays_out_a_chat_as_python_does(chats):
    planner, documents, file = chats
    given = read(["run", "--ticks", str(file), "--chat", "--prompt", "Up or down?", "--system", "Be brief."])
    assert planner.prompt(given).token_ids.tolist() == before_the_answer(planner, documents[0])
    empty = read(["run", "--prompt", "x", "--system", ""])
    assert empty.segments == chat_prompt([Text("x")]).segments


def read(arguments):
    """The document of a command line, by the command's own parser."""
    context = typer.main.get_command(command.app).make_context("generate", list(arguments))
    segments = command.read_segments(context.args, ["ticks"])
    return command.prompt_document(segments, chat=context.params["chat"], system=context.params["system"])


def test_the_command_keeps_media_and_prompts_in_the_order_given(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, SERIES)
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    given = ["run", "--ticks", b, "--seed", "3", "--prompt", "one", f"--ticks={a}", "--chat", "--prompt=two"]
    shown = [getattr(s, "text", None) or str(s.source) for s in read(given).segments[1:-2]]
    assert shown == [b, "one", a, "two"]
    shown = [getattr(s, "text", None) or str(s.source) for s in read(["run", "--prompt", "p", "--ticks", a]).segments]
    assert shown == ["p", a]


def test_a_prompt_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="--prompt: not UTF-8 text, from character 2 on"):
        read(["run", "--prompt", "a\udcff"])


def test_sources_of_chats_are_known_for_the_hint(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "folder").mkdir()
    chat = json.dumps({"messages": CHAT})
    (tmp_path / "folder" / "part-0.jsonl").write_text(chat + "\n")
    (tmp_path / "plain.jsonl").write_text('{"text": "messages"}\n')
    (tmp_path / "broken.jsonl").write_text("{\n")
    parquet.write_table(pyarrow.table({"talk": ["x"]}), tmp_path / "talk.parquet")
    assert holds_chats(tmp_path / "folder")
    assert holds_chats(tmp_path / "talk.parquet", column="talk")
    for name in ("plain.jsonl", "broken.jsonl", "talk.parquet", "absent.jsonl"):
        assert not holds_chats(tmp_path / name)
    plain = SourceConfig(path=str(tmp_path / "plain.jsonl"))
    talk = SourceConfig(path=str(tmp_path / "talk.parquet"), columns={"messages": "talk"})
    laid_out = SourceConfig(path=str(tmp_path / "folder"), template="{messages[0].content}")
    assert command.chats_among([SourceConfig(path="ticks"), plain, talk]) == talk.path
    assert command.chats_among([plain, laid_out]) is None


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 40}


def test_generation_ends_where_the_backbone_has_no_more_positions():
    parts = compose(small_run(backbone={"name": "hf", "config": GPT2}), ticks_registry())
    parts.model.eval()
    given = {"max_new_tokens": 200, "temperature": 2.0, "device": torch.device("cpu"), "dtype": torch.float32}
    longest = max(len(generate_ids(parts, Document("p", (Text("abc"),)), seed=seed, **given)) for seed in range(5))
    assert longest == 40 - 4 + 1  # the last needs no position of its own
    with pytest.raises(SampleError, match="takes 51 tokens and the backbone has positions for 40"):
        generate_ids(parts, Document("p", (Text("x" * 50),)), seed=0, **given)


def test_documents_longer_than_the_backbones_positions_are_cut_or_put_aside():
    parts = compose(small_run(backbone={"name": "hf", "config": GPT2}), ticks_registry())
    pieces = parts.planner.plan(Document("t", (Text("x" * 100, train=True),)))
    assert [len(piece) for piece in pieces] == [40, 40, 24]
    with pytest.raises(
        SampleError, match=r"takes .* tokens and the backbone has positions for 40; make its media smaller"
    ):
        parts.planner.plan(Document("t", (Media("ticks", SERIES), Text("x" * 60, train=True))))

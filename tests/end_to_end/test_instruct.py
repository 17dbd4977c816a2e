"""A model that has learned to answer goes on with its own layout of chats: trained, asked here and by transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kosmos import Text, chat_prompt, generate_text, load_run
from kosmos.data.chat_template import TEMPLATE
from support.command import kosmos, kosmos_here
from support.terminal import Terminal

ANSWERS = {"the cow": "moo", "the cat": "meow", "the dog": "woof", "the hen": "cluck"}
SPECIAL = ("<|im_start|>", "<|im_end|>")


def question(animal: str) -> str:
    return f"What says {animal}?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a hub has it: a small Llama with the special tokens of ChatML, and no mark of ours."""
    folder = tmp_path_factory.mktemp("instruct")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([question(animal) for animal in ANSWERS], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, additional_special_tokens=[*SPECIAL], eos_token=SPECIAL[1]
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": question(a)}, {"role": "assistant", "content": b}]}
        for a, b in ANSWERS.items()
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows * 10))
    return file


def train(output: Path, model: Path, chats: Path, *more: str) -> str:
    told = [
        "train", "--modalities", "text", "--data", chats, "--output", output, f"backbone={{name: hf, model: {model}}}",
        f"tokenizer.name={model}", "data.tokens_per_pack=256", "train.precision=fp32", "trackers=[]",
        "evaluate.max_documents=4", *more,
    ]  # fmt: skip
    done = kosmos_here(*told)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def trained(model: Path, chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "own"
    learned = ("train.steps=80", "train.learning_rate=2e-3", "train.warmup_steps=5", "train.optimizer=adamw")
    said = train(output, model, chats, "tokenizer.turns=chatml", *learned)
    assert "tokenizer.turns" not in said
    return output


def test_it_answers_here_and_by_transformers(trained: Path, tmp_path: Path) -> None:
    saved = load_run(trained, device="cpu")
    model = saved.composition.model.backbone.model
    model.generation_config.eos_token_id = None
    model.save_pretrained(tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(trained / "tokenizer")
    for animal, answer in ANSWERS.items():
        assert generate_text(saved.composition, chat_prompt([Text(question(animal))]), dtype=saved.dtype) == answer
        chat = [{"role": "user", "content": question(animal)}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        written = theirs.generate(**ids, max_new_tokens=20, do_sample=False, eos_token_id=tokenizer.eos_token_id)
        said = tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=False)
        assert said == answer + SPECIAL[1]


def test_the_command_asks_and_shows_by_its_tokens(trained: Path) -> None:
    asked = kosmos("generate", trained, "--chat", "--prompt", question("the cow"))
    assert (asked.returncode, asked.stdout) == (0, "moo\n"), asked.stderr
    shown = kosmos_here("data", trained / "run.yaml")
    assert "<|im_start|>" in shown.stdout and "<|user|>" not in shown.stdout, shown.stdout


def test_it_answers_at_a_terminal(trained: Path) -> None:
    with Terminal("chat", trained) as terminal:
        terminal.until("> ")
        assert terminal.ask(question("the cow"), until="> ").splitlines()[1:] == ["moo", "> "]
        assert "unknown; did you mean /undo?" in terminal.ask("/und", until="> ")
        assert terminal.ask(question("the hen"), until="> ").splitlines()[1:] == ["cluck", "> "]
        assert terminal.ask("\x1b[A", until="> ").splitlines()[1:] == ["cluck", "> "]  # the line before, once more
        assert terminal.end() == 0
    with Terminal("generate", trained, "--chat", "--prompt", question("the dog")) as terminal:
        assert terminal.until("woof").splitlines()[-1] == "woof"
        assert terminal.end() == 0


def test_a_second_stage_begins_with_one_that_is_older_than_templates(
    trained: Path, model: Path, chats: Path, tmp_path: Path
) -> None:
    first = shutil.copytree(trained, tmp_path / "first")
    (first / "tokenizer" / TEMPLATE).unlink()
    named = ("tokenizer.turns=chatml", f"tokenizer.name={first}/tokenizer")
    said = train(tmp_path / "second", model, chats, f"init={first}", "train.steps=1", *named)
    assert "begins with backbone" in said and "tokenizer.turns" not in said
    assert (tmp_path / "second" / "tokenizer" / TEMPLATE).read_text() == (trained / "tokenizer" / TEMPLATE).read_text()


def test_a_run_keeps_its_turns(trained: Path) -> None:
    refused = kosmos_here("train", "--resume", trained, "--steps", 90, "tokenizer.turns=null")
    assert refused.returncode == 2
    assert "error[config]: tokenizer.turns: the run in" in refused.stderr


def test_marks_that_the_model_has_never_seen_are_doubted(tmp_path: Path, model: Path, chats: Path) -> None:
    said = train(tmp_path / "run", model, chats, "train.steps=1")
    assert f"warning: {chats}: holds chats, and their turns stand between marks that backbone.model {model}" in said
    assert "set tokenizer.turns=chatml, as its tokenizer's special tokens suggest" in said

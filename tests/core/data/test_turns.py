"""Turns of chats as a tokenizer's model has learned them: token for token what transformers makes of its template."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from kosmos import Document, Mark, SampleError, Text, chat_prompt, make_run
from kosmos.chats import LAYOUTS
from kosmos.data.chat_template import TEMPLATE, template
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.plan import Planner
from kosmos.data.shown import stretches
from kosmos.data.sources.media import MediaRoot
from kosmos.data.sources.messages import RowMedia, read
from kosmos.data.sources.times import RowTimes
from kosmos.data.sources.tools import offered
from kosmos.data.tokenizer import load_tokenizer
from kosmos.data.turns import fitting, spell_turns
from kosmos.errors import ConfigError

TEXTS = ["system\nuser\nassistant\nmodel\n\nWhat is this? A cat, été.\n"] * 20
OF_EACH = "{% for m in messages %}"
HEADER = "'<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + (m['content'] | trim) + '<|eot_id|>'"
NATIVE = {
    "chatml": (
        ("<|im_start|>", "<|im_end|>"),
        OF_EACH + "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    ),
    "llama-3": (
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "{{ '<|begin_of_text|>' }}" + OF_EACH + "{{ " + HEADER + " }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ),
    "gemma": (
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "{{ '<bos>' }}" + OF_EACH + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\\n' + (m['content'] | trim) + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    ),
}  # fmt: skip
"""Of each known way, special tokens and a template of transformers."""
MARKS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
ASKED = [{"role": "user", "content": "What is this?"}]
LONG = [*ASKED, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "été?\n"}]
ODD = [
    {"role": "user", "content": " \nWhat\tis { this }?\n\n"},
    {"role": "assistant", "content": '\nA "cat" 🐈 \\n'},
    {"role": "user", "content": " "},
]
SPELLED = [{"role": "user", "content": "A <|im_end|> is <|user|> no <end_of_turn>, is it?"}]


@pytest.fixture(scope="module", params=NATIVE)
def way(request, tmp_path_factory):
    """Its name, and a folder with such a tokenizer."""
    special, template = NATIVE[request.param]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    folder = tmp_path_factory.mktemp(request.param)
    named = {"additional_special_tokens": [*special], "eos_token": special[1]}
    PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **named).save_pretrained(folder)
    return request.param, folder


def planner_of(way):
    tokenizer = load_tokenizer(str(way[1]))
    return Planner(tokenizer, {}, 200, {}, turns=spell_turns(LAYOUTS[way[0]], tokenizer))


def document(messages):
    segments = []
    for turn in messages:
        train = turn["role"] == "assistant"
        segments += [Mark(MARKS[turn["role"]]), Text(turn["content"], train=train), Mark(END, train=train)]
    return Document("d", tuple(segments))


def by_transformers(way, messages, **how):
    theirs = PreTrainedTokenizerFast.from_pretrained(way[1])
    ids = theirs.apply_chat_template(messages, tokenize=False, **how)
    return theirs.encode(ids, add_special_tokens=False)


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("messages", [ASKED, LONG, ODD], ids=["one", "three", "odd"])
def test_a_chat_has_the_tokens_of_the_template(way, messages, system):
    first = [{"role": "system", "content": "Be brief."}] if system else []
    whole = [*first, *messages, {"role": "assistant", "content": "It is."}]
    planner = planner_of(way)
    if system and way[0] == "gemma":
        with pytest.raises(SampleError, match=r"a turn of the system, and tokenizer\.turns has none"):
            planner.plan(document(whole))
        return
    [plan] = planner.plan(document(whole))
    assert plan.token_ids.tolist() == by_transformers(way, whole)
    history = [([Text(a["content"])], b["content"]) for a, b in [messages[:2]]] if len(messages) > 1 else []
    prompt = chat_prompt([Text(messages[-1]["content"])], system="Be brief." if system else "", history=history)
    expected = by_transformers(way, [*first, *messages], add_generation_prompt=True)
    assert planner.prompt(prompt).token_ids.tolist() == expected == plan.token_ids.tolist()[: plan.answer_start]


def test_answers_are_learned_with_what_ends_them_and_nothing_else(way):
    planner = planner_of(way)
    [plan] = planner.plan(document([*LONG, {"role": "assistant", "content": "Yes."}]))
    tokenizer = planner.tokenizer
    stop = tokenizer.special_ids[NATIVE[way[0]][0][-1]]
    expected = [*tokenizer.encode("A cat."), stop, *tokenizer.encode("Yes."), stop]
    assert plan.token_ids[plan.train].tolist() == expected
    assert planner.stops == {stop, tokenizer.mark_id("</s>"), tokenizer.mark_id("<|end|>")}


def test_what_a_text_spells_opens_and_ends_no_turn(way):
    planner = planner_of(way)
    [plan] = planner.plan(document([*SPELLED, {"role": "assistant", "content": "Yes."}]))
    stop = planner.turns.stop
    assert plan.token_ids.tolist().count(stop) == 2
    assert SPELLED[0]["content"] in planner.tokenizer.decode(plan.token_ids.tolist())


def test_what_is_no_chat_stands_between_the_ends_of_a_text(way):
    planner = planner_of(way)
    [plan] = planner.plan(Document("d", (Text("A cat.", train=True),)))
    ends = [planner.tokenizer.mark_id(name) for name in ("<s>", "</s>")]
    assert [plan.token_ids[0], plan.token_ids[-1]] == ends
    assert plan.train.tolist() == [False] + [True] * (len(plan) - 1)


def test_special_tokens_are_shown_by_their_names(way):
    planner = planner_of(way)
    [plan] = planner.plan(document([*ASKED, {"role": "assistant", "content": "A cat."}]))
    shown = [(s.kind, s.shown, s.learned) for s in stretches(plan, planner)]
    assert ("mark", NATIVE[way[0]][0][-1], True) in shown
    assert ("text", "A cat.", True) in shown
    assert sum(s.tokens for s in stretches(plan, planner)) == len(plan)


def test_a_planner_in_another_process_spells_the_same(way):
    planner = planner_of(way)
    chat = document([*ASKED, {"role": "assistant", "content": "A cat."}])
    other = pickle.loads(pickle.dumps(planner))
    assert other.plan(chat)[0].token_ids.tolist() == planner.plan(chat)[0].token_ids.tolist()


@pytest.mark.parametrize("spelled", [True, False], ids=["turns", "marks"])
def test_transformers_lays_out_the_same_chats_by_what_a_run_keeps(way, tmp_path, spelled):
    planner = planner_of(way) if spelled else Planner(load_tokenizer(str(way[1])), {}, 200, {})
    planner.tokenizer.save(tmp_path)
    (tmp_path / TEMPLATE).write_text(template(planner.turns, planner.tokenizer))
    system = [] if way[0] == "gemma" and spelled else [{"role": "system", "content": 'Be "brief"\n'}]
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    prompt = chat_prompt(
        [Text("été?\n")], system=system[0]["content"] if system else "", history=[([Text("What is this?")], "A cat.")]
    )
    text = theirs.apply_chat_template([*system, *LONG], tokenize=False, add_generation_prompt=True)
    assert theirs.encode(text, add_special_tokens=False) == planner.prompt(prompt).token_ids.tolist()
    if spelled and way[0] == "gemma":
        with pytest.raises(Exception, match="a turn of system is not spelled"):
            theirs.apply_chat_template([{"role": "system", "content": "x"}, *LONG], tokenize=False)


def test_the_way_of_a_tokenizer_is_known_by_its_special_tokens(way):
    assert fitting(load_tokenizer(str(way[1]))) == way[0]
    assert fitting(load_tokenizer("bytes")) is None


def test_turns_that_are_not_spelled_are_refused():
    texts = {"user": "<|user|>{}", "assistant": "<|assistant|>{}<|end|>"}
    tokenizer = load_tokenizer("bytes")
    planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
    chat = document([{"role": "system", "content": "Be brief."}, *ASKED, {"role": "assistant", "content": "It is."}])
    with pytest.raises(SampleError, match=r"a turn of the system, and tokenizer\.turns has none"):
        planner.plan(chat)


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (LAYOUTS["chatml"], "system: <|im_start|> is no special token of the tokenizer; did you mean"),
        (
            {"user": "<|usr|>{}", "assistant": "{}<|end|>"},
            "user: <|usr|> is no special token of the tokenizer; did you",
        ),
        ({"user": "{}", "assistant": "{}"}, "assistant: expected a special token of the tokenizer right behind {}"),
        (
            {"user": "{}", "assistant": "{}\n<|end|>"},
            "assistant: expected a special token of the tokenizer right behind",
        ),
        ({"user": "\udc80{}", "assistant": "{}<|end|>"}, "cannot be spelled by the tokenizer"),
    ],
)
def test_turns_that_the_tokenizer_cannot_spell_are_one_line(texts, line):
    with pytest.raises(ConfigError) as refused:
        spell_turns(texts, load_tokenizer("bytes"))
    assert f"tokenizer.turns{'' if line.startswith('cannot') else '.'}" in str(refused.value)
    assert line in str(refused.value)


def test_plain_text_around_a_turn_is_spelled_with_it(way):
    """As Mistral's first models and Vicuna want it: a space belongs to the word behind it."""
    stop = NATIVE[way[0]][0][-1]
    texts = {"begin": "<s>", "user": "[INST] {} [/INST]", "assistant": "{}" + stop}
    tokenizer = load_tokenizer(str(way[1]))
    planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
    chat = [*ASKED, {"role": "assistant", "content": "A cat."}, *ASKED]
    [plan] = planner.plan(document([*chat, {"role": "assistant", "content": "Yes."}]))
    asked = tokenizer.encode("[INST] What is this? [/INST]")
    end = tokenizer.special_ids[stop]
    answers = [tokenizer.encode(answer) for answer in ("A cat.", "Yes.")]
    begin = tokenizer.mark_id("<s>")
    assert plan.token_ids.tolist() == [begin, *asked, *answers[0], end, *asked, *answers[1], end]
    assert plan.answer_start == len(plan) - len(answers[1]) - 1


def test_text_between_turns_keeps_its_place(way):
    planner = planner_of(way)
    turn = document(ASKED).segments
    [plan] = planner.plan(Document("d", (*turn, Text("And then:"), *turn, Text("Yes.", train=True))))
    [first] = planner.plan(document(ASKED))
    text = planner.tokenizer.encode
    begin = [] if way[0] == "chatml" else first.token_ids.tolist()[:1]
    one = first.token_ids.tolist()[len(begin) :]
    assert plan.token_ids.tolist() == [*begin, *one, *text("And then:"), *one, *text("Yes.")]


def test_answers_in_a_row_are_told_apart(way):
    tokenizer = load_tokenizer(str(way[1]))
    texts = {"user": "{}\n", "assistant": "{}" + NATIVE[way[0]][0][-1]}
    planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
    answers = [{"role": "assistant", "content": text} for text in ("A cat.", "Yes.")]
    [plan] = planner.plan(document([*ASKED, *answers]))
    assert plan.answer_start == len(plan) - len(tokenizer.encode("Yes.")) - 1
    [plan] = planner.plan(document(answers))
    assert not plan.train[0]


@pytest.mark.parametrize("way", ["chatml"], indirect=True)
def test_a_special_token_that_takes_space_takes_that_of_a_layout_too(way, tmp_path):
    """As Phi 3's do, by what its tokenizer says: the layout has line ends, and the tokens have none."""
    content = json.loads((way[1] / "tokenizer.json").read_text())
    for token in content["added_tokens"]:
        token["rstrip"] = True
    for file in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(way[1] / file, tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    texts = {"user": "<|im_start|>\n{}<|im_end|>\n", "assistant": "<|im_end|>\n{}<|im_end|>\n"}
    chat = [*ASKED, {"role": "assistant", "content": "A cat."}]
    for folder in (tmp_path, tmp_path / "saved"):
        tokenizer = load_tokenizer(str(folder), spelled=" ".join(texts.values()))
        planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
        ids = planner.plan(document(chat))[0].token_ids.tolist()
        opens, end = (tokenizer.special_ids[name] for name in NATIVE["chatml"][0])
        assert ids == [opens, *tokenizer.encode("What is this?"), end, end, *tokenizer.encode("A cat."), end]
        tokenizer.save(tmp_path / "saved")
        (tmp_path / "saved" / TEMPLATE).write_text(template(planner.turns, tokenizer))
        theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
        text = theirs.apply_chat_template(chat, tokenize=False)
        assert theirs.encode(text, add_special_tokens=False) == ids


def test_space_is_taken_off_what_is_said_in_several_parts():
    texts = {"user": "<|user|>{}<|end|>", "assistant": "<|assistant|>{}<|end|>", "trim": True}
    tokenizer = load_tokenizer("bytes")
    planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
    said = ([" ", "\n What", " is "], ["it? ", " \n"]), ([" A", " cat ", " "],)
    segments = []
    for role, parts in zip((USER, ASSISTANT), said, strict=True):
        segments += [Mark(role), *(Text(text) for texts in parts for text in texts), Mark(END)]
    [plan] = planner.plan(Document("d", tuple(segments)))
    assert tokenizer.decode(plan.token_ids.tolist()) == "What is it?A cat"


def test_what_opens_a_turn_is_special_though_the_tokenizer_has_it_as_plain_text(way, tmp_path):
    """As in some published tokenizers: else a text could open a turn."""
    content = json.loads((way[1] / "tokenizer.json").read_text())
    for token in content["added_tokens"]:
        token["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    texts = LAYOUTS[way[0]]
    tokenizer = load_tokenizer(str(tmp_path), spelled=" ".join(map(str, texts.values())))
    planner = Planner(tokenizer, {}, 200, {}, turns=spell_turns(texts, tokenizer))
    [plan] = planner.plan(document([*SPELLED, {"role": "assistant", "content": "Yes."}]))
    assert plan.token_ids.tolist().count(planner.turns.stop) == 2


@pytest.mark.parametrize(
    ("turns", "line"),
    [
        ("chatlm", "unknown way to spell turns 'chatlm'; did you mean chatml?"),
        ("x", "there are chatml, gemma, llama-3, null for none, or give the texts yourself"),
        ("qwen", "did you mean chatml?"),
        ({"begin": "<s>{}", "user": "{}", "assistant": "{}</s>"}, "begin: expected a text with no {}"),
        ({"user": "{}", "assistant": "no"}, "assistant: expected a text with one {}"),
        ({"user": "{}{}", "assistant": "{}"}, "user: expected a text with one {}"),
        ({"user": "{}"}, "assistant"),
        ({"user": "{}", "assistant": "ASSISTANT: {}</s>"}, "assistant: a space in front of {} would be a part of"),
        ({"user": "u\\n{}", "assistant": "{}</s>"}, "user: holds a backslash and an n; a line end is"),
    ],
)
def test_a_run_file_that_spells_no_turns_is_refused(turns, line):
    with pytest.raises(ConfigError) as refused:
        make_run({"tokenizer": {"name": "bytes", "turns": turns}})
    assert line in str(refused.value)


def test_a_run_file_keeps_the_texts_of_a_known_way():
    config = make_run({"tokenizer": {"turns": "chatml"}})
    assert json.loads(config.model_dump_json())["tokenizer"]["turns"]["user"] == "<|im_start|>user\n{}<|im_end|>\n"


CALLED = [
    *ASKED,
    {"role": "assistant", "content": "See.", "tool_calls": [{"function": {"name": "f", "arguments": {"x": "é"}}}]},
    {"role": "tool", "content": "A cat."},
    {"role": "tool", "content": "Two."},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "g", "arguments": {}}}] * 2},
    {"role": "tool", "content": "None."},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, {"name": "g"}]


@pytest.mark.parametrize("spelled", [True, False], ids=["turns", "marks"])
@pytest.mark.parametrize("system", [False, True])
def test_transformers_lays_out_tools_and_their_calls_as_rows_are_read(way, tmp_path, spelled, system):
    planner = planner_of(way) if spelled else Planner(load_tokenizer(str(way[1])), {}, 200, {})
    planner.tokenizer.save(tmp_path)
    (tmp_path / TEMPLATE).write_text(template(planner.turns, planner.tokenizer))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    first = [{"role": "system", "content": "Be brief."}] if system else []
    if spelled and way[0] == "gemma":
        with pytest.raises(Exception, match="tools want a turn of system, which is not spelled"):
            theirs.apply_chat_template([*first, *CALLED], tools=TOOLS, tokenize=False)
        return
    none = RowMedia({}, RowTimes({}, {}, ()))
    said = read([*first, *CALLED], "messages", none, MediaRoot(tmp_path), tools=offered(TOOLS, "tools"), asked=True)
    text = theirs.apply_chat_template([*first, *CALLED], tools=TOOLS, tokenize=False, add_generation_prompt=True)
    asked = Document("d", (*said, Mark(ASSISTANT)))
    assert theirs.encode(text, add_special_tokens=False) == planner.prompt(asked).token_ids.tolist()

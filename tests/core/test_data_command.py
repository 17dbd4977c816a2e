"""``kosmos data``: documents as the model gets them, and whether all can be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer

from kosmos import make_run
from kosmos.cli import main
from kosmos.compose import compose
from kosmos.data.document import Document, Mark, Media, Text
from kosmos.data.shown import stretches
from kosmos.data.tokenizer import train_tokenizer
from kosmos.plugins import load_plugins
from support.command import SMALL

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "<image>\nWhat is this?"},
    {"role": "assistant", "content": "A square."},
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A chat with a picture, a caption and a text, and one more that is held out."""
    Image.effect_noise((32, 32), 50).save(tmp_path / "a.png")
    made = [{"images": ["a.png"], "messages": CHAT}, {"image": "a.png", "text": "red"}, {"text": "Text alone."}]
    lines = [*({**row, "split": "train"} for row in made), {"text": "Held out.", "split": "test"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "rows.jsonl"


def data(capsys: pytest.CaptureFixture[str], rows: Path, *more: object) -> tuple[int, str, str]:
    given = ["--data", str(rows), "--modalities", "image", *SMALL, *map(str, more)]
    status = main(["data", *given])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("width", ["0", "-1", "wide"])
def test_a_terminal_that_tells_no_width_loses_no_line(rows, capsys, monkeypatch, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    expected = data(capsys, rows)
    monkeypatch.setenv("COLUMNS", width)
    assert data(capsys, rows) == expected


def test_documents_are_printed_with_what_is_learned_of_them(rows, capsys):
    status, out, err = data(capsys, rows)
    assert (status, err) == (0, "")
    assert "rows: 3 documents, 1 held out" in out
    assert "1 x 256 tokens: every document once takes about 1 step\n" in out
    told = "image a.png (height x width in px: 32 x 32, fed as 64 x 64, resize squash): 2 x 2 cells in 4 slots"
    assert (
        f"<s><|system|>Be brief.<|end|><|user|><image>[{told}]</image>What is this?"
        "<|end|><|assistant|>«A square.<|end|></s>»"
    ) in out
    assert f"<s><image>[{told}]</image>«red</s>»" in out
    assert "<s>«Text alone.</s>»" in out


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """Texts that take more than half of a row, so that each has one of its own."""
    (tmp_path / "halves.jsonl").write_text("".join(f'{{"text": "{i:0150}"}}\n' for i in range(40)))
    return tmp_path / "halves.jsonl"


def test_steps_of_documents_are_those_that_training_counts(halves, capsys):
    whole = data(capsys, halves, "data.held_out=0")[1]
    assert "step      1 x 256 tokens: every document once takes about 40 steps\n" in whole
    epochs = data(capsys, halves, "data.held_out=0", "train.epochs=0.1")[1]
    line = "0.1 epochs of 40 documents: 4 steps, by the tokens of all 40 of them and rows of 152"
    assert f"step      1 x 256 tokens\n          {line}\n" in epochs
    output = halves.parent / "run"
    given = ["--data", halves, "--modalities", "image", "--epochs", 0.1, "--output", output, *SMALL, "data.held_out=0"]
    assert main(["train", *map(str, given), "data.workers=0"]) == 0
    assert line in capsys.readouterr().err.splitlines()
    assert len((output / "metrics.jsonl").read_text().splitlines()) == 4


def test_steps_that_take_long_to_count_are_reckoned_and_said_to_be(halves, capsys, monkeypatch):
    monkeypatch.setattr("kosmos.commands.exact.COUNT_S", 0.0)
    said = data(capsys, halves, "data.held_out=0")[1]
    assert (
        "every document once takes about 24 steps, were all rows full and all documents like the first; kosmos train "
        "--epochs 1 looks at 40 of them and may count more\n"
    ) in said
    assert "4 steps, by the tokens of all 40" in data(capsys, halves, "data.held_out=0", "train.epochs=0.1")[1]


def test_documents_of_which_none_can_be_used_take_no_steps(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "nobody", "content": "x"}]}\n' * 3)
    status, out, err = data(capsys, tmp_path / "rows.jsonl", "data.held_out=0")
    assert "none of the first documents can be used\nstep      1 x 256 tokens\n" in out
    assert status == 3 and err.startswith("error[data]: rows: none of the first documents can be used; the lines above")
    status, out, err = data(capsys, tmp_path / "rows.jsonl", "data.held_out=0", "--json")
    assert (status, len(json.loads(out)["incidents"])) == (3, 3) and err.startswith("error[data]: rows: none of")


def test_why_steps_cannot_be_counted_is_said_where_the_first_documents_do_not_tell(tmp_path, capsys):
    (tmp_path / "bad.jsonl").write_text('{"messages": [{"role": "nobody", "content": "x"}]}\n' * 2500)
    (tmp_path / "good.txt").write_text("One line.\n")
    out = data(capsys, tmp_path / "good.txt", "--data", tmp_path / "bad.jsonl", "data.held_out=0")[1]
    assert "step      1 x 256 tokens: no sample of the sources can be used (2000 were tried in turn)" in out


def test_the_first_documents_are_those_that_training_draws_first(rows, capsys):
    shown = json.loads(data(capsys, rows, "--json", "--documents", 2)[1])["shown"]
    config = make_run({"modalities": ["image"], "data": {"sources": [str(rows)]}})
    from kosmos.compose import make_feed
    from kosmos.run_sources import open_sources

    registry = load_plugins()
    feed = make_feed(compose(config, registry), open_sources(config, registry, "train"))
    expected = [f"{rows}:{feed.mixture.row(0, draw) + 1}" for draw in range(2)]
    assert [document["origin"] for document in shown] == expected


def test_figures_are_those_of_the_documents(rows, capsys):
    found = json.loads(data(capsys, rows, "--json")[1])
    (source,), shown = found["sources"], found["shown"]
    assert (source["documents"], source["held_out"]) == (3, 1)
    lengths = [document["tokens"] for document in shown]
    parts = [part for document in shown for part in document["stretches"]]
    figures = source["figures"]
    assert [sum(part["tokens"] for part in document["stretches"]) for document in shown] == lengths
    assert all(len(part["ids"]) == (0 if part["kind"] == "media" else part["tokens"]) for part in parts)
    assert (figures["shortest"], figures["longest"], figures["looked_at"]) == (min(lengths), max(lengths), 3)
    media = sum(part["tokens"] for part in parts if part["kind"] == "media")
    learned = sum(part["tokens"] for part in parts if part["learned"])
    assert figures["media_share"] == pytest.approx(media / sum(lengths))
    assert figures["learned_share"] == pytest.approx(learned / sum(lengths))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_check_decodes_all_and_names_what_cannot_be_used(rows, capsys, workers):
    (rows.parent / "b.png").write_bytes((rows.parent / "a.png").read_bytes()[:-200])  # its header is whole
    with rows.open("a") as lines:
        lines.write('{"image": "b.png", "text": "cut short", "split": "train"}\n')
        lines.write('{"image": "b.png", "text": "held out and cut short", "split": "test"}\n')
    assert "cannot be used" not in data(capsys, rows)[1]
    status, out, err = data(capsys, rows, "--check", "--workers", workers)
    assert status == 3
    assert [line.split(" broken")[0] for line in out.splitlines() if line.startswith("cannot")] == [
        f"cannot be used: {rows}:5: image (b.png):",
        f"cannot be used: {rows}:6: image (b.png):",
    ]
    assert err == (
        "error[data]: 2 of 6 documents cannot be used; training leaves them out, up to a share of 0.5 "
        "(data.quarantine)\n"
    )


def test_of_many_documents_with_one_cause_the_first_are_named_and_the_others_counted(rows, capsys):
    with rows.open("a") as lines:
        lines.write("".join(f'{{"image": "none{i}/a.png", "text": "gone"}}\n' for i in range(50)))
        lines.write('{"messages": [{"role": "nobody", "content": "x"}]}\n')
    status, out, err = data(capsys, rows, "--check", "--workers", 0)
    said = [line for line in out.splitlines() if line.startswith("cannot be used: ")]
    assert (status, len(said)) == (3, 22)
    assert sum("a.png: no such file" in line for line in said) == 20
    assert said[0].endswith(f"; if the media are in another folder than {rows.parent}, set data.sources.0.root to it")
    assert sum(line.startswith("cannot be used: 30 more: image: ...: no such file; if the") for line in said) == 1
    assert err.startswith("error[data]: 51 of 55 documents cannot be used;")
    incidents = json.loads(data(capsys, rows, "--check", "--json", "--workers", 2)[1])["incidents"]
    assert [one["origin"] for one in incidents] == [f"{rows}:{number}" for number in range(5, 56)]


def test_a_check_starts_no_more_workers_than_there_are_documents(rows, capsys):
    assert data(capsys, rows, "--check", "--workers", 100_000)[0] == 0


def test_a_check_of_good_data_says_so(rows, capsys):
    status, out, err = data(capsys, rows, "--check", "--workers", 0)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "all 4 documents can be used"
    assert "<s>" not in out
    assert "same      0 of 4 documents repeat others in text and media; 0 of 1 held-out ones are also trained on" in out


def test_a_check_counts_documents_that_are_the_same_as_others(rows, capsys):
    (rows.parent / "copy.png").write_bytes((rows.parent / "a.png").read_bytes())
    Image.effect_noise((32, 32), 50).save(rows.parent / "b.png")
    more = [
        {"id": 7, "image": "copy.png", "text": "red", "split": "test"},  # that of another row, under other names
        {"image": "b.png", "text": "red", "split": "test"},
        {"image": "a.png", "text": "Red", "split": "train"},
        {"text": "Text alone.", "weight": 2, "split": "train"},
        {"text": "Text alone.", "split": "train"},
        {"image": "gone.png", "text": "Text alone.", "split": "train"},
    ]
    with rows.open("a") as lines:
        lines.write("".join(json.dumps(row) + "\n" for row in more))
    status, out, _ = data(capsys, rows, "--check", "--workers", 0)
    said = "same      3 of 9 documents repeat others in text and media; 1 of 3 held-out ones are also trained on"
    assert status == 3 and said in out.splitlines()
    found = json.loads(data(capsys, rows, "--check", "--json", "--workers", 0)[1])["duplicates"]
    assert found == {"documents": 9, "repeated": 3, "held_out": 3, "held_out_and_trained": 1} | {
        "about_trained_media": 0, "advice": "", "same_ids": 0
    }  # fmt: skip


def test_a_document_of_no_use_is_named_without_a_check(rows, capsys):
    with rows.open("a") as lines:
        lines.write('{"image": "none.png", "text": "gone", "split": "train"}\n')
    status, out, _ = data(capsys, rows)
    assert status == 0 and f"cannot be used: {rows}:5: " in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--chek"], "error[config]: --chek: unknown option; did you mean --check?"),
        (["a.yaml", "b.yaml"], "error[config]: expected one run file, got a.yaml, b.yaml; fields are set as"),
        (["data.lanez=2"], "error[config]: command line: data.lanez: unknown field; did you mean lanes?"),
        (["--documents", -1], "error[usage]: --documents: expected a number from 0 on"),
        (["--data", ""], "error[config]: --data: the value is empty"),
        (["check"], "error[config]: check: is no run file and no command; kosmos data --check decodes every document"),
        (["check", "run.yaml"], "error[config]: check: is no run file and no command; kosmos data --check decodes"),
        (["stats"], "error[config]: stats: is no run file and no command; kosmos data prints the figures"),
        (["preview"], "error[config]: preview: is no run file and no command; kosmos data prints the first documents"),
        (["prepare"], "error[config]: prepare: is no run file and no command; data are read where they are"),
    ],
)
def test_what_is_mistyped_is_one_line(rows, capsys, given, said):
    status, out, err = data(capsys, rows, *given)
    assert (status, out) == (2, "") and err.startswith(said) and err.count("\n") == 1


def test_a_run_file_may_have_any_name(rows, capsys, monkeypatch):
    monkeypatch.chdir(rows.parent)
    Path("check").write_text("data: {lanes: 3}\n")
    status, out, _ = data(capsys, rows, "check")
    assert status == 0 and "3 x 256 tokens" in out


def test_what_the_data_state_as_held_out_stays_so_whatever_share_is_asked_for(rows, capsys):
    assert "rows: 3 documents, 1 held out" in data(capsys, rows, "data.held_out=0")[1]
    stated_nowhere = rows.with_name("more.jsonl")
    stated_nowhere.write_text('{"text": "one"}\n' * 3)
    assert "more: 3 documents, 0 held out" in data(capsys, stated_nowhere, "data.held_out=0")[1]


segments = st.lists(
    st.one_of(
        st.builds(Text, st.text(max_size=12), st.booleans()),
        st.builds(Mark, st.sampled_from(["<|user|>", "<|end|>"]), st.booleans()),
        st.just(Media("image", Path("a.png"))),
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def composition() -> Any:
    return compose(make_run({"modalities": ["image"]}), load_plugins())


@settings(max_examples=60, deadline=None)
@given(parts=segments)
def test_stretches_are_the_whole_document(composition, tmp_path_factory, parts):
    picture = tmp_path_factory.getbasetemp() / "a.png"
    if not picture.exists():
        Image.new("RGB", (32, 32)).save(picture)
    parts = [Media("image", picture) if isinstance(p, Media) else p for p in parts] + [Text("end", True)]
    (plan,) = composition.planner.plan(Document("here", tuple(parts)))
    found = stretches(plan, composition.planner)
    assert sum(stretch.tokens for stretch in found) == len(plan)
    assert sum(stretch.tokens for stretch in found if stretch.learned) == plan.train.sum()
    texts = "".join(stretch.shown for stretch in found if stretch.kind == "text")
    assert texts == "".join(p.text for p in parts if isinstance(p, Text))
    assert sum(stretch.kind == "media" for stretch in found) == sum(isinstance(p, Media) for p in parts)


def test_what_is_hardly_meant_is_said(rows, capsys):
    more = ["--modalities", "image,audio", "train.warmup_steps=2000"]
    warnings = [line for line in data(capsys, rows, *more)[1].splitlines() if line.startswith("warning   ")]
    few = "1 document is held out: scores of so few are chance"
    assert [line.removeprefix("warning   ").split(" ")[0] for line in warnings] == ["train.warmup_steps", "1", "no"]
    assert len(json.loads(data(capsys, rows, *more, "--json")[1])["warnings"]) == 3
    (warning,) = json.loads(data(capsys, rows, "--json")[1])["warnings"]
    assert warning.startswith(few)


def test_chats_that_are_cut_are_told_and_texts_that_are_cut_are_not(rows, capsys):
    asked, answer = {"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "no"}
    lines = [{"messages": [asked, answer], "split": "train"}, {"text": "word " * 60, "split": "train"}]
    for line, expected in zip(lines, (1, 0), strict=True):
        rows.write_text(json.dumps(line) + "\n")
        (*told,) = json.loads(data(capsys, rows, "data.tokens_per_pack=128", "--json")[1])["warnings"]
        assert [line[:39] for line in told if "are cut" in line] == [
            "rows: 1 of 1 documents looked at take m"
        ] * expected


@pytest.mark.parametrize(("workers", "learned"), [(0, "no"), (1, "word " * 80)])
def test_the_first_chat_that_training_cuts_is_told_once(rows, tmp_path, capsys, workers, learned):
    asked, answer = {"role": "user", "content": "word " * 60}, {"role": "assistant", "content": learned}
    lines = [{"text": "word " * 60}, {"messages": [asked, answer]}] * 4
    rows.write_text("".join(json.dumps({**line, "split": "train"}) + "\n" for line in lines))
    fields = ["data.tokens_per_pack=128", "data.lanes=1", f"data.workers={workers}", "trackers=[]"]
    given = ["--data", str(rows), "--steps", "8", "--output", str(tmp_path / "run")]
    assert main(["train", *given, *fields]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "are cut" in line]
    assert re.match(rf"warning: documents such as {rows}:\d \(tokens \d+-\d+\) take more than 128 tokens and are", told)
    assert told.endswith(
        "; raise data.tokens_per_pack, shorten them or leave them out (data.long_chats=leave_out, for those with media "
        "no options.long_documents, and a higher data.quarantine for many)"
    )


def turns(roles: str) -> dict[str, Any]:
    """A row with a chat of these roles, by their first letters."""
    names = {"s": "system", "u": "user", "a": "assistant"}
    return {"messages": [{"role": names[role], "content": f"{role} says"} for role in roles], "split": "train"}


def test_turns_out_of_order_are_counted_in_one_line(rows, capsys):
    chats = ["ua", "sua", "uaua", "au", "uua", "uaa", "usua", "uau", "saua"]
    rows.write_text("".join(json.dumps(turns(roles)) + "\n" for roles in chats))
    for more in ([], ["--check"]):
        out = data(capsys, rows, "data.held_out=0", *more)[1]
        (told,) = (line for line in out.splitlines() if "out of order" in line)
        assert told == (
            "warning   rows: 6 of 9 documents looked at have turns out of order (the assistant's turn first: 2; one "
            "role twice in turn: 2; the system's turn not first: 1; the user's turn last, so that nothing is learned "
            f"of it: 2), such as {rows}:4; training takes them as they are"
        )


def test_turns_in_order_and_documents_without_turns_are_no_matter(rows, capsys):
    rows.write_text("".join(json.dumps(row) + "\n" for row in (turns("ua"), turns("suaua"), {"text": "Alone."})))
    assert "out of order" not in data(capsys, rows)[1]


@pytest.mark.parametrize("share", [0.75, 0.25])
def test_texts_that_spell_special_tokens_are_told_where_most_do(rows, capsys, tmp_path, share):
    rendered = "<|user|>What is this?<|end|>\n<|assistant|>A cat.<|end|>"
    lines = [{"text": rendered if place < share * 8 else "A cat.", "split": "train"} for place in range(8)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    warnings = json.loads(data(capsys, rows, "--json")[1])["warnings"]
    told = [line for line in warnings if "stay plain text" in line]
    assert len(told) == (share > 0.5)
    assert all(line.startswith("rows: texts spell <|user|> <|assistant|> <|end|>, which stay plain") for line in told)


def test_compressed_rows_that_are_not_read_are_warned_of(tmp_path, capsys):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.jsonl").write_text('{"text": "one"}\n' * 9)
    (tmp_path / "rows" / "b.jsonl.gz").write_bytes(b"x")
    warned = "rows: 1 file is compressed (.jsonl.gz) and not read; name it as a source ('FOLDER/*.jsonl.gz')"
    assert f"\nwarning   {warned}\n" in data(capsys, tmp_path / "rows", "--check")[1]
    main(["train", "--data", str(tmp_path / "rows"), *SMALL, "train.steps=1", f"output={tmp_path / 'run'}"])
    assert f"warning: {warned}\n" in capsys.readouterr().err


@pytest.mark.parametrize("share", [0.75, 0.25])
def test_texts_that_name_files_between_tags_are_told_where_most_do(rows, capsys, share):
    asked = ["Picture 1: <img>photos/a.png</img>\nWhat?" if n < share * 8 else "Is <b>a</b> bold?" for n in range(8)]
    lines = [{"query": text, "response": "A cat.", "split": "train"} for text in asked]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [line for line in data(capsys, rows)[1].splitlines() if "name files" in line]
    begin = (
        "warning   rows: texts name files of media, such as '<img>photos/a.png</img>', which are learned as letters;"
    )
    assert len(told) == (share > 0.5) and all(line.startswith(begin) for line in told)


def test_what_parts_of_chats_want_of_the_processor_is_told_once(rows, capsys):
    part = {"type": "image", "image": "a.png", "max_pixels": 151_200}
    chat = [{"role": "user", "content": [part]}, {"role": "assistant", "content": "A square."}]
    rows.write_text(2 * (json.dumps({"messages": chat, "split": "train"}) + "\n"))
    said = [line for line in data(capsys, rows)[1].splitlines() if line.startswith("warning   rows")]
    assert said == [
        "warning   rows: its rows say max_pixels of image, which is not read; all image is sampled alike, by "
        "modalities.image.processor (kosmos explain image tells its options)"
    ]


def test_the_special_tokens_of_a_tokenizer_are_told_too(rows, capsys, tmp_path):
    train_tokenizer(["A cat."], vocab_size=300, folder=tmp_path)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.add_special_tokens(["<|im_start|>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    rows.write_text(json.dumps({"text": "<|im_start|>user hi", "split": "train"}) + "\n")
    assert "rows: texts spell <|im_start|>, which" in data(capsys, rows, f"tokenizer={tmp_path}")[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>What?",
            "<|video_pad|> <|vision_end|> <|vision_start|>",
        ),
        ("<|audio_bos|><|AUDIO|><|audio_eos|>What?", "<|AUDIO|> <|audio_bos|> <|audio_eos|>"),
        ("<image_soft_token>What? <|image|>", "<image_soft_token> <|image|>"),
        ("<start_of_image>What? <|im_start|>", "<start_of_image> <|im_start|>"),
        ("What is |> or <| or <b>bold</b> or a <| b |>?", ""),
    ],
)
def test_what_stands_for_media_in_the_texts_of_other_models_is_told(rows, capsys, text, told):
    rows.write_text(json.dumps({"query": text, "response": "A cat.", "split": "train"}) + "\n")
    out = data(capsys, rows)[1]
    assert (f"rows: texts spell {told}, which stay plain text" in out) if told else "texts spell" not in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<sound>\nWhat?", True),
        ("What? <SPEECH>", True),
        ("<b>What</b>?", False),
        ("<x> and <x>", False),
        ("The <Image> shows what?", True),
        ("Look.<br>What?", False),
        ("Draw a vector<int>", False),
        ("Think, then write <answer> and end", False),
        ("What?", False),
    ],
)
def test_what_stands_once_for_each_medium_is_told_as_its_place(rows, capsys, text, told):
    row = {"image": "a.png", "query": text, "response": "<noise> A cat.", "split": "train"}
    rows.write_text(json.dumps(row) + "\n")
    name = re.search(r"<\w+>", f"{text}<none>")[0]
    assert (f"rows: texts spell {name}, which stay plain text" in data(capsys, rows)[1]) == told

"""What another tokenizer has made of texts is not trained on as the digits of its numbers."""

from __future__ import annotations

import pytest

from kosmos.data.document import Text
from kosmos.errors import DataError, SampleError

TOKENS = [60, 117, 110, 107, 62, 32, 115, 105, 120]
LOOK = r"these look like token numbers of another tokenizer, and Kosmos reads text, .*: decode them"


@pytest.mark.parametrize("column", ["input_ids", "token_ids"])
@pytest.mark.parametrize("values", [TOKENS, [3]])
def test_token_numbers_under_text_are_a_bad_sample(open_, rows, table, column, values):
    for file in (rows({column: values}), table({column: [values]})):
        for given in ({"columns": {"text": column}}, {"template": f"{{{column}}}"}, {"template": f"Q → {{{column}}}"}):
            with pytest.raises(SampleError, match=f"{column}: {LOOK}"):
                open_(file, **given).document(0)


def test_token_numbers_are_no_answer_either(open_, rows):
    file = rows({"question": "What?", "made": {"input_ids": TOKENS}})
    with pytest.raises(SampleError, match=rf"made\.input_ids: {LOOK}"):
        open_(file, template="{question} → {made.input_ids}").document(0)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("answer", [*range(9)] * 9),  # such as a sudoku, or a series
        ("tokens", TOKENS),
        ("tokens", ["a", "cat", *"sat on the mat with a hat".split()]),
        ("input_ids", ["a", "cat"]),
        ("input_ids", [0.5, 1] * 40),
    ],
)
def test_other_lists_of_numbers_and_of_words_are_text(open_, rows, column, values):
    (text,) = open_(rows({column: values}), columns={"text": column}).document(0).segments
    assert text == Text(", ".join(map(str, values)), train=True)


@pytest.mark.parametrize("name", ["input_ids", "token_ids"])
def test_a_table_of_token_numbers_is_not_said_to_lack_the_name_of_its_text(open_, rows, table, name):
    for file in (rows({name: TOKENS, "length": 9}), table({name: [TOKENS], "length": [9]})):
        with pytest.raises(DataError, match=f"no column 'text'.*; '{name}' are token numbers of another") as caught:
            open_(file)
        assert "name it" not in str(caught.value)
    with pytest.raises(SampleError, match=f"no 'text'; '{name}' are token numbers of another"):
        open_(rows({"text": "a"}, {name: TOKENS})).document(1)


def test_columns_that_may_be_texts_are_told_before_token_numbers(open_, rows):
    with pytest.raises(DataError, match=r"no column 'text'.*; if that is content: columns: {text: content}$"):
        open_(rows({"input_ids": TOKENS, "content": "a"}))
    with pytest.raises(DataError, match=r"no column 'text'.*; if 'tokens' are token numbers of another"):
        open_(rows({"tokens": TOKENS}))


@pytest.mark.parametrize(("names", "suffix"), [(("train.bin", "val.bin"), ".bin"), (("a.idx", "a.bin"), ".bin")])
def test_files_of_token_numbers_are_told_to_be_some(open_, tmp_path, names, suffix):
    for name in names:
        (tmp_path / name).write_bytes(bytes(range(64)))
        with pytest.raises(DataError, match=rf"{name}: {name[-4:]} files hold token numbers of another .*: decode"):
            open_(tmp_path / name)
    with pytest.raises(DataError, match=f"{suffix} files hold token numbers of another tokenizer .nanoGPT, Megatron"):
        open_(tmp_path)

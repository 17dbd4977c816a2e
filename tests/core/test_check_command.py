"""``kosmos data --check``: exact figures, and what a check that is stopped has found."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kosmos.cli import main

SMALL = ["--modalities", "text", "data.tokens_per_pack=64", "data.held_out=0", "--workers", "0"]


@pytest.fixture
def texts(tmp_path):
    """Of lengths that differ by the hundredfold, some longer than a row."""
    lengths = [1 + 37 * n % 190 for n in range(300)]
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{"x" * length}"}}\n' for length in lengths))
    return tmp_path / "texts.jsonl", lengths


def check(path, *more):
    return main(["data", "--data", str(path), *SMALL, "--check", *map(str, more)])


def test_a_check_tells_the_exact_tokens_of_all_documents(texts, capsys):
    path, lengths = texts
    assert check(path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # A text of L bytes is L + 2 tokens; the pieces of one that fits no row begin with the last token of the one before.
    tokens = [length + 2 + (length + 1 - 1) // 63 for length in lengths]
    exact = found["sources"][0]["exact"]
    assert (exact["documents"], exact["tokens"]) == (300, sum(tokens))
    assert (exact["shortest"], exact["longest"]) == (min(tokens), max(tokens))
    assert exact["mean"] == pytest.approx(sum(tokens) / 300)
    assert (found["checked"], found["to_check"], found["whole"]) == (300, 300, True)
    assert check(path) == 0
    out = capsys.readouterr().out
    line = f"tokens    texts: exactly {sum(tokens):,} in 300 documents, 3 to {max(tokens)} a document, "
    assert f"{line}{sum(tokens) / 300:,.1f} on average; of the first 256 0 % of media, " in out
    assert f"once in {exact['steps']:,} steps\n" in out
    assert f"every document once takes {exact['steps']:,} steps, by the tokens of all\n" in out


def test_documents_that_cannot_be_used_are_not_among_the_exact_ones(texts, capsys):
    path, _ = texts
    with path.open("a") as lines:
        lines.write('{"text": null}\n')
    assert check(path, "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], found["sources"][0]["exact"]["documents"]) == (301, 300)


class Stopped(io.StringIO):
    """Standard error of a command that Ctrl-C stops as it tells how far it is."""

    def write(self, text: str) -> int:
        if text.startswith("decoding: ") and "decoding: " in self.getvalue():
            raise KeyboardInterrupt
        return super().write(text)


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["lines", "json"])
def test_a_check_that_is_stopped_tells_what_it_has_found(texts, capsys, monkeypatch, more):
    path, _ = texts
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(['{"text": null}\n', *rows[1:]]))
    monkeypatch.setattr("kosmos.commands.bars.EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", told := Stopped())
    status = check(path, *more)
    out, err = capsys.readouterr().out, told.getvalue().splitlines()
    assert status == 130
    assert err[0].startswith("decoding: ") and err[0].endswith(" of 300 documents")
    assert err[-1].startswith("error[interrupted]: stopped (SIGINT): ")
    assert err[-1].endswith(" of 300 documents were looked at; 1 of them cannot be used")
    if more:
        found = json.loads(out)
        assert (found["whole"], found["to_check"], found["duplicates"]) == (False, 300, None)
        assert (len(found["incidents"]), found["sources"][0]["exact"]) == (1, None)
        assert 0 < found["checked"] < 300
        assert f" {found['checked']} of 300 documents" in err[-1]
    else:
        assert f"cannot be used: {path}:1: " in out
        assert "exactly" not in out

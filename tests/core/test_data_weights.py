"""What rows weigh, as ``kosmos data`` tells it."""

from __future__ import annotations

import json

from kosmos.cli import main


def test_weights_are_told_with_the_figures_and_each_document(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"line {n}", "reward": n - 1}) + "\n" for n in range(4)))
    source = f"data.sources=[{{path: {rows}, columns: {{weight: reward}}, held_out: 0}}]"
    assert main(["data", "--modalities", "text", source]) == 0
    shown = capsys.readouterr().out
    assert "weights   rows: -1 to 2, 0.5 on average" in shown and "weight -1)" in shown
    assert main(["data", "--modalities", "text", source, "--json", "--documents", "4"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(document["weight"] for document in told["shown"]) == [-1, 0, 1, 2]
    assert told["sources"][0]["figures"]["weights"] == [-1, 0.5, 2]

"""What the reporter for people writes where there is no terminal."""

from __future__ import annotations

import builtins

from kosmos import ConsoleReporter, train_model
from support.runs import small_run, ticks_registry


class ZMQInteractiveShell:
    """By the name of this class rich knows a notebook."""


def test_in_a_notebook_lines_go_to_standard_error_as_elsewhere(tmp_path, monkeypatch, capsys):
    """As one output under the cell: rich would make an output of HTML of each line."""
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=ConsoleReporter())
    written = capsys.readouterr()
    assert "step 6/6  loss " in written.err
    assert written.out.startswith("held out")
    assert "\x1b" not in written.err + written.out

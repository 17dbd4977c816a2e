"""Core's commands, one module each: a function that typer wraps, imported when somebody runs it.

To add one, write ``kosmos/commands/<name>.py`` with the function (or a ``typer.Typer`` for a command with
sub-commands), and name it in ``kosmos_commands`` of ``kosmos/builtin.py``. Torch is imported inside the
function, so that ``--help`` of the command stays quick.
"""

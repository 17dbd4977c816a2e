"""Codes of rows of ``quarantine.jsonl`` that are about no bad sample, which are those of errors."""

MEDIUM = "medium"
"""Of a medium that was left out of a document which is learned all the same."""

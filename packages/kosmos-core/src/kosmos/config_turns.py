"""How turns of chats are spelled, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo, field_validator, model_validator

from kosmos.chats import CONTENT, LAYOUTS
from kosmos.names import did_you_mean, listed
from kosmos.strict import Strict


class TurnsConfig(Strict):
    """How turns of a chat are spelled: as a published model has learned them. A bare string is a known way: ``chatml``
    (Qwen and others), ``gemma`` or ``llama-3``. In a text ``{}`` stands for what is said; what it spells beside that
    are special tokens of the tokenizer, where it has some of these names."""

    begin: str = ""
    """In front of a chat."""
    system: str | None = None
    """A turn of the system; null refuses chats that have one."""
    user: str
    """A turn of the user."""
    assistant: str
    """A turn of the assistant. Behind ``{}`` stands a special token, which is learned too, and ends an answer."""
    trim: bool = False
    """Take the space off both ends of what is said, as the templates of Gemma and Llama 3 do."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in LAYOUTS:
            near = "did you mean chatml?" if value.lower().startswith("qwen") else did_you_mean(value, LAYOUTS)
            known = near or f"there are {listed(LAYOUTS)}, null for none, or give the texts yourself"
            raise ValueError(f"unknown way to spell turns {value!r}; {known}")
        return LAYOUTS[value]

    @field_validator("begin", "system", "user", "assistant")
    @classmethod
    def _spells(cls, value: str | None, field: ValidationInfo) -> str | None:
        text = CONTENT if value is None else value
        if "\\n" in text:
            raise ValueError(r'holds a backslash and an n; a line end is \n in double quotes alone: "<|user|>\n{}"')
        if text.count(CONTENT) != (wanted := field.field_name != "begin"):
            count = "one" if wanted else "no"
            raise ValueError(f"expected a text with {count} {CONTENT}, which stands for what is said")
        if field.field_name == "assistant" and text.partition(CONTENT)[0].endswith(" "):
            raise ValueError(f"a space in front of {CONTENT} would be a part of the answer's first word; leave it out")
        return value

"""Checkpoints that somebody with bad intentions made: pickles, links, traversals, headers and states that lie.

Where a manifest could have been rewritten to fit, it is.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kosmos.checkpoint.folder import digest

Payload = Callable[[Path, Path], None]
"""Changes a checkpoint so that, were it to work, the file given second would be made."""
PAYLOADS: list[Payload] = []
BOMB = "[" * 200_000
TOO_LARGE = 2**40


class Reduces:
    """Unpickled, it makes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (Path.touch, (self.canary,))


def payload(act: Payload) -> Payload:
    PAYLOADS.append(act)
    return act


def rewrite(checkpoint: Path, **fields: Any) -> None:
    """A manifest that fits what stands there."""
    files = [p for p in checkpoint.rglob("*") if p.is_file() and p.name != "manifest.json"]
    hashes = {p.relative_to(checkpoint).as_posix(): digest(p) for p in files}
    manifest = {"step": int(checkpoint.name.removeprefix("step-")), "sha256": hashes, **fields}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def shard(checkpoint: Path) -> Path:
    (file,) = (checkpoint / "tensors").iterdir()
    return file


def place(name: str, content: Callable[[Path], bytes], *, fits: bool = True, only: bool = False) -> Payload:
    """Put a file into the checkpoint; ``only``: in place of the shard."""

    def act(checkpoint: Path, canary: Path) -> None:
        if only:
            shard(checkpoint).unlink()
        (checkpoint / name).write_bytes(content(canary))
        if fits:
            rewrite(checkpoint)

    act.__name__ = f"{name}{'' if fits else ', not in the manifest'}{', alone' if only else ''}"
    return payload(act)


def pickled(canary: Path) -> bytes:
    return pickle.dumps(Reduces(canary))


def torch_saved(canary: Path) -> bytes:
    file = io.BytesIO()
    torch.save({"model.w": Reduces(canary)}, file)
    return file.getvalue()


def code(canary: Path) -> bytes:
    return f"open({str(canary)!r}, 'w')".encode()


for name in (".metadata", "__0_0.distcp", "model.pt", "optimizer.bin", "model.safetensors.index.json", "a.pkl"):
    place(f"tensors/{name}", pickled)
place(".metadata", pickled)
place("tensors/.metadata", pickled, fits=False)
place("tensors/.metadata", pickled, only=True)
place("tensors/weights.pt", torch_saved)
place("tensors/__init__.py", code)
place("conftest.py", code)
place("state.json", pickled)
place("manifest.json", pickled, fits=False)
place("tensors/shard-00001-model-00001-of-00001.safetensors", pickled, only=True)
place("tensors/shard-00002-model-00001-of-00001.safetensors", torch_saved, only=True)
place("tensors/more.safetensors", pickled)


@payload
def a_checkpoint_of_dcp(checkpoint: Path, canary: Path) -> None:
    shard(checkpoint).unlink()
    (checkpoint / "tensors" / ".metadata").write_bytes(pickled(canary))
    (checkpoint / "tensors" / "__0_0.distcp").write_bytes(torch_saved(canary))
    rewrite(checkpoint)


# tokenizers


def tokenizer(name: str, files: dict[str, Callable[[Path], bytes]]) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        folder = checkpoint.parent.parent / "tokenizer"
        shutil.rmtree(folder)
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content(canary))

    act.__name__ = f"tokenizer: {name}"
    payload(act)


def of_json(content: Any) -> Callable[[Path], bytes]:
    return lambda canary: json.dumps(content).encode()


tokenizer("pickle", {"kosmos_tokenizer.json": pickled})
tokenizer("pickled tokenizer.json", {"tokenizer.json": pickled, "tokenizer.model": pickled, "vocab.json": pickled})
tokenizer("nested", {"kosmos_tokenizer.json": lambda canary: BOMB.encode()})
tokenizer("nested tokenizer.json", {"tokenizer.json": lambda canary: BOMB.encode()})
tokenizer("of another kind", {"kosmos_tokenizer.json": of_json({"kind": "hf", "marks": [], "names": {}})})
tokenizer(
    "code of its own",
    {
        "tokenizer_config.json": of_json({"auto_map": {"AutoTokenizer": ["tok.Tok", None]}, "tokenizer_class": "Tok"}),
        "config.json": of_json({"auto_map": {"AutoConfig": "tok.Config"}, "model_type": "tok"}),
        "tok.py": code,
    },
)


# manifests


def manifest(name: str, *, fits: bool = True, **fields: Any) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        if fits:
            rewrite(checkpoint)
        path = checkpoint / "manifest.json"
        content = json.loads(path.read_text())
        hashes = {**content["sha256"], **fields.pop("more", {})}
        path.write_text(json.dumps({**content, "sha256": hashes, **fields}))

    act.__name__ = f"manifest: {name}"
    payload(act)


manifest("leads out", more={"../../run.yaml": "0" * 64})
manifest("leads to the root", more={"/etc/passwd": "0" * 64})
manifest("leads out and in", more={"tensors/../state.json": "0" * 64})
manifest("list of hashes", sha256=["state.json"])
manifest("no hashes", sha256=None)
manifest("numbers for hashes", sha256={"state.json": 1})
manifest("of another step", step=10**30)


def text(name: str, content: str) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        (checkpoint / name).write_text(content)
        if name != "manifest.json":
            rewrite(checkpoint)

    act.__name__ = f"{name}: {content[:20]}"
    payload(act)


for file in ("manifest.json", "state.json"):
    for content in (BOMB, '{"a":' * 100_000, "[1]", "null", "{}", '{"step": ' + "9" * 5000 + "}", ""):
        text(file, content)


@payload
def manifest_without_end(checkpoint: Path, canary: Path) -> None:
    os.truncate(checkpoint / "manifest.json", TOO_LARGE)


@payload
def state_without_end(checkpoint: Path, canary: Path) -> None:
    rewrite(checkpoint)
    os.truncate(checkpoint / "state.json", 2**29)
    rewrite(checkpoint)


# links


def link(name: str, *, relative: bool = False) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        inside = checkpoint / name if name else checkpoint
        outside = checkpoint.parent.parent / "outside"
        shutil.move(inside, outside)
        inside.symlink_to(os.path.relpath(outside, inside.parent) if relative else outside)

    act.__name__ = f"link of {name or 'the checkpoint'}{', relative' if relative else ''}"
    payload(act)


for name in ("", "tensors", "state.json", "manifest.json"):
    link(name)
link("state.json", relative=True)


@payload
def shard_that_is_a_link(checkpoint: Path, canary: Path) -> None:
    file = shard(checkpoint)
    outside = checkpoint.parent.parent / "shard.safetensors"
    file.rename(outside)
    file.symlink_to(outside)
    rewrite(checkpoint)


@payload
def shard_that_is_a_pipe(checkpoint: Path, canary: Path) -> None:
    file = shard(checkpoint)
    file.unlink()
    os.mkfifo(file)


# headers of safetensors


def header(change: Callable[[dict[str, Any], str], Any]) -> Payload:
    """Change the header of the shard; ``change`` gets it and the name of its first tensor."""

    def act(checkpoint: Path, canary: Path) -> None:
        file = shard(checkpoint)
        content = file.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        fields = json.loads(content[8 : 8 + length])
        first = next(key for key in fields if key != "__metadata__" and fields[key]["shape"])
        changed = change(fields, first)
        new = (changed if isinstance(changed, str) else json.dumps(fields)).encode()
        file.write_bytes(struct.pack("<Q", len(new)) + new + content[8 + length :])
        rewrite(checkpoint)

    act.__name__ = f"header: {change.__name__}"
    return payload(act)


def sharding(change: Callable[[Any, str], Any]) -> Payload:
    """Change what PyTorch keeps in the header of where a shard begins."""

    def of_header(fields: dict[str, Any], first: str) -> None:
        stated = json.loads(fields["__metadata__"]["DCP_SHARDING_INFO"])
        changed = change(stated, first)
        fields["__metadata__"]["DCP_SHARDING_INFO"] = changed if isinstance(changed, str) else json.dumps(stated)

    of_header.__name__ = change.__name__
    return header(of_header)


@header
def negative_offsets(fields: dict[str, Any], first: str) -> None:
    fields[first]["data_offsets"] = [-8, 8]


@header
def overlapping(fields: dict[str, Any], first: str) -> None:
    names = [name for name in fields if name != "__metadata__"]
    for name in names:
        fields[name] = fields[first]


@header
def past_the_end(fields: dict[str, Any], first: str) -> None:
    fields[first]["data_offsets"][1] = TOO_LARGE


@header
def shape_that_is_absurd(fields: dict[str, Any], first: str) -> None:
    fields[first]["shape"] = [2**62, 8]


@header
def shape_that_is_large_and_empty(fields: dict[str, Any], first: str) -> None:
    fields[first] |= {"shape": [2**62, 0], "data_offsets": [0, 0]}


@header
def dtype_that_is_none(fields: dict[str, Any], first: str) -> None:
    fields[first]["dtype"] = "object"


@header
def nested(fields: dict[str, Any], first: str) -> str:
    return BOMB


@header
def not_json(fields: dict[str, Any], first: str) -> str:
    return "import os"


@header
def a_tensor_less(fields: dict[str, Any], first: str) -> None:
    del fields[first]


@header
def without_sharding(fields: dict[str, Any], first: str) -> None:
    fields["__metadata__"]["DCP_SHARDING_INFO"] = "[]"


@sharding
def sharding_nested(stated: Any, first: str) -> str:
    return BOMB


@sharding
def sharding_negative(stated: Any, first: str) -> None:
    stated[first]["saved_offsets"][0] = -1


@sharding
def sharding_absurd(stated: Any, first: str) -> None:
    stated[first]["saved_offsets"][0] = 2**62


@sharding
def sharding_past_integers(stated: Any, first: str) -> None:
    stated[first]["saved_offsets"][0] = 2**70


@sharding
def sharding_in_words(stated: Any, first: str) -> None:
    stated[first]["saved_offsets"] = ["__import__('os')"]


@sharding
def sharding_of_other_names(stated: Any, first: str) -> None:
    stated.clear()


def raw(name: str, change: Callable[[bytes], bytes]) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        file = shard(checkpoint)
        file.write_bytes(change(file.read_bytes()))
        rewrite(checkpoint)

    act.__name__ = f"shard: {name}"
    payload(act)


raw("header of 2**63 bytes", lambda content: struct.pack("<Q", 2**63) + content[8:])
raw("header of 2**40 bytes", lambda content: struct.pack("<Q", TOO_LARGE) + content[8:])
raw("empty", lambda content: b"")
raw("seven bytes", lambda content: content[:7])
raw("more behind the tensors", lambda content: content + b"x")


# states


STATES: list[Payload] = []
"""What only a run that goes on reads."""


def state(name: str, change: Callable[[dict[str, Any]], Any], *, into: list[Payload] = STATES) -> None:
    def act(checkpoint: Path, canary: Path) -> None:
        path = checkpoint / "state.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        rewrite(checkpoint)

    act.__name__ = f"state: {name}"
    into.append(act)


state("another step", lambda content: content.update(step=-1), into=PAYLOADS)
for field in ("data", "budget", "guard", "order", "optimizer"):
    state(f"without {field}", lambda content, field=field: content.pop(field))  # type: ignore[misc]
    state(f"{field} is a number", lambda content, field=field: content.update({field: 1}))  # type: ignore[misc]
state("lanes of another run", lambda content: content["data"].update(lanes={"7": {}}))
state("lanes in words", lambda content: content["data"]["lanes"].update({"0": "import os"}))
state("a source that is not there", lambda content: content["data"]["lanes"]["0"].update(pending=[[9, 0, 0]]))
state("draws that are none", lambda content: content["data"]["lanes"]["0"].update(draws=1, tokens=None))
state("pending in words", lambda content: content["data"]["lanes"]["0"].update(pending=["abc"]))
state("deadly without end", lambda content: content["data"].update(deadly=[[1]]))
state("losses that are none", lambda content: content["guard"].update(losses=1, in_turn=None))
state("a state of nothing", lambda content: content["optimizer"].update({"no.such/step": 1}))
state("bad samples in words", lambda content: content["budget"].update(bad="two"))
state("draws without an end", lambda content: content["budget"].update(drawn=2**70))
state("a useful source without a name", lambda content: content["budget"].update(useful=[math.nan]))
state("costs that are none", lambda content: content["costs"][0].update(head=[1.0, {}]))
state("parts in words", lambda content: content.update(parts="2"))
state("a best loss that is none", lambda content: content["early"].update(best=math.nan))
state("a lane of fewer sources", lambda content: content["data"]["lanes"]["0"].update(given=[]))
state("guards that have seen words", lambda content: content["guard"].update(losses=["low"]))

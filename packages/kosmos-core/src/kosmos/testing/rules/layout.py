"""What a layout promises: it knows its own folders, refuses others in a line, and gives back what it has written."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from kosmos.checkpoint.tensors import model_tensors
from kosmos.compose import compose
from kosmos.errors import ConfigError, cause
from kosmos.model.model_folder import CONFIG, WEIGHTS, ModelFolder
from kosmos.run_file import make_run
from kosmos.testing.promise import BrokenPromise, Rule, Unchecked, rule
from kosmos.testing.subjects import ComponentUnderTest
from kosmos.train.layout import ModelParts

OTHERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "another model": {"model_type": "kosmos-none", "architectures": ["Nothing"]},
    "a number": {"model_type": 3},
    "a list": {"model_type": ["llava"], "text_config": 3, "vision_config": []},
}
"""What ``config.json`` may say that is of no model."""


@rule("layout", "leaves-others", "a configuration of another model is none of its own, whatever it says")
def leaves_others(layout: ComponentUnderTest) -> None:
    made = layout.build()
    for what, config in OTHERS.items():
        try:
            found = made.matches(config)
        except Exception as error:
            raise BrokenPromise(f"it fails at the configuration of {what}: {cause(error)}") from error
        if found:
            raise BrokenPromise(f"it takes the configuration of {what} for its own: {config}")


@rule("layout", "refuses-others", "a folder that holds something else is refused as ConfigError, in one line")
def refuses_others(layout: ComponentUnderTest) -> None:
    made = layout.build()
    for what, config in OTHERS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
            save_file({"w": torch.zeros(1)}, folder / WEIGHTS)
            try:
                made.read(ModelFolder(folder))
            except ConfigError as error:
                if "\n" in str(error):
                    raise BrokenPromise(f"it says more than a line of the folder of {what}: {error}") from error
            except Exception as error:
                raise BrokenPromise(f"it fails at the folder of {what}: {cause(error)}; raise ConfigError") from error
            else:
                raise BrokenPromise(f"it reads the folder of {what}")


@rule("layout", "gives-back", "of a run that it has written it reads every tensor, the same bit for bit")
def gives_back(layout: ComponentUnderTest) -> None:
    if (stated := layout.conditions.runs.get(layout.spec.name)) is None:
        raise Unchecked(f"give a run that it can write in Conditions(runs={{{layout.spec.name!r}: {{...}}}})")
    composition = compose(make_run(dict(stated)), layout.registry)
    backbone: Any = composition.model.backbone.eval()
    made = layout.build()
    own = {name: tensor.detach().clone() for name, tensor in model_tensors(composition.model).items()}
    composition.model.eval()
    written = made.write(ModelParts(composition, backbone.to_transformers(composition.planner.max_tokens)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, content in {CONFIG: written.config, **written.files}.items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        save_file({name: tensor.detach().contiguous() for name, tensor in written.tensors.items()}, folder / WEIGHTS)
        published = ModelFolder(folder)
        if not made.matches(published.config):
            raise BrokenPromise(f"it does not know the folder that it has written: {published.config}")
        read = made.read(published).tensors
        for name, tensor in own.items():
            if name.startswith("backbone.") and name not in read:
                continue  # the backbone of the run may be another than the one that is read
            if name not in read:
                raise BrokenPromise(f"{name} is not given back")
            if not torch.equal(read[name][: len(tensor)] if tensor.ndim else read[name], tensor):
                raise BrokenPromise(f"{name} is given back otherwise")


RULES: tuple[Rule, ...] = (leaves_others, refuses_others, gives_back)

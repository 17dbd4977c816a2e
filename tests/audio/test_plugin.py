"""The plugin is light, and everything that it names is there."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

from kosmos.components import API_VERSION, Spec
from kosmos_audio import plugin


def specs() -> list[Spec]:
    hooks = (plugin.kosmos_modalities, plugin.kosmos_encoders, plugin.kosmos_codecs, plugin.kosmos_datasets)
    return [spec for hook in hooks for spec in hook()]


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, kosmos_audio.plugin as p; list(p.kosmos_modalities()); list(p.kosmos_encoders());"
        "list(p.kosmos_codecs());"
        "print({'torch', 'numpy', 'torchaudio', 'soundfile', 'av', 'transformers'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_every_target_exists_and_every_option_has_a_type() -> None:
    for spec in specs():
        module, _, attribute = spec.target.partition(":")
        factory = getattr(import_module(module), attribute)
        for parameter in inspect.signature(factory).parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, (spec.name, parameter.name)


def test_the_modality_names_its_own_parts() -> None:
    (modality,) = plugin.kosmos_modalities()
    assert modality.encoder in {spec.name for spec in plugin.kosmos_encoders()}
    assert modality.sample_set in {spec.name for spec in plugin.kosmos_datasets()}
    assert modality.marks == ("<audio>", "</audio>")
    assert plugin.KOSMOS_API == API_VERSION

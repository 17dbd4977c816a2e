"""A model that speaks: from rows of words and sounds to the file of what it said."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from kosmos import (
    Codes,
    Document,
    Generated,
    Media,
    Text,
    generate_text,
    load_run,
    make_run,
    said_parts,
    train_model,
    written_media,
)
from kosmos.plugins import load_plugins
from kosmos_audio.codecs.mu_law import MuLawCodec
from support.neural_codecs import CODEBOOK_SIZE, save_codec
from support.runs import SMALL, Listener
from support.sounds import encoded

RATE_HZ = 400
SOUNDS = {"up": np.geomspace(0.01, 0.9, 30, dtype=np.float32), "hum": -np.geomspace(0.9, 0.01, 40, dtype=np.float32)}
TEMPLATE = "{text} → [audio]"


def run_of(folder: Path, codec: dict[str, Any], **over: Any) -> Any:
    for name, samples in SOUNDS.items():
        (folder / f"{name}.wav").write_bytes(encoded(samples, RATE_HZ))
    rows = [{"text": name, "audio": f"{name}.wav"} for name in SOUNDS]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": str(folder / "rows.jsonl"), "template": TEMPLATE, "held_out": 0.0}
    layers = {
        "output": str(folder / "run"),
        "modalities": {"audio": {"codec": codec}},
        "streams": {"audio": {"encoder": {"name": "logmel", "width": 16, "layers": 1, "heads": 2}}},
        "data": {"sources": [source], "tokens_per_pack": 256},
    }
    return make_run({name: part for name, part in SMALL.items() if name != "modalities"}, layers, over)


def codes_of(name: str) -> list[int]:
    medium = Media("audio", SOUNDS[name], rate_hz=RATE_HZ)
    return MuLawCodec(rate_hz=RATE_HZ).encode(medium).tolist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speaking")
    train = {"optimizer": "adamw", "learning_rate": 1e-2, "steps": 100}
    run = run_of(folder, {"name": "mu-law", "rate_hz": RATE_HZ}, train=train)
    train_model(run, reporter=Listener())
    return folder / "run"


@pytest.mark.parametrize("word", list(SOUNDS))
def test_words_are_said_as_they_were_learned(word: str, trained: Path) -> None:
    saved = load_run(trained)
    answers: list[Generated] = []
    prompt = Document("prompt", (Text(word),))
    generate_text(saved.composition, prompt, max_new_tokens=60, dtype=saved.dtype, on_end=answers.append)
    (medium,) = written_media(saved.composition, answers[0])
    assert medium.fault == "" and medium.codes.tolist() == codes_of(word)
    heard, rate_hz = soundfile.read(io.BytesIO(medium.content))
    assert rate_hz == RATE_HZ and np.abs(heard - SOUNDS[word]).max() < 0.022
    (part,) = said_parts(saved.composition, answers[0])
    assert isinstance(part, Codes) and part.codes.tolist() == codes_of(word)


def test_a_network_s_codes_are_learned_by_what_a_run_states(tmp_path: Path) -> None:
    save_codec("dac", tmp_path / "dac")
    listener = Listener()
    run = run_of(
        tmp_path, {"name": "neural-audio", "weights": str(tmp_path / "dac"), "codebooks": 2}, train={"steps": 2}
    )
    train_model(run, reporter=listener)
    saved = load_run(tmp_path / "run")
    planner = saved.composition.planner
    assert planner.routes["audio"].writer is not None
    assert planner.routes["audio"].writer.codec.size == 2 * CODEBOOK_SIZE
    medium = Media("audio", SOUNDS["hum"], rate_hz=RATE_HZ, train=True)  # 80 samples at 800 Hz, 8 frames
    (plan,) = planner.plan(Document("one", (Text("hum "), medium)))
    assert plan.train.sum() == 2 + 8 * 2 + 1  # its beginning and end, its codes and the end of the document


def test_what_a_plugin_lists_of_codecs_is_of_sound() -> None:
    found = load_plugins().specs("codec")
    assert {name: getattr(found[name], "modality", "") for name in ("mu-law", "neural-audio")} == {
        "mu-law": "audio",
        "neural-audio": "audio",
    }

"""What ``kosmos generate --MODALITY`` and ``kosmos chat`` take for a medium."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from kosmos import ConfigError, SampleError
from kosmos.commands.generate import prompt_document, read_segments
from kosmos.commands.named_media import named_medium
from kosmos.components import ModalitySpec

IMU = ModalitySpec(
    name="imu",
    target="a:b",
    summary="imu",
    encoder="c",
    has_time=True,
    reads_rate=True,
    arrays=(2,),
    suffixes=(".npy",),
)
ECG = ModalitySpec(name="ecg", target="a:b", summary="ecg", encoder="c")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(b"numbers")
    (tmp_path / "{odd}.npy").write_bytes(b"numbers")
    monkeypatch.chdir(tmp_path / "..")
    return tmp_path


def test_a_file_or_an_object_with_its_rate_and_its_clip_is_a_medium(folder):
    file = f"{folder.name}/a.npy"
    objects = {"path": file, "rate_hz": 100}, {"imu": str(folder / "a.npy"), "clip": [0, 2]}
    arguments = [part for value in (file, *map(json.dumps, objects)) for part in ("--imu", value)]
    media = read_segments([*arguments, f"--imu={folder.name}/{{odd}}.npy"], ["imu"], installed={"imu": IMU})
    assert [(one.rate_hz, one.clip) for one in media] == [(None, None), (100, None), (None, (0, 2)), (None, None)]
    assert [one.source.resolve().name for one in media] == ["a.npy", "a.npy", "a.npy", "{odd}.npy"]


@pytest.mark.parametrize("form", ['{"url": "a.npy"}', '{"imu": {"path": "a.npy"}}', '{"imu": {"url": "a.npy"}}'])
def test_files_are_named_from_the_working_folder_wherever_they_stand(folder, monkeypatch, form):
    monkeypatch.chdir(folder)
    assert named_medium("imu", form, IMU).source.resolve() == folder / "a.npy"


def test_numbers_are_a_medium_too_and_are_called_by_their_modality():
    (medium,) = read_segments(["--imu", '{"array": [[1.5, 2]], "rate_hz": 9}'], ["imu"], installed={"imu": IMU})
    assert (medium.source.tolist(), medium.source.dtype, medium.rate_hz) == ([[1.5, 2]], np.float32, 9)
    document = prompt_document([medium], chat=False, system=None)
    assert (document.origin, list(document.media)) == ("imu", [medium])


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        ('{"path": "a.npy"', ConfigError, '--imu: expected a file or an object of JSON, got \'{"path": "a.npy"\' ('),
        ('{"path": "a.npy", "rate_Hz": 9}', ConfigError, "--imu: rate_Hz: not read; did you mean rate_hz?"),
        (
            '{"path": "a.npy", "label": 9}',
            ConfigError,
            "--imu: label: not read; there are path, url, bytes, data, array",
        ),
        ('{"path": "a.npy", "rate_hz": 0}', SampleError, "imu: rate_hz: expected a number above 0, got 0"),
        ('{"path": "gone.npy"}', SampleError, "gone.npy: no such file"),
        ('{"clip": [0, 1]}', SampleError, "imu: expected a path, bytes or a data: URL, got an object without path"),
        ('{"path": ""}', SampleError, "an empty path; name a file"),
        ("gone.npy", SampleError, "gone.npy: no such file"),
        ("", SampleError, ": is a folder; give one file"),
    ],
)
def test_what_is_no_medium_is_refused_in_a_line(folder, monkeypatch, value, kind, why):
    monkeypatch.chdir(folder)
    with pytest.raises(kind, match=re.escape(why)):
        named_medium("imu", value, IMU, option="--imu")


def test_a_rate_is_refused_where_files_state_it_themselves(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"^--ecg: rate_hz: files of ecg state their rate themselves; leave it out$"):
        named_medium("ecg", '{"path": "a.npy", "rate_hz": 9}', ECG, option="--ecg")

"""The sample set is what it says, and can be failed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kosmos import ConfigError, Document, Media, Text
from kosmos_pointcloud.samples import SURFACES, SolidsSource


def parts(document: Document) -> tuple[np.ndarray, str]:
    media, text = document.segments
    assert isinstance(media, Media) and isinstance(media.source, np.ndarray) and isinstance(text, Text) and text.train
    return media.source, text.text


def test_every_description_is_drawn_about_equally_often() -> None:
    source = SolidsSource("train")
    counts = Counter(parts(source.document(index))[1] for index in range(600))
    assert len(counts) == 2 * len(SURFACES)
    assert {text for text in counts if text.startswith("two")} == {
        "two spheres", "two cubes", "two tori", "two cylinders", "two cones"
    }  # fmt: skip
    assert max(counts.values()) < 0.2 * 600


def test_sizes_places_and_numbers_of_points_vary() -> None:
    clouds = [parts(SolidsSource("held_out").document(index))[0] for index in range(60)]
    assert len({len(cloud) for cloud in clouds}) > 40
    radii = [np.linalg.norm(cloud - cloud.mean(axis=0), axis=1).max() for cloud in clouds]
    assert max(radii) / min(radii) > 100


def test_points_of_a_solid_lie_on_its_surface() -> None:
    random = np.random.default_rng(0)
    made = {name: surface(4000, random) for name, surface in SURFACES.items()}
    np.testing.assert_allclose(np.linalg.norm(made["sphere"], axis=1), 1)
    np.testing.assert_allclose(np.abs(made["cube"]).max(axis=1), 0.75)
    ring = np.hypot(np.linalg.norm(made["torus"][:, :2], axis=1) - 0.75, made["torus"][:, 2])
    np.testing.assert_allclose(ring, ring[0])
    for name in ("cylinder", "cone"):
        cloud = made[name]
        ends = np.isclose(cloud[:, 2], cloud[:, 2].min())
        assert 0.05 < ends.mean() < 0.5
        assert np.linalg.norm(cloud[:, :2], axis=1).max() <= 0.8


def test_train_and_held_out_are_different_clouds() -> None:
    train, held_out = (parts(SolidsSource(split).document(0))[0] for split in ("train", "held_out"))
    assert train.shape != held_out.shape or not np.array_equal(train, held_out)


def test_a_wrong_split_or_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="split 'test' is unknown"):
        SolidsSource("test")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="size"):
        SolidsSource("train", size=0)

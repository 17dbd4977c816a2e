"""Counts, groups, normalization, formats and limits of point clouds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos import ConfigError, Grid, Media, SampleError
from kosmos_pointcloud.clouds import CloudProcessor, CloudRecipe
from kosmos_pointcloud.conditions import CLOUD, as_npy, as_ply, as_xyz
from kosmos_pointcloud.inputs import CloudInput, Normalization


def made(*, points_per_group: int = 8, normalization: Normalization = "unit", **over: int) -> CloudProcessor:
    return CloudProcessor(CloudInput(points_per_group=points_per_group, normalization=normalization), **over)


def cloud(count: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((count, 3))


def decoded(source: object, processor: CloudProcessor | None = None) -> NDArray[np.float32]:
    processor = processor or made()
    media = Media("pointcloud", source)  # type: ignore[arg-type]
    return processor.decode(media, processor.plan(media))


@pytest.mark.parametrize(("points", "groups"), [(1, 1), (24, 1), (25, 2), (1000, 42), (5000, 64)])
def test_a_cloud_takes_a_group_for_so_many_points_up_to_a_limit(points: int, groups: int) -> None:
    media = Media("pointcloud", cloud(points))
    plan = made().plan(media)
    assert plan.layout == ("<pointcloud>", Grid(groups, 1, 1), "</pointcloud>")
    assert plan.recipe == CloudRecipe(points, groups)
    assert made().decode(media, plan).shape == (groups, 9, 3)


def test_a_cell_is_a_point_of_the_cloud_and_its_nearest_relative_to_it() -> None:
    points = cloud(200)
    cells = decoded(points, made(normalization="none"))
    for cell in cells:
        distances = np.linalg.norm(points - cell[0], axis=1)
        assert distances.min() < 1e-6
        np.testing.assert_allclose(np.linalg.norm(cell[1:], axis=1), np.sort(distances)[:8], atol=1e-5)


def test_place_and_size_of_a_cloud_do_not_matter_and_with_centre_its_size_does() -> None:
    points = cloud(100)
    np.testing.assert_allclose(decoded(50 * points + 7), decoded(points), atol=1e-5)
    centred = made(normalization="centre")
    np.testing.assert_allclose(decoded(50 * points + 7, centred), 50 * decoded(points, centred), atol=1e-3)
    assert np.linalg.norm(decoded(points)[:, 0], axis=1).max() == pytest.approx(1)  # the first centre is the farthest


def test_the_order_of_the_points_does_not_matter() -> None:
    points = cloud(150)
    shuffled = np.random.default_rng(1).permutation(points)
    np.testing.assert_allclose(decoded(shuffled), decoded(points), atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30, 1e300])
def test_clouds_of_any_scale_come_to_the_unit_ball(size: float) -> None:
    np.testing.assert_allclose(decoded(cloud(40) * size), decoded(cloud(40)), atol=1e-5)


def test_one_point_and_equal_points_are_a_cloud() -> None:
    assert decoded(np.full((1, 3), 5.0)).shape == (1, 9, 3)
    assert not decoded(np.full((40, 3), 5.0)).any()


def test_columns_after_the_third_are_left_out() -> None:
    points = cloud(30)
    coloured = np.concatenate([points, np.full((30, 3), 255.0)], axis=1)
    assert np.array_equal(decoded(coloured), decoded(points))


@pytest.mark.parametrize(
    "content",
    [
        as_xyz(CLOUD),
        b"# x, y, z, red\r\n" + as_xyz(CLOUD).replace(b" ", b",").replace(b"\n", b",9\r\n"),
        as_npy(CLOUD),
        as_npy(np.asfortranarray(CLOUD.astype(">f8"))),
        *(as_ply(CLOUD, form) for form in ("ascii", "binary_little_endian", "binary_big_endian")),
        as_ply(CLOUD).replace(b"\ncomment", b"\r\ncomment"),
    ],
    ids=["xyz", "csv", "npy", "npy columns first", "ply ascii", "ply little", "ply big", "ply returns"],
)
def test_a_file_gives_what_its_array_gives(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "cloud"
    file.write_bytes(content)
    expected = decoded(CLOUD)
    assert np.array_equal(decoded(content), expected)
    assert np.array_equal(decoded(file), expected)


@pytest.mark.parametrize("write", [as_npy, as_ply])
def test_ply_and_npy_are_planned_from_their_header(write: object) -> None:
    content: bytes = write(np.zeros((500, 3), np.float32))  # type: ignore[operator]
    media = Media("pointcloud", content[:400])
    plan = made().plan(media)
    assert plan.recipe.points == 500
    with pytest.raises(SampleError, match=r"header promises (6000 bytes|500 points)"):
        made().decode(media, plan)


@pytest.mark.parametrize(
    ("source", "limit", "said"),
    [
        (cloud(11), {"max_points": 10}, r"11 points, the limit is 10 \(max_points\)"),
        (as_ply(CLOUD), {"max_points": 10}, r"points, the limit is 10 \(max_points\)"),
        (as_xyz(CLOUD), {"max_points": 10}, r"points, the limit is 10 \(max_points\)"),
        (as_npy(CLOUD), {"max_bytes": 10}, r"bytes, the limit is 10 \(max_bytes\)"),
        (b"", {}, "no bytes"),
        (b"# nothing\n", {}, r"shape \(0, 3\)"),
        (b"1 2\n", {}, "point cloud: "),
        (b"1 2 three\n", {}, "three"),
        (b"\xff\xfe\x00", {}, "neither .npy, .ply nor UTF-8"),
        (np.zeros((4, 2)), {}, r"shape \(4, 2\), expected \[points, 3"),
        (np.zeros((0, 3)), {}, r"shape \(0, 3\)"),
        (np.full((4, 3), "a"), {}, "type <U1, expected real numbers"),
        (np.array([[1, 2, np.nan], [1, 2, 3]]), {}, "1 of 2 points are not finite"),
        (as_npy(np.zeros((4, 3), np.complex64)), {}, "values of type complex64"),
        (np.array([[1.7e308, 0, 0]] * 3), {}, "too large"),
    ],
)
def test_what_is_over_a_limit_or_no_cloud_is_a_bad_sample(source: object, limit: dict[str, int], said: str) -> None:
    with pytest.raises(SampleError, match=said):
        decoded(source, made(**limit))


def test_clips_and_another_medium_than_was_planned_are_bad_samples() -> None:
    with pytest.raises(SampleError, match="no seconds"):
        made().plan(Media("pointcloud", cloud(9), clip=(0.0, 1.0)))
    plan = made().plan(Media("pointcloud", cloud(9)))
    with pytest.raises(SampleError, match="9 points then, 8 now"):
        made().decode(Media("pointcloud", cloud(8)), plan)


@pytest.mark.parametrize("option", ["points_per_centre", "max_groups", "max_points", "max_bytes", "points_per_group"])
def test_options_out_of_range_are_refused_by_name(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        made(**{option: 0})

"""Counts, normalization, missing values, clips and limits of windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos import ConfigError, Grid, Media, SampleError
from kosmos_timeseries.conditions import as_csv, as_npy
from kosmos_timeseries.inputs import Normalization, WindowInput
from kosmos_timeseries.windows import WindowProcessor, WindowRecipe

NAN = np.nan


def made(**over: object) -> WindowProcessor:
    given = {key: over.pop(key) for key in ("steps_per_cell", "max_channels", "normalization") if key in over}
    return WindowProcessor(WindowInput(**given), **over)  # type: ignore[arg-type]


def decoded(values: NDArray[np.generic] | bytes, processor: WindowProcessor | None = None) -> NDArray[np.float32]:
    """[t, channels, 2, steps_per_cell]."""
    processor, media = processor or made(), Media("timeseries", values)
    plan = processor.plan(media)
    (grid,) = plan.grids
    return processor.decode(media, plan).reshape(*grid[:2], *processor.cell_shape)


def channels_of(cells: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values and mask, [channels, steps] each, from [t, channels, 2, steps_per_cell]."""
    values, mask = cells.transpose(2, 1, 0, 3).reshape(2, cells.shape[1], -1)
    return values, mask


@pytest.mark.parametrize(("steps", "channels", "grid"), [(1, 1, (1, 1, 1)), (16, 2, (1, 2, 1)), (17, 3, (2, 3, 1))])
def test_a_window_takes_a_cell_for_each_channel_and_stretch_of_time(
    steps: int, channels: int, grid: tuple[int, int, int]
) -> None:
    values = np.random.default_rng(0).standard_normal((steps, channels))
    plan = made().plan(Media("timeseries", values))
    assert plan.layout == ("<timeseries>", Grid(*grid), "</timeseries>")
    assert decoded(values).shape == (grid[0], channels, 2, 16)


def test_cells_hold_each_value_at_its_channel_and_time_and_a_mask_beside_it() -> None:
    values, mask = channels_of(
        decoded(np.array([[1.0, 10], [2, 20], [3, NAN]]), made(steps_per_cell=2, normalization="none"))
    )
    assert values.tolist() == [[1, 2, 3, 0], [10, 20, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]


def test_one_row_of_values_is_one_channel() -> None:
    column = np.arange(20.0)
    assert np.array_equal(decoded(column), decoded(column[:, None]))


@pytest.mark.parametrize("how", ["channel", "window"])
def test_the_unit_of_the_sensors_and_their_zero_do_not_matter(how: Normalization) -> None:
    values = np.random.default_rng(0).standard_normal((50, 3))
    processor = made(normalization=how)
    np.testing.assert_allclose(decoded(1000 * values + 7, processor), decoded(values, processor), atol=1e-5)


def test_by_channel_each_has_unit_variance_and_over_the_window_their_ratio_stays() -> None:
    values = np.random.default_rng(0).standard_normal((64, 2)) * (1, 10)
    alone, _ = channels_of(decoded(values, made(normalization="channel")))
    together, _ = channels_of(decoded(values, made(normalization="window")))
    np.testing.assert_allclose(alone.std(axis=1), 1, rtol=1e-5)
    assert together.std(axis=1)[1] / together.std(axis=1)[0] == pytest.approx(values[:, 1].std() / values[:, 0].std())
    np.testing.assert_allclose(together.mean(axis=1), 0, atol=1e-6)


def test_missing_values_change_nothing_but_themselves() -> None:
    values = np.random.default_rng(0).standard_normal((32, 1))
    pieces = np.concatenate([values[:20], np.full((12, 1), NAN), values[20:]])
    whole, _ = channels_of(decoded(values))
    gapped, mask = channels_of(decoded(pieces))
    np.testing.assert_allclose(gapped[mask == 1], whole[0], atol=1e-6)
    assert not gapped[mask == 0].any()


def test_a_constant_channel_and_one_without_values_become_zeros() -> None:
    window = np.stack([np.full(30, 0.1), np.full(30, NAN), np.sin(np.arange(30))], axis=1)
    values, mask = channels_of(decoded(window, made(normalization="channel")))
    assert not values[:2].any()
    assert mask.sum(axis=1).tolist() == [30, 0, 30]


@pytest.mark.parametrize("how", ["channel", "window"])
@pytest.mark.parametrize(("offset", "unit"), [(1764550000.0, 1 / 30), (1764550000 * 10**9, 10**9 // 30), (0, 1e300)])
def test_times_since_1970_and_huge_values_keep_their_form(how: Normalization, offset: float, unit: float) -> None:
    steps = np.arange(45)
    window = offset + unit * steps
    values, _ = channels_of(decoded(window, made(normalization=how)))
    expected = (steps - steps.mean()) / steps.std()
    np.testing.assert_allclose(values[0, :45], expected, atol=1e-5)  # 2e-7 s is the precision of such seconds


def test_a_constant_channel_with_gaps_stays_zeros() -> None:
    window = np.full(30, 0.1)
    window[4:7] = NAN
    window[9] = np.nextafter(0.1, 1)
    assert not channels_of(decoded(window))[0].any()


def test_values_too_far_apart_are_a_bad_sample() -> None:
    with pytest.raises(SampleError, match=r"reaches 1.7e\+308: too large to be normalized"):
        decoded(np.array([-1.7e308, 1.7e308]))


def test_a_window_that_is_mostly_missing_is_a_bad_sample() -> None:
    window = np.array([1.0, NAN, NAN, 2.0])
    assert channels_of(decoded(window))[1].sum() == 2
    with pytest.raises(SampleError, match="50% of its values are missing"):
        decoded(window, made(max_missing=0.4))
    with pytest.raises(SampleError, match="100% of its values"):
        decoded(np.full(9, NAN))


def test_infinite_values_are_a_bad_sample() -> None:
    with pytest.raises(SampleError, match="infinite"):
        decoded(np.array([1.0, np.inf]))


def test_a_file_gives_what_its_array_gives(tmp_path: Path) -> None:
    window = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    window[3:5, 1] = NAN
    for content in (as_npy(window), as_csv(window), as_npy(np.asfortranarray(window)), as_npy(window.astype(">f8"))):
        file = tmp_path / "window"
        file.write_bytes(content)
        for source in (content, file):
            assert np.array_equal(decoded(source), decoded(window))  # type: ignore[arg-type]


def test_an_npy_file_is_planned_from_its_header(tmp_path: Path) -> None:
    file = tmp_path / "window.npy"
    file.write_bytes(as_npy(np.zeros((100, 2)))[:130])
    plan = made().plan(Media("timeseries", file))
    assert plan.grids == (Grid(7, 2, 1),)
    with pytest.raises(SampleError, match="promises 1600 bytes of values, only 2 are there"):
        made().decode(Media("timeseries", file), plan)


def test_a_clip_is_cut_by_the_rate_of_the_medium_or_of_the_processor() -> None:
    values = np.arange(100.0)
    clip = Media("timeseries", values, clip=(2.0, 4.0), rate_hz=10.0)
    assert made().plan(clip).recipe == WindowRecipe(20, 40, 1)
    file = Media("timeseries", as_npy(values), clip=(2.0, 40.0))
    assert made(rate_hz=10.0).plan(file).recipe == WindowRecipe(20, 100, 1)
    assert made(rate_hz=1.0).plan(replace(file, rate_hz=20.0)).recipe == WindowRecipe(40, 100, 1)
    with pytest.raises(SampleError, match=r"got None; write rate_hz into the object of the medium .* or set the proc"):
        made().plan(file)
    with pytest.raises(SampleError, match="no values in the clip 11-12 s"):
        made().plan(Media("timeseries", values, clip=(11.0, 12.0), rate_hz=10.0))


@pytest.mark.parametrize(
    ("source", "limit", "said"),
    [
        (np.zeros((60, 2)), {"max_values": 100}, r"120 values, the limit is 100 \(max_values\)"),
        (as_npy(np.zeros((60, 2))), {"max_values": 100}, r"120 values, the limit is 100 \(max_values\)"),
        (b"1,2\n" * 60, {"max_values": 100}, r"more than 100 values \(max_values\)"),
        (b"1\n" * 60, {"max_bytes": 100}, r"120 bytes, the limit is 100 \(max_bytes\)"),
        (np.zeros((2, 60)), {}, r"60 channels, the encoder takes 16 .*\[time, channels\]"),
        (b"", {}, "no bytes"),
        (b"\xff\xfe\x00", {}, "neither .npy nor UTF-8"),
        (np.zeros((3, 4, 5)), {}, r"shape \(3, 4, 5\), expected \[time\]"),
        (np.zeros((0, 4)), {}, r"shape \(0, 4\)"),
        (np.array(["a"]), {}, "type <U1, expected real numbers"),
        (as_npy(np.zeros(3, np.complex64)), {}, "values of type complex64"),
        (as_npy(np.zeros(8)) + b"1", {}, "promises 64 bytes of values, more are there"),
        (as_npy(np.zeros(8)).replace(b"(8,)", b"(-8)"), {}, "npy header is broken"),
    ],
)
def test_what_is_over_a_limit_or_no_window_is_a_bad_sample(
    source: NDArray[np.generic] | bytes, limit: dict[str, int], said: str
) -> None:
    with pytest.raises(SampleError, match=said):
        decoded(source, made(**limit))


def test_a_header_that_promises_terabytes_costs_nothing() -> None:
    lying = as_npy(np.zeros((8, 2))).replace(b"(8, 2), }       ", b"(8000000000,2),}")
    with pytest.raises(SampleError, match=r"16000000000 values, the limit"):
        decoded(lying)


def test_another_medium_than_was_planned_is_a_bad_sample() -> None:
    plan = made().plan(Media("timeseries", np.zeros((40, 2))))
    with pytest.raises(SampleError, match="changed since it was planned"):
        made().decode(Media("timeseries", np.zeros((39, 2))), plan)


@pytest.mark.parametrize("options", [{"max_missing": 1.0}, {"max_values": 0}, {"rate_hz": -1.0}, {"steps_per_cell": 0}])
def test_options_out_of_range_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        made(**options)

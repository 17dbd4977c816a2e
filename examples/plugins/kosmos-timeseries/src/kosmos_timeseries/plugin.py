"""What kosmos-timeseries brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import DatasetSpec, EncoderSpec, ModalitySpec, hookimpl

KOSMOS_API = 1
KOSMOS_TESTING = "kosmos_timeseries.conditions:CONDITIONS"


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="timeseries",
        target="kosmos_timeseries.windows:WindowProcessor",
        summary="Windows of sensor values, any length and channel count: CSV, .npy or arrays.",
        encoder="series-patches",
        connector="mlp",
        marks=("<timeseries>", "</timeseries>"),
        suffixes=(".csv", ".tsv"),  # not .npy: that suffix does not say what the array is of
        sample_set="machines",
        has_time=True,
        reads_rate=True,  # by which a clip in seconds is cut: no table states it
        arrays=(1, 2),
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(
        name="series-patches",
        target="kosmos_timeseries.encoder:PatchEncoder",
        summary="Transformer over patches of time, one channel a patch, to train from scratch.",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="machines",
        target="kosmos_timeseries.samples:MachinesSource",
        summary="Generated vibrations of machines: healthy, or imbalance, bearing fault or drift on an axis.",
        modalities=("timeseries",),
    )

"""What kosmos-pointcloud brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import DatasetSpec, EncoderSpec, ModalitySpec, hookimpl

KOSMOS_API = 1
KOSMOS_TESTING = "kosmos_pointcloud.conditions:CONDITIONS"


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="pointcloud",
        target="kosmos_pointcloud.clouds:CloudProcessor",
        summary="Sets of points of any size as groups of neighbours: .xyz, .ply, .npy or arrays.",
        encoder="point-groups",
        connector="mlp",
        marks=("<pointcloud>", "</pointcloud>"),
        suffixes=(".xyz", ".ply"),  # not .npy: that suffix does not say what the array is of
        sample_set="solids",
        arrays=(2,),
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(
        name="point-groups",
        target="kosmos_pointcloud.encoder:GroupEncoder",
        summary="PointNet in each group of neighbours, a transformer over groups, to train from scratch.",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="solids",
        target="kosmos_pointcloud.samples:SolidsSource",
        summary="Generated surfaces: one or two spheres, cubes, tori, cylinders or cones.",
        modalities=("pointcloud",),
    )

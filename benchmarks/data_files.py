"""The files that ``data.py`` decodes: copies of real ones, loose, in parquet, in tar, or put together to long films."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from workload import DATA

SPARE = 2.5
"""Copies for each file that is decoded: what is handed over before the clock runs is not timed."""
ROWS, ROWS_IN_GROUP = 8000, 100
"""Of pictures in parquet, more than a worker keeps, and in tar."""
FILMS = 60
"""Of two minutes."""


def copies(names: Sequence[str], most: int, count: int, folder: Path) -> list[Path]:
    """Folders with manifests of ``SPARE`` times ``count`` files, of which each source has its share.

    Args:
        names: of sources, each a folder of sample media; with ``/*.mp3`` behind it its files of that kind alone.
    """
    of = {name: DATA / name.partition("/*")[0] for name in names}
    rows = {name: _rows(of[name], name.partition("/*")[2])[:most] for name in names}
    often = SPARE * count / sum(map(len, rows.values()))
    for name, own in rows.items():
        place = folder / name.replace("/*.", "-")
        place.mkdir(parents=True)
        with (place / "manifest.jsonl").open("w") as manifest:
            for number, row in enumerate(islice(cycle(own), int(often * len(own)))):
                kind = next(key for key in ("image", "audio", "video") if key in row)
                copy = f"{number}{Path(row[kind]).suffix}"
                shutil.copyfile(of[name] / row[kind], place / copy)
                manifest.write(json.dumps({kind: copy, "text": row["text"]}) + "\n")
    return [folder / name.replace("/*.", "-") for name in names]


def _rows(folder: Path, suffix: str) -> list[dict[str, Any]]:
    rows = map(json.loads, (folder / "manifest.jsonl").read_text().splitlines())
    return [row for row in rows if row.get("text") and any(str(value).endswith(suffix) for value in row.values())]


def parquet_of_pictures(folder: Path) -> Path:
    """Four parquet files of pictures, as the hub has them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted((DATA / "images" / "coco").rglob("*.jpg"))
    for number in range(4):
        picked = [(row, files[row % len(files)]) for row in range(number, ROWS, 4)]
        # What stands behind the end of a JPEG is not read; without it parquet would store equal pictures once.
        pictures = [{"bytes": file.read_bytes() + row.to_bytes(4), "path": file.name} for row, file in picked]
        table = pa.table({"image": pictures, "text": [file.stem for _, file in picked]})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=ROWS_IN_GROUP)
    return folder


def tar_of_pictures(folder: Path) -> Path:
    """Four tar files of pictures and their names, as webdataset has them."""
    files = sorted((DATA / "images" / "coco").rglob("*.jpg"))
    for number in range(4):
        with tarfile.open(folder / f"{number:05d}.tar", "w") as archive:
            for row in range(number, ROWS, 4):
                file = files[row % len(files)]
                for suffix, content in ((".jpg", file.read_bytes()), (".txt", file.stem.encode())):
                    entry = tarfile.TarInfo(f"{row:06d}{suffix}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    return folder


def long_films(folder: Path) -> Path:
    """Films of two minutes, 320 x 180, with a keyframe every ten seconds: real ones one after another, until full."""
    import av

    files = sorted((DATA / "video").rglob("*.mp4"))
    rows = []
    for number in range(FILMS):
        rows.append(json.dumps({"video": f"{number}.mp4", "text": files[number % len(files)].stem}))
        if number:  # decoding one takes as long as decoding another
            shutil.copyfile(folder / "0.mp4", folder / f"{number}.mp4")
            continue
        with av.open(str(folder / "0.mp4"), "w") as film:
            stream = film.add_stream("libx264", rate=25)
            stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
            stream.options = {"preset": "veryfast", "x264-params": "keyint=250"}
            for at, frame in enumerate(islice(_frames_of(cycle(files)), 120 * 25)):
                shown = frame.reformat(width=320, height=180, format="yuv420p")
                shown.pts, shown.time_base, shown.pict_type = at, Fraction(1, 25), 0
                film.mux(stream.encode(shown))
            film.mux(stream.encode(None))
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return folder


def _frames_of(files: Iterable[Path]) -> Iterator[Any]:
    import av

    for file in files:
        with file.open("rb") as opened, av.open(opened) as film:
            yield from film.decode(video=0)

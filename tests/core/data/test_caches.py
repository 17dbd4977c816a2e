"""Whose folder of caches is used where several users share one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from kosmos.data import unpacked
from kosmos.data.caches import cache_folder, why_nowhere

OTHER = 4242


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("KOSMOS_CACHE", str(folder))
    return folder


@pytest.fixture
def as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)


def test_a_folder_of_ones_own_holds_the_caches_themselves(top: Path) -> None:
    assert cache_folder("unpacked") == top / "unpacked"
    (top / "unpacked").mkdir()
    assert cache_folder("unpacked") == top / "unpacked"


@pytest.mark.usefixtures("as_other")
def test_in_a_folder_of_somebody_else_each_user_has_folders_with_their_number(top: Path) -> None:
    assert cache_folder("unpacked") == top / f"unpacked-{OTHER}"


@pytest.mark.usefixtures("as_other")
def test_a_disk_that_calls_this_user_by_another_number_keeps_its_folder(top: Path) -> None:
    """As one that has root of other machines as nobody."""
    (top / "scans").mkdir()
    assert cache_folder("scans") == top / "scans"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_has_written_is_not_trusted(top: Path, tmp_path: Path) -> None:
    for name in ("unpacked", f"unpacked-{os.geteuid()}"):
        (top / name).mkdir(mode=0o777)
        os.chown(top / name, OTHER, OTHER)
    assert cache_folder("unpacked") is None
    assert why_nowhere("unpacked").startswith(f"{top}/unpacked-0 is of another user; name a folder of your own in $KOS")
    (tmp_path / "rows.txt.gz").write_bytes(gzip.compress(b"text"))
    with pytest.raises(OSError, match=r"there is no folder to unpack it into: .*unpacked-0 is of another user"):
        unpacked.unpacked(tmp_path / "rows.txt.gz")


def test_why_there_is_no_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", "")
    assert (cache_folder("unpacked"), why_nowhere("unpacked")) == (None, "$KOSMOS_CACHE is empty; name a folder there")
    monkeypatch.delenv("KOSMOS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache_folder("unpacked") is None
    assert why_nowhere("unpacked").endswith("name a folder in $KOSMOS_CACHE")

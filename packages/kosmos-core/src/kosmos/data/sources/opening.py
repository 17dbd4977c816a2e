"""Open a source of documents by what the user wrote: a registered name, a folder, a file or a hub id."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kosmos.data.document import Source
from kosmos.data.sources import folders
from kosmos.data.sources.bare import bare_media
from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.corpora import naming_corpora, open_corpus
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.delimited import index_delimited
from kosmos.data.sources.episodes import naming_episodes
from kosmos.data.sources.file_lists import refuse_list
from kosmos.data.sources.file_names import COMPRESSED, rows_suffix, suffix_of
from kosmos.data.sources.file_options import read_options
from kosmos.data.sources.gathered import Columns, one_each
from kosmos.data.sources.given import refuse_noted
from kosmos.data.sources.index_files import refuse_media_beside
from kosmos.data.sources.joined import join
from kosmos.data.sources.json_list import hold_lines, index_json
from kosmos.data.sources.jsonl import JsonlTable, index_jsonl
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.links_out import refuse_links_out
from kosmos.data.sources.misnamed import neighbour, refuse_place, refuse_several
from kosmos.data.sources.not_read import NO_BYTES, is_empty
from kosmos.data.sources.offering import Offering
from kosmos.data.sources.pairs import find_pairs
from kosmos.data.sources.registered import Components, open_registered
from kosmos.data.sources.request import Request, checked_root, finish
from kosmos.data.sources.shards import open_each
from kosmos.data.sources.since import lacks
from kosmos.data.sources.splits import Split, splits_of_data
from kosmos.data.sources.textfiles import index_prompts, index_text
from kosmos.data.sources.texts_of_names import with_texts_beside
from kosmos.data.sources.token_numbers import told_of_files
from kosmos.data.sources.typed_columns import layout_of
from kosmos.data.unpacked import unpack_each, without_packing
from kosmos.errors import ConfigError, DataError
from kosmos.names import did_you_mean as nearest_name
from kosmos.names import listed
from kosmos.patterns import is_pattern, matched, pattern_name, told_of_brackets

if TYPE_CHECKING:
    from kosmos.data.sources.hub import HubTable

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")


class Parts(Protocol):
    """A data set that was opened, of which both parts can be had."""

    def part(self, split: Split, share: float) -> Source:
        """The documents that are trained on or held out; of data that state no split ``share`` is held out.

        Raises:
            EmptySplit: no document belongs to this part.
        """
        ...

    def whole(self) -> Source:
        """All documents, in their order."""
        ...


def open_source(path: str, *, split: Split, held_out: float = 0.05, **given: Any) -> Source:
    """The documents of one part of a data set.

    Args:
        path: as in ``open_parts``.
        split: ``train`` or ``held_out``.
        held_out: share of the rows held out where the data state no split.
        given: as in ``open_parts``.

    Raises:
        ConfigError: a wrong template, column role or option.
        DataError: nothing there, or nothing in it that can be used.
    """
    return open_parts(path, **given).part(split, held_out)


def open_parts(
    path: str,
    *,
    registry: Components,
    modalities: Sequence[str],
    name: str | None = None,
    template: str | None = None,
    columns: Columns | None = None,
    root: Path | None = None,
    options: Mapping[str, Any] | None = None,
    where: str = "",
    asked: bool = False,
    choices: Offering | bool = False,
    chosen: Chosen | None = None,
    kept: Chosen | None = None,
    written: Sequence[str] = (),
) -> Parts:
    """A data set, whose every row is looked at once for both parts.

    Args:
        path: name of a registered dataset; a folder with ``manifest.jsonl`` or ``metadata.csv``; a folder of media with
            texts of their names, or in class folders; a ``.jsonl``, ``.parquet``, ``.csv``, ``.tsv``, ``.tar`` or
            ``.txt`` file, a folder of them or a pattern of their names (``kosmos.patterns``); a ``.json`` file; a
            Hugging Face dataset folder, or a hub id ``namespace/name`` or ``namespace/name:config``.
        registry: the installed plugins.
        modalities: those of the run; rows with media of others are left out and counted in ``left_out``.
        name: what metrics call it; None takes the last part of the path.
        template: layout of a document, such as ``"[image:photo] Q: {question} A: → {answer}"``.
        columns: role or modality to the column that holds it, where that is named otherwise; of media several, too.
        root: folder that the media which rows name are in; None is that of the file.
        options: of a registered dataset, or ``chunk_chars``, ``max_text_bytes``, ``learn``, ``missing_media``,
            ``long_documents``, ``field``, ``base64``, ``delimiter`` and ``header`` of files.
        where: where this source stands in the run file, such as ``data.sources[0]``; begins messages on its options.
        asked: the documents are there to be continued: none needs anything to learn, and media need no texts.
        choices: they are questions that offer several answers (``kosmos.data.sources.choices``), or how they do.
        chosen: which rows are held out; None leaves it to the data, or to a share.
        kept: which rows are read; None is all.
        written: modalities of which the run has a codec: what the assistant says in them is learned.

    Raises:
        ConfigError: a wrong template, column role or option.
        DataError: nothing there, or nothing in it that can be used.
    """
    if path in registry.specs("dataset"):
        if template is not None or columns or root is not None or chosen is not None or kept is not None:
            which = "template, columns, root and rows do not apply to it, nor does a held_out by a column"
            raise ConfigError(f"dataset {path!r} makes its own documents: {which}")
        return open_registered(path, registry, modalities, name, options or {}, where)
    named, series = one_each(columns or {})
    request = Request(
        path=path,
        name=name or short_name(path),
        modalities=tuple(modalities),
        written=tuple(written),
        specs=registry.specs("modality"),
        template=template,
        columns=named,
        series=series,
        root=checked_root(root, where),
        where=where,
        options=read_options(options or {}, where),
        asked=asked,
        choices=Offering() if choices is True else choices or None,
        chosen=chosen,
        kept=kept,
    )
    return _open_path(request, registry)


def short_name(path: str) -> str:
    """The last part of a path, without a suffix of files, as text that can be written anywhere."""
    if is_pattern(path):
        return pattern_name(path)
    last = (Path(path.rstrip("/")).name or path).encode("utf-8", "replace").decode()
    return re.sub(r"\.(jsonl?|ndjson|parquet|[ct]sv|tar|txt)$", "", without_packing(last))


def _open_path(request: Request, registry: Components) -> Parts:
    path = Path(request.path)
    try:
        there = bool(request.path) and path.exists()
        folder, file = there and path.is_dir(), there and path.is_file()
    except (OSError, ValueError):
        there = folder = file = False
    if folder:
        with naming_episodes(path, folders.suffix_table(request.specs, request.modalities, ())):
            return _from_folder(path, request, registry)
    if file:
        if (corpus := open_corpus(path.parent, [path.name], request, registry, is_file=True)) is not None:
            return corpus
        return _from_files(path.parent, [path.name], rows_suffix(path.name), request)
    if there:
        raise DataError(f"data {request.path!r}: neither a file nor a folder; a pipe has to be written to a file first")
    refuse_noted(request.path)
    if is_pattern(request.path):
        return _from_pattern(request)
    if "://" in request.path:
        advice = "download it and name the file or folder, or give a hub id (namespace/name)"
        raise DataError(f"data {request.path!r}: addresses are not read; {advice}")
    refuse_several(request, registry.specs("dataset"))
    near = told_of_brackets(request.path) or neighbour(path)
    beside = f" ({near})" if near else ""
    if rows_suffix(path.name) in (*folders.DATA, ".json"):
        raise DataError(f"data {request.path!r}: no such file{'; ' + near if near else ''}")
    if _HUB_ID.fullmatch(request.path):
        refuse_place(path, near)
        from kosmos.data.sources.hub import open_hub

        try:
            parts = open_hub(request.path)
        except DataError as error:  # it may have been meant for a folder
            line = f"data {request.path!r}: no such file or folder{beside}, and as a dataset of the hub: {error}"
            raise type(error)(line) from error
        return _from_hub(parts, request)
    datasets = registry.specs("dataset")
    hint = nearest_name(request.path, datasets) or listed(datasets)
    raise DataError(
        f"data {request.path!r}: no registered dataset ({hint}), no file or folder{beside}, "
        f"and no hub id (namespace/name){registry.why_absent('dataset', request.path)}"
    )


def _from_folder(path: Path, request: Request, registry: Components) -> Parts:
    if (path / folders.MANIFEST).is_file():
        refuse_links_out(path, [folders.MANIFEST], request.root)
        return _from_manifest(path / folders.MANIFEST, request)
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        from kosmos.data.sources.hub import open_saved

        return _from_hub(open_saved(path), request)
    files = folders.list_files(path)
    if (found := folders.metadata_files(path, files)) is not None:
        refuse_links_out(path, found[1], request.root)
        folders.count_elsewhere(files, found[1], request.left_out)
        return _from_files(path, found[1], found[0], request)
    if (corpus := open_corpus(path, files, request, registry)) is not None:
        return corpus
    layout = request.layout()
    suffixes = folders.suffix_table(request.specs, request.modalities, layout.used(request.known))
    wanted = set(request.modalities)
    if lists := _json_alone(path, files, suffixes):
        refuse_links_out(path, lists, request.root)
        _refuse_lists(path, lists)
        folders.count_beside(files, lists, suffixes, request.left_out)
        return _from_files(path, lists, ".jsonl", request)
    if (pairs := find_pairs(path, files, suffixes, wanted, request.left_out, request.timed)) is not None:
        layout.check({*pairs.modalities.values(), "text"})
        return finish(replace(pairs, below=_below(path, request.root)), layout, request, name_files=False)
    if request.asked and (media := bare_media(path, files, suffixes, request.left_out, wanted)) is not None:
        layout.check(set(media.modalities.kinds))
        return finish(replace(media, below=_below(path, request.root)), layout, request, name_files=False)
    if (classes := folders.class_folders(path, files, suffixes, request.left_out)) is not None:
        with naming_corpora(path, files, registry):
            folders.refuse_rows_beside(classes, files)
            classes = with_texts_beside(classes, files, asked=request.asked)
        layout.check(classes.columns)
        return finish(replace(classes, below=_below(path, request.root)), layout, request, name_files=False)
    if (found := folders.data_files(path, files)) is not None:
        refuse_links_out(path, found[1], request.root)
        if found[0] == ".txt":
            refuse_media_beside(path, files, [s for s, claims in suffixes.items() if set(claims) & wanted])
        folders.count_beside(files, found[1], () if found[0] == ".txt" else suffixes, request.left_out)
        return _from_files(path, found[1], found[0], request)
    raise DataError(f"{path}: {folders.what_lacks(files, suffixes)}")


def _from_pattern(request: Request) -> Parts:
    """As a folder that holds the files of a pattern, and no others."""
    folder, names = matched(request.path)
    if lists := _json_alone(folder, names, ()):
        lists = lists if lacks("patterns") else folders.with_compressed(lists, names, ".json")
        if len(lists) > 1:
            _refuse_lists(folder, lists)
        return _from_files(folder, lists, ".jsonl" if len(lists) > 1 else ".json", request)
    suffix, files = folders.named_files(folder, names) or (rows_suffix(names[0]), names)
    folders.count_beside(names, files, (), request.left_out)
    return _from_files(folder, files, suffix, request)


def _json_alone(path: Path, files: Sequence[str], suffixes: Collection[str]) -> list[str]:
    """The .json files of a folder, where they are all that it holds of data and media."""
    found = [name for name in files if rows_suffix(name) == ".json" and not folders.tells_of_data(name)]
    lists = [name for name in found if suffix_of(name) == ".json"] or found
    is_alone = lists and folders.data_files(path, files) is None and not any(suffix_of(n) in suffixes for n in files)
    return lists if is_alone else []


def _refuse_lists(path: Path, lists: Sequence[str]) -> None:
    """Raises DataError where .json files do not hold a row a line: each is a list of its own, or is about another."""
    paths = [path / name for name in lists]
    unpack_each(paths)
    if not hold_lines(paths):
        each = listed((f"--data {path / name}" for name in lists), at_most=3)
        raise DataError(f"{path}: a folder of .json files is not read as a whole; name each file as a source ({each})")


def _from_manifest(path: Path, request: Request) -> Parts:
    layout = request.layout()
    if not isinstance(layout, DefaultLayout):
        return finish(index_jsonl([path]), layout, request, rows_vary=True)
    layout = replace(layout, manifest=True)
    table = folders.open_manifest(path, layout, request.left_out, request.options.chunk_chars)
    return finish(table, layout, request, rows_vary=True)


def _from_files(folder: Path, names: Sequence[str], suffix: str, request: Request) -> Parts:
    paths, splits = [folder / name for name in names], splits_of_data(names)
    unpack_each(paths)
    if suffix in (".jsonl", *DELIMITED):
        layout = request.layout()

        def rows_of(path: Path) -> JsonlTable:
            if suffix not in DELIMITED:
                return index_jsonl([path])
            return index_delimited(path, request.options.delimiter, request.options.header).read_by(layout)

        tables = open_each(paths, rows_of)
        if len(paths) > 1:  # of one alone it is said that it holds no rows
            request.left_out.update(NO_BYTES for t, p in zip(tables, paths, strict=True) if is_empty(t, p))
        return finish(join(tables, splits), layout, request, rows_vary=True)
    if suffix == ".txt":
        layout = request.layout()
        layout.check(("text",))
        if len(paths) == 1 and not request.asked:
            refuse_list(paths[0])
        if request.asked and not request.where and paths == [Path(request.path)]:  # of a run's own the pieces are known
            return finish(index_prompts(paths[0]), layout, request)
        return finish(index_text(paths, splits, request.options.chunk_chars), layout, request)
    if suffix == ".parquet":
        return _from_parquet(paths, splits, request)
    if suffix == ".tar":
        return _from_tar(paths, splits, request)
    if suffix == ".json":
        return finish(index_json(paths[0], request.options.field), request.layout(), request, rows_vary=True)
    if numbers := told_of_files(names):
        raise DataError(f"{paths[0]}: {numbers}")
    if suffix in COMPRESSED:
        raise DataError(f"{paths[0]}: such compressed files are not read; decompress it first ({COMPRESSED[suffix]})")
    raise DataError(
        f"{folder / names[0]}: expected a .jsonl, .json, .parquet, .csv, .tsv, .tar or .txt file, or a folder"
    )


def _from_parquet(paths: Sequence[Path], splits: Sequence[Split | None], request: Request) -> Parts:
    from kosmos.data.sources.parquet import ParquetTable

    tables = open_each(paths, ParquetTable)
    layout = layout_of(tables[0], request)
    for table in tables:
        table.use(layout)
    return finish(join(tables, splits), layout, request)


def _from_tar(paths: Sequence[Path], splits: Sequence[Split | None], request: Request) -> Parts:
    from kosmos.data.sources.tar import open_tar

    layout = request.layout()
    claims = folders.suffix_table(request.specs, request.modalities, layout.used(request.known))
    tables = open_each(paths, lambda path: open_tar(path, claims, layout, request.left_out))
    return finish(join(tables, splits), layout, request, rows_vary=True)


def _below(folder: Path, root: Path | None) -> str:
    """A folder of media as it is named from ``root``, into all of which links in it may lead, where there is one.

    Raises:
        ConfigError: it is not in there.
    """
    if root is None:
        return ""
    try:
        inner = folder.resolve().relative_to(root.resolve())
    except (ValueError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"{folder}: root {root} does not hold it; of a folder of media root is a folder around it, into which "
            "links may lead; leave it out where there are no such links"
        ) from error
    return "".join(f"{part}/" for part in inner.parts)


def _from_hub(parts: list[tuple[str, HubTable]], request: Request) -> Parts:
    from kosmos.data.sources.hub import join_splits

    layout = layout_of(parts[0][1], request)
    return finish(join_splits(parts, request.path, layout), layout, request)

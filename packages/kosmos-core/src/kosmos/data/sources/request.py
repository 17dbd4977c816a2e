"""What was asked of a source of files, and the last step of opening one: a look at every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Source
from kosmos.data.fingerprint import fingerprint
from kosmos.data.open_files import forget_all
from kosmos.data.sources import folders
from kosmos.data.sources.arrays import Taken
from kosmos.data.sources.choice_columns import ChoiceColumns
from kosmos.data.sources.choices import ChoiceLayout
from kosmos.data.sources.chosen import Chosen, rows_by, without_rows
from kosmos.data.sources.delimited import DelimitedTable
from kosmos.data.sources.empty_rows import empty_rows
from kosmos.data.sources.examine import HELD_OUT, Examiner, choose_rows
from kosmos.data.sources.facts import Facts
from kosmos.data.sources.file_column import FILE_NAME
from kosmos.data.sources.file_options import FileOptions
from kosmos.data.sources.first_line import refuse_row_for_names, told_of_names
from kosmos.data.sources.forms import ASKS
from kosmos.data.sources.gathered import Columns, as_given, gathering, listed_columns, one_each, refuse_in_template
from kosmos.data.sources.index_files import mentioned_beside
from kosmos.data.sources.joined import Rooted
from kosmos.data.sources.json_list import JsonListTable, begins_list
from kosmos.data.sources.json_object import told_of_row, told_of_rows
from kosmos.data.sources.jsonl import JsonlTable
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import ROLES, DefaultLayout
from kosmos.data.sources.learned_numbers import learned_numbers
from kosmos.data.sources.offering import Offering
from kosmos.data.sources.own_columns import NAMES_FILES, add_modalities, to_paste, whole_columns
from kosmos.data.sources.pairs_of_answers import PairLayout, may_hold_pairs
from kosmos.data.sources.remarks import may_be_pieces, names_of_absent, of_rows
from kosmos.data.sources.right_answers import ANSWERS
from kosmos.data.sources.roles import check_roles
from kosmos.data.sources.scan_cache import ScanRecord
from kosmos.data.sources.source import RowSource, Table
from kosmos.data.sources.spaces import stray_spaces
from kosmos.data.sources.split_lists import listed_in_vain, refuse_cut
from kosmos.data.sources.split_words import folders_in_vain, splits_in_vain
from kosmos.data.sources.splits import CHOSEN, GROUP, KEPT, Split, hash_of_place, with_meaning
from kosmos.data.sources.template import parse_template
from kosmos.data.sources.typed_columns import unread_beside
from kosmos.data.sources.unnamed import UnnamedMedia, names_file
from kosmos.data.sources.weights import WEIGHT
from kosmos.data.sources.well_known import WELL_KNOWN
from kosmos.data.sources.wishes import WishesOf
from kosmos.errors import ConfigError, DataError, EmptySplit
from kosmos.names import listed


@dataclass(frozen=True)
class Request:
    """What was asked for, as all ways of opening need it."""

    path: str
    name: str
    modalities: tuple[str, ...]
    specs: Mapping[str, Any]
    """The installed modalities."""
    template: str | None
    columns: Mapping[str, str]
    options: FileOptions
    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What of ``columns`` is several columns of the table."""
    root: Path | None = None  # where the media are that rows name, if not beside the file
    where: str = ""
    """Where the source stands in the run file; empty where it does not."""
    left_out: Counter[str] = field(default_factory=Counter)
    asked: bool = False  # documents to be continued
    choices: Offering | None = None  # how they offer answers, of questions that do
    chosen: Chosen | None = None  # which rows are held out
    kept: Chosen | None = None  # which are read; None is all
    written: tuple[str, ...] = ()  # as of Taken

    @property
    def known(self) -> tuple[str, ...]:
        """Every modality that is asked for or installed."""
        return tuple(dict.fromkeys((*self.modalities, *self.specs)))

    @property
    def timed(self) -> tuple[str, ...]:
        """Modalities whose media have time."""
        return tuple(name for name in self.known if name in self.specs and self.specs[name].has_time)

    @property
    def rated(self) -> tuple[str, ...]:
        """Modalities whose processors read the rates that rows state of files."""
        return tuple(name for name in self.known if name in self.specs and self.specs[name].reads_rate)

    def layout(self, media_columns: Columns | None = None) -> Layout:
        """How rows become documents.

        Args:
            media_columns: modality to column, or to several, where the table's own types tell it.
        """
        lacks = "a question needs each medium" if self.choices else "a template has a place for each medium"
        self.options.check_pages(self.where, lacks if self.choices or self.template is not None else "")
        typed, series = one_each(media_columns or {})
        columns, series = {**typed, **self.columns}, {**series, **self.series}
        check_roles(columns, self.known, choices=bool(self.choices))
        suffixes, timed = folders.suffix_table(self.specs, self.modalities, ()), self.timed
        taken = Taken.of(self.specs, self.written)
        if self.choices:
            own, others = ChoiceColumns.of(columns)
            asks = ChoiceLayout(self.known, others, False, suffixes, True, timed, taken, own=own, by=self.choices)
            return gathering(asks, series, base64=self.options.base64)
        if self.asked:
            columns.pop(WEIGHT, None)  # of what is learned, which such rows need not say
        columns |= {role: chosen.column for role, chosen in ((CHOSEN, self.chosen), (KEPT, self.kept)) if chosen}
        may_hold = may_hold_pairs(columns, template=self.template is not None)
        if self.template is not None:
            refuse_in_template(self.series, base64=self.options.base64)
            return parse_template(self.template, self.known, columns, timed, suffixes, taken)
        if ANSWERS in columns and (other := next((role for role in ASKS.values() if role in columns), None)):
            raise ConfigError(
                f"columns.{other}: columns.answers says what is learned, too; name one of them, and as references what "
                "else is right"
            )
        last = self.options.learn == "last"
        made = PairLayout if may_hold else DefaultLayout
        more = {"asked": self.asked, "learn_last": last, "spares": self.options.spares, "cuts": self.options.cuts}
        rows = made(self.known, columns, suffixes=suffixes, timed=timed, taken=taken, **more)
        return gathering(rows, series, base64=self.options.base64)


def checked_root(root: Path | None, where: str) -> Path | None:
    """The folder of the media that rows name. Raises ConfigError where there is none."""
    if root is not None and not root.is_dir():
        before = f"{where}." if where else ""
        raise ConfigError(f"{before}root: {root} is no folder; name the one that the rows' media are in")
    return root


MOST_LOOKED_AT = 64
"""Rows that tell whether those of a table have ids."""


@dataclass(frozen=True)
class Examined:
    """A table of which every row was looked at, which is what opening takes its time for (``Parts``)."""

    request: Request
    table: Table
    layout: Layout
    facts: Facts
    left_out: dict[str, int]
    name_files: bool = True
    """Whether rows name their media; else the files of a folder are its rows."""

    @cached_property
    def places(self) -> tuple[str, ...]:
        """As of a ``RowSource``."""
        path = Path(self.request.path)
        found = (path if path.is_dir() else path.parent, self.request.root)
        return tuple(str(place.absolute()) for place in dict.fromkeys(found) if place is not None and place.is_dir())

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """As of a ``RowSource``."""
        named = names_of_absent(
            self.facts.not_there, partial(_meant, self.request), self.request.modalities,
            has_root=self.request.root is not None,
        )  # fmt: skip
        stated = self.request.chosen is not None or HELD_OUT in self.facts.splits
        lists = () if stated or self.request.asked else (
            *listed_in_vain(self.table), *folders_in_vain(self.table), *splits_in_vain(self.layout, self.table),
        )  # fmt: skip
        pieces = may_be_pieces(self.layout, self.table, [m for m in self.request.timed if m in self.facts.held])
        numbers = () if self.request.asked else learned_numbers(self.layout, self.table)
        beside = (*lists, *stray_spaces(self.layout, self.table), *mentioned_beside(self.table), *numbers)
        beside = (*beside, *empty_rows(self.table), *unread_beside(self.layout, self.table, self.request.known))
        found = (*named, *self.facts.said, *of_rows(self.layout, self.table, self.facts.held), *beside, *pieces)
        forget_all()
        return found

    @cached_property
    def by_place(self) -> bool:
        """As of a ``RowSource``: no split is stated, and rows that are looked at have no id."""
        rows = np.flatnonzero(self.facts.usable)
        if HELD_OUT in self.facts.splits[rows]:
            return False
        looked_at = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_LOOKED_AT), dtype=np.int64)].tolist()
        nameless = sum(int(self.facts.hashes[row]) == hash_of_place(row) for row in looked_at)
        return 10 * nameless > len(looked_at)  # a few may be rows that cannot be read

    def part(self, split: Split, share: float) -> Source:
        rows = choose_rows(self.facts, split, share, together=GROUP in self.layout.columns)
        if len(rows) == 0:
            path, usable = self.request.path, int(self.facts.usable.sum())
            raise EmptySplit(f"{path}: its {split} part is empty: none of its {usable} rows belong to it")
        return self._of(rows, weighs=split == "train")

    def whole(self) -> Source:
        return self._of(np.flatnonzero(self.facts.usable))

    def _of(self, rows: NDArray[np.int64], *, weighs: bool = False) -> Source:
        most, held = self.request.options.max_text_bytes, frozenset(self.facts.held)
        folder = str(Path(self.request.path).parent)
        is_free = self.name_files and self.request.root is None and self.request.where
        root_field = f"{self.request.where}.root" if is_free else ""
        return RowSource(
            self.request.name, self.table, self.layout, rows, self.left_out, most, held, folder, root_field,
            self.facts.wishes, _beside(self.request, self.facts, self.layout),
            fingerprint(self.facts.hashes[rows].tobytes(), self.table.holds()),
            places=self.places,
            remarks=self.remarks,
            weighs=weighs,
            has_time=bool(held.intersection(self.request.timed)),
            rated=self.request.rated,
            by_place=self.by_place,
        )  # fmt: skip


def finish(
    table: Table, layout: Layout, request: Request, *, rows_vary: bool = False, name_files: bool = True
) -> Examined:
    """Look at every row.

    Args:
        name_files: whether rows name their media; else the files of a folder are its rows.
        rows_vary: each row has columns of its own, so nobody has looked at them yet.

    Raises:
        DataError: no row can be used, or rows are held out by a list that was not read to its end.
    """
    refuse_cut(table, request.chosen)
    request.options.check_pages(request.where, "" if name_files else "a file of a folder is all that its text is of")
    request.options.check_table(
        request.where, is_table=isinstance(getattr(table, "tables", [table])[0], DelimitedTable)
    )
    if request.options.field and not isinstance(table, JsonListTable):
        raise ConfigError(f"{request.path}: options.field is of a .json file alone, whose rows are a list in an object")
    if request.root is not None:
        table = Rooted(table, request.root)
    facts = _facts(table, layout, request, rows_vary=rows_vary)
    left_out = dict(sorted((Counter(facts.left_out) + request.left_out).items()))
    if not np.any(facts.usable):
        refuse_row_for_names(table, request.path, folders.suffix_table(request.specs, request.modalities, ()))
        _refuse(request, left_out, facts.unnamed, partial(whole_columns, request.columns, layout=layout, table=table))
    if facts.readable == 0:
        listed_in = Path(request.path)
        misnamed = listed_in.suffix != ".json" and begins_list(listed_in)
        advice = told_of_rows(table, listed_in, request.options.field)
        if misnamed:
            advice = f"; it is one JSON list, as a .json file: name it {listed_in.stem}.json"
        what = f"{request.path}: none of its {len(table)} rows can be read"
        raise DataError(f"{what}; the first: {facts.first_error}{advice}")
    return Examined(request, table, layout, facts, left_out | without_rows(request.kept, facts.passed), name_files)


Whole = Callable[[Mapping[str, str]], dict[str, str]]
"""All columns to be named, of those of media."""
MOST_ASKED = 256
"""Files that are looked for again where a record hangs on whether they are there."""


def _facts(table: Table, layout: Layout, request: Request, *, rows_vary: bool) -> Facts:
    """Of every row, from the record of an earlier look where there is one."""
    record = None
    if (extent := table.extent()) is not None:
        by = rows_by(request.chosen, request.kept, layout.columns)
        record = ScanRecord(repr((layout, sorted(request.modalities), request.rated, extent.rows, *by)), extent.files)
        if (known := record.read()) is not None:
            facts = Facts.of_record(known)
            if all(names_file(name, Path(root)) == there for root, name, there in facts.asked):
                return facts
    unnamed = check = None
    wishes = WishesOf(layout, request.timed, Taken.of(request.specs, request.written))
    if rows_vary:
        checks = _check_named if isinstance(table, DelimitedTable) else _check_list
        check = partial(checks, layout, table)
        if isinstance(layout, DefaultLayout):
            columns = with_meaning(layout.columns).values()
            named = (*request.known, *(f"{name}s" for name in request.known), *columns, *listed_columns(layout))
            unnamed = UnnamedMedia((*named, *ROLES, FILE_NAME, *WELL_KNOWN), layout.suffixes)
    examiner = Examiner(
        layout, request.modalities, layout.columns, unnamed, check, wishes, request.chosen, request.kept
    )
    facts = examiner.examine(table)
    if unnamed is not None:
        facts = replace(facts, asked=unnamed.asked, unnamed=unnamed.suffixes, not_there=unnamed.not_there)
    if record is not None and len(facts.asked) <= MOST_ASKED:
        record.write(facts.record())
    return facts


def _check_list(layout: Layout, table: Table, columns: Collection[str]) -> None:
    """Raises DataError as the layout does, of a file that may be one object around a list of rows."""
    try:
        layout.check(columns)
    except DataError as error:
        own: object = getattr(table, "table", table)  # of one whose media are in another folder
        advice = ""
        if isinstance(own, JsonlTable) and not isinstance(own, JsonListTable) and len(own) == 1:
            advice = told_of_row(own.row(0), own.files[0])
        raise DataError(f"{error}{advice}") from error


def _check_named(layout: Layout, table: Table, columns: Collection[str]) -> None:
    """Raises DataError as the layout does, of a file whose first line should name its columns, and may be a row."""
    del table
    try:
        layout.check(columns)
    except DataError as error:
        raise DataError(f"{error}{told_of_names(columns, str(error))}") from error


def _refuse(request: Request, left_out: Mapping[str, int], unnamed: Mapping[str, str], whole: Whole) -> NoReturn:
    """Say why no row of the source is of use to this run. ``unnamed`` are columns of files with their suffixes."""
    of_manifest = (Path(request.path) / folders.MANIFEST).is_file()
    files = [what for what in left_out if folders.counts_files(what)]
    rows = [what for what in left_out if of_manifest or what not in files]
    passed = "" if of_manifest or not files else f"; passed over: {listed(f'{left_out[w]} ({w})' for w in files)}"
    if not rows:
        raise DataError(f"{request.path}: holds no rows{passed}")
    counts = ", ".join(f"{left_out[what]} with {what}" for what in rows)
    installed = [what for what in rows if what in request.specs]
    absent = [what for what in rows if what not in installed and what not in files]
    advice = [add_modalities(installed)] if installed else []
    if absent:
        advice.append(_name_columns(request, absent, unnamed, whole))
    if of_manifest and files:
        advice.append("open data files that a manifest lists by themselves")
    raise DataError(f"{request.path}: no row is left ({counts}); {'; '.join(advice)}{passed}")


def _name_columns(request: Request, columns: Sequence[str], unnamed: Mapping[str, str], whole: Whole) -> str:
    """What to do about rows with media in columns that no role or modality has."""
    meant = _meant(request, columns, unnamed)
    if not meant and (one := next(iter(request.modalities), None)) is not None:
        meant = {one: [columns[0]]}
    text = whole({}).get("text", "text")
    ways = [] if request.modalities else [f'for the text alone give a template (template: "{{{text}}}")']
    if meant:
        absent = [name for name in meant if name not in request.modalities]
        all_named = whole({name: found[0] for name, found in meant.items()})
        it = "the column" if len(all_named) == 1 else "the columns"
        shown = to_paste(request.path, as_given(all_named, request.series))
        ways.append(f"{add_modalities(absent)}; " * bool(absent) + f"name {it}: {shown}")
        for name, found in meant.items():
            if len(found) > 1:
                ways[-1] += f", and write what {listed(found)} hold into one list of {name}"
    # The column's name may be that of a modality whose files have the suffixes of another.
    column = columns[0]
    of = next((name for name, found in _meant(request, columns, unnamed).items() if column in found), None)
    if of is None or (not NAMES_FILES.search(column) and of not in column.lower()):
        plugin = next((name for name in WELL_KNOWN.values() if name in column.lower()), column)
        ways.append(f"install the plugin for {plugin}")
    return ", or ".join(ways)


def _meant(
    request: Request, columns: Sequence[str], unnamed: Mapping[str, str], held: Collection[str] = ()
) -> dict[str, list[str]]:
    """The installed modalities of the files that columns name, by their suffixes, else by the columns' names: each with
    its columns. Beside files of one modality, such as a film, a column that is called as another has that: its sound.

    Args:
        unnamed: the suffixes.
        held: modalities that other columns hold.
    """
    claims = folders.suffix_table(request.specs, request.modalities, ())
    found: dict[str, list[str]] = {}
    own = {column: claims.get(unnamed.get(column, ""), ()) for column in columns}
    called = {
        column: next((name for name in request.known if name in request.specs and name in column.lower()), "")
        for column in columns
    }
    for column in sorted(columns, key=lambda column: called[column] not in own[column]):  # the surest first
        meant = next(iter(own[column]), called[column])
        if called[column] and (called[column] in own[column] or meant in found or meant in held):
            meant = called[column]
        if meant:
            found.setdefault(meant, []).append(column)
    return found


def _beside(request: Request, facts: Facts, layout: Layout) -> dict[str, str]:
    """Columns of files that stand beside media and are not read, with what to do."""
    advice: dict[str, str] = {}
    unread = sorted({*facts.beside} - layout.used(facts.beside))  # others may be gathered by their numbers
    for modality, columns in _meant(request, unread, facts.unnamed, facts.held).items():
        if modality in facts.held:
            said = f"write the files of {listed(columns)} into {modality}, which may be a list"
        else:
            absent = "" if modality in request.modalities else f", in a run with {modality} among its --modalities"
            said = f"name the column (columns: {{{modality}: {columns[0]}}}){absent}"
        advice |= dict.fromkeys(columns, said)
    return advice

"""What a corpus promises: that it knows what is its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kosmos.data.sources.corpora import CorpusFiles
from kosmos.data.sources.folders import list_files
from kosmos.errors import cause
from kosmos.testing.promise import BrokenPromise, Rule, rule
from kosmos.testing.subjects import ComponentUnderTest

OTHERS: dict[str, dict[str, str]] = {
    "nothing": {},
    "rows": {"rows.jsonl": '{"text": "one"}\n'},
    "a table": {"metadata.csv": "file_name,text\n1.bin,one\n", "1.bin": "1"},
    "texts": {"train/1.txt": "one\n", "train/2.txt": "two\n"},
}
"""Folders of other layouts."""


@rule("corpus", "leaves-others", "folders of other layouts, and their files, are none of its own")
def leaves_others(corpus: ComponentUnderTest) -> None:
    read = corpus.registry.resolve("corpus", corpus.spec.name)
    for what, held in OTHERS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for name, text in held.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            names = list_files(folder)
            for files in (CorpusFiles(folder, names), *(CorpusFiles(folder, [n], is_file=True) for n in names)):
                try:
                    found = read(files)
                except Exception as error:
                    raise BrokenPromise(f"it fails at a folder of {what}: {cause(error)}") from error
                if found is not None:
                    raise BrokenPromise(f"it takes a folder of {what} ({', '.join(names) or 'no files'}) for its own")


RULES: tuple[Rule, ...] = (leaves_others,)

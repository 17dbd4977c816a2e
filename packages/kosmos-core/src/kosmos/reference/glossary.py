"""Words of the pages and messages that are no field, component or figure, as ``docs/glossary.md`` has them."""

from __future__ import annotations

from kosmos.names import plain

OF_TOKENS = (
    "one sequence of at most `data.tokens_per_pack` tokens, filled with several documents; it is what the model reads "
    "at once"
)
WORDS = {
    "row": "one line of a JSONL file or table, one element of a JSON list, one group of files of one name in a tar "
    f"file. {OF_TOKENS}. one line of `metrics.jsonl` and its like.",
    "pack": OF_TOKENS,
    "document": "One training sample: text and media in any order. A row of a file becomes a document.",
    "segment": "One part of a document: a text, a medium or a mark.",
    "mark": "A special token. Text from data never becomes a mark, whatever it spells.",
    "source": "One entry of `data.sources`: a file, a folder, a dataset of the hub, or a registered dataset.",
    "sample set": "A dataset that a plugin generates, so that its modality can be tried without data.",
    "held out": "Documents of a source that are scored and never trained on: its test or validation split.",
    "origin": "The name of a document for people: file and line, archive and sample.",
    "plan": "What a medium or a document takes, counted before it is decoded: its tokens, slots and cells.",
    "cell": "What an encoder turns into one feature vector",
    "budget": "The most of something. Of a row: `data.tokens_per_pack` tokens, and `data.cells_per_pack` cells of a "
    "stream. Of bad samples: the share `data.quarantine`.",
    "item": "An item is what an encoder sees as a whole",
    "slot": "A token position that the model fills with features of a medium in place of the embedding of a word. "
    "Several cells may share one slot.",
    "lane": "One of `data.lanes` independent sequences of rows. Each step takes one row of each lane. The number of "
    "lanes belongs to the run and not to the machine, so the batch of a step is the same for any number of processes.",
    "step": "One update of the weights, from one row of each lane.",
    "stream": "An encoder with its connector. A modality has a stream of its own, or shares one.",
    "run file": "One training with its folder (`OUTPUT`), and the YAML file that describes it.",
    "run": "One training with its folder (`OUTPUT`), and the YAML file that describes it.",
    "process": "With several processes, each is a rank, numbered from 0. One process a GPU.",
    "rank": "With several processes, each is a rank, numbered from 0. One process a GPU.",
    "shard": "The part of the parameters, gradients and optimizer state that one rank keeps.",
}
"""Word to its meaning."""


def word(name: str) -> tuple[str, str] | None:
    """The word that a name is, or the plural of, and its meaning; None where it is none."""
    wanted = plain(name).replace(" ", "")
    known = {plain(one).replace(" ", ""): one for one in WORDS}
    found = known.get(wanted) or known.get(wanted.removesuffix("s"))
    if found is None:
        return None
    meaning = ". ".join(f"{part[0].upper()}{part[1:]}" for part in WORDS[found].rstrip(".").split(". "))
    return found, f"{meaning}."

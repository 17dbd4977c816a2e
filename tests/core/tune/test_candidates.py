"""What is tried: each candidate makes a run file whose steps learn from as many tokens, and touches nothing stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import RunConfig, make_run
from kosmos.errors import ConfigError
from kosmos.runtime.dealing import check_dealing
from kosmos.tune.candidates import Situation, candidates, smaller
from kosmos.tune.outcome import Facts
from kosmos.tune.settings import Settings, nested

FACTS = Facts(
    device="cpu", device_name="CPU", precision="float32", parameters=20_000_000, cores=8, threads=8, processes=1,
    workers=4, most_workers=8, at_once_refused=None, compile_refused=None, longest=100, cells={"image": 64},
)  # fmt: skip
PLAIN: dict[str, Any] = {"modalities": ["image"], "data": {"tokens_per_pack": 1024}, "train": {"steps": 100}}


def situation(settings: Mapping[str, Any] = PLAIN, facts: Facts = FACTS, **more: Any) -> Situation:
    return Situation(make_run(PLAIN, settings), facts, **{"step_s": 0.1, "waiting": 0.0, **more})


def tried(settings: Mapping[str, Any] = PLAIN, facts: Facts = FACTS, **more: Any) -> list[Mapping[str, Any]]:
    return [one.overrides for one in candidates(situation(settings, facts, **more))]


configs = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries(
            {
                "tokens_per_pack": st.sampled_from([16, 100, 333, 512, 2048]),
                "lanes": st.integers(1, 12),
                "cells_per_pack": st.dictionaries(st.sampled_from(["image"]), st.integers(60, 500)),
            }
        ),
        "train": st.fixed_dictionaries(
            {
                "steps": st.sampled_from([10, 100_000]),
                "compile": st.sampled_from([True, False, "auto"]),
                "gradient_checkpointing": st.sampled_from([True, False, "selective"]),
                "lanes_at_once": st.integers(1, 4),
            }
        ),
    }
)
machines = st.builds(
    replace,
    st.just(FACTS),
    device=st.sampled_from(["cpu", "cuda"]),
    threads=st.integers(1, 16),
    processes=st.integers(1, 4),
    workers=st.integers(0, 9),
    longest=st.one_of(st.none(), st.integers(1, 3000)),
    at_once_refused=st.sampled_from([None, "an encoder takes one row at a time"]),
    compile_refused=st.sampled_from([None, "no compiler"]),
)


def of_a_step(config: RunConfig) -> tuple[int, dict[str, int]]:
    """Its tokens, and at most how many cells it has of a stream."""
    data = config.data
    cells = {stream: most * data.lanes for stream, most in data.cells_per_pack.items()}
    return data.tokens_per_pack * data.lanes, cells


@given(configs, machines, st.floats(0, 1), st.booleans(), st.booleans())
def test_every_candidate_makes_a_run_of_as_many_tokens_a_step(config, facts, waiting, thorough, lacks_memory):
    now = situation(config, facts, waiting=waiting, thorough=thorough, lacks_memory=lacks_memory)
    tokens, cells = of_a_step(now.config)
    for one in [*candidates(now), *smaller(now.config, facts, lambda path: False)]:
        made = make_run(PLAIN, config, nested(one.overrides))
        assert made != now.config
        assert of_a_step(made)[0] == tokens
        for stream, most in of_a_step(made)[1].items():
            assert 0 <= cells[stream] - most < made.data.lanes  # what does not divide is lost
        assert (
            made.train.lanes_at_once == now.config.train.lanes_at_once
            or made.data.lanes % made.train.lanes_at_once == 0
        )
        if now.config.data.lanes % facts.processes == 0:
            check_dealing(made.data.lanes, facts.processes, 1)
        assert one.why
        if made.data.tokens_per_pack < now.config.data.tokens_per_pack:
            assert facts.longest is not None
            assert facts.longest <= made.data.tokens_per_pack
            assert "cannot go on" in one.note


@given(configs, machines)
def test_what_the_command_line_states_stays(config, facts):
    free = candidates(situation(config, facts, waiting=0.5, thorough=True))
    for path in {path for one in free for path in one.overrides}:
        left = candidates(situation(config, facts, waiting=0.5, thorough=True, is_fixed=lambda p, path=path: p == path))
        assert left == [one for one in free if path not in one.overrides]


def test_on_a_cpu_lanes_are_computed_at_once_by_numbers_that_divide_the_threads():
    assert tried({"data": {"lanes": 8}}) == [{"train.lanes_at_once": n} for n in (8, 4, 2)]
    assert tried({"data": {"lanes": 6}}) == [{"train.lanes_at_once": 2}]
    assert tried({"data": {"lanes": 6}, "train": {"lanes_at_once": 2}}) == [{"train.lanes_at_once": 1}]


def test_a_single_lane_becomes_shorter_ones_as_far_as_documents_fit():
    shorter = [
        {"data.tokens_per_pack": 1024 // n, "data.lanes": n, "train.lanes_at_once": n} for n in (2, 4, 8)
    ]  # fmt: skip
    assert tried() == shorter
    assert tried(facts=replace(FACTS, longest=300)) == shorter[:1]
    assert tried(facts=replace(FACTS, longest=1024)) == []
    assert tried(facts=replace(FACTS, longest=None)) == []


def test_budgets_of_cells_are_of_shorter_rows_too_and_forbid_them_where_a_document_needs_more():
    with_cells = {"data": {"cells_per_pack": {"image": 200}}}
    assert tried(with_cells)[0]["data.cells_per_pack.image"] == 100
    assert len(tried(with_cells)) == 1  # a document of 64 cells does not fit into 50


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"data": {"lanes": 8}}, replace(FACTS, processes=2)),
        ({"data": {"lanes": 8}}, replace(FACTS, at_once_refused="dropout")),
        ({"data": {"lanes": 8}}, replace(FACTS, threads=1)),
        ({"data": {"lanes": 8}, "train": {"compile": "auto"}}, replace(FACTS, device="cuda", processes=8)),
        ({"train": {"release_gradients": True, "clip_norm": None}}, FACTS),
        ({"data": {"look_ahead": 1}}, FACTS),  # a row of each document: twice the lanes would be twice the documents
        ({"data": {"lanes": 7}}, replace(FACTS, device="cuda", processes=2)),
    ],
)
def test_what_would_be_refused_or_do_nothing_is_left_out(settings, facts):
    assert tried(settings, facts) == []


def test_blocks_are_compiled_on_a_cpu_where_the_run_is_long_enough_to_win_the_time_back():
    alone = {"facts": replace(FACTS, threads=1)}
    assert tried({"train": {"steps": 1000}}, **alone) == []
    assert tried({"train": {"steps": 2000}}, **alone) == [{"train.compile": True}]
    assert tried({"train": {"steps": 10}}, thorough=True, **alone) == [
        {"train.compile": False},
        {"train.compile": True},
    ]
    assert tried({"train": {"steps": 2000}}, facts=replace(FACTS, threads=1, compile_refused="no compiler")) == []
    assert tried({"data": {"lanes": 2}, "train": {"lanes_at_once": 2, "steps": 2000}}) == [{"train.lanes_at_once": 1}]


def test_more_data_workers_are_tried_only_where_rows_are_waited_for():
    alone = replace(FACTS, threads=1, workers=1)
    assert tried(facts=alone, waiting=0.01) == []
    assert tried(facts=alone, waiting=0.1) == [{"data.workers": n} for n in (2, 4, 8)]
    assert tried(facts=replace(alone, most_workers=3), waiting=0.1) == [{"data.workers": n} for n in (2, 3)]
    assert tried(facts=replace(alone, workers=0, most_workers=2), waiting=0.1) == [{"data.workers": n} for n in (1, 2)]


def test_on_a_gpu_rows_are_joined_and_nothing_is_recomputed_where_memory_does():
    gpu = replace(FACTS, device="cuda", longest=1024)
    recomputed = {"data": {"lanes": 4}, "train": {"gradient_checkpointing": True}}
    less = [{"train.gradient_checkpointing": "selective"}, {"train.gradient_checkpointing": False}]
    joined = [{"train.lanes_at_once": 4}, {"train.lanes_at_once": 2}]
    assert tried(recomputed, gpu) == [*joined, *less]
    assert tried(recomputed, replace(gpu, processes=2)) == [*joined[1:], *less]
    assert tried(recomputed, replace(gpu, processes=4)) == less
    assert tried({"data": {"lanes": 4}, "train": {"lanes_at_once": 4}}, gpu) == [
        *joined[1:],
        {"train.lanes_at_once": 1},
    ]
    many = tried({"data": {"lanes": 64, "tokens_per_pack": 8192}}, gpu)  # more tokens in a pass promise little
    assert many == [{"train.lanes_at_once": n} for n in (8, 4, 2)]
    assert tried({"data": {"look_ahead": 1, "lanes": 4}}, gpu) == joined


def test_a_thorough_search_on_a_gpu_tries_longer_rows_too():
    gpu = replace(FACTS, device="cuda", longest=1024)
    longer = [{"data.tokens_per_pack": 2048, "data.lanes": 2}, {"data.tokens_per_pack": 4096, "data.lanes": 1}]
    found = tried({"data": {"lanes": 4}}, gpu, thorough=True)
    assert [one for one in found if "data.lanes" in one] == longer
    assert not any("data.lanes" in one for one in tried({"data": {"look_ahead": 1, "lanes": 4}}, gpu, thorough=True))


def test_on_a_cpu_activations_are_kept_only_where_there_is_room():
    recomputed = {"train": {"gradient_checkpointing": "selective"}}
    alone = replace(FACTS, threads=1)
    assert tried(recomputed, alone, room=1.5) == []
    assert tried(recomputed, alone, room=3.0) == [{"train.gradient_checkpointing": False}]


def test_what_lacks_memory_recomputes_more_and_then_has_shorter_rows():
    found = [one.overrides for one in smaller(make_run(PLAIN), FACTS, lambda path: False)]
    whole = {"train.gradient_checkpointing": True}
    assert found == [
        {"train.gradient_checkpointing": "selective"},
        whole,
        *({"data.tokens_per_pack": 1024 // n, "data.lanes": n, **whole} for n in (2, 4, 8)),
    ]
    unknown = [one.overrides for one in smaller(make_run(PLAIN), None, lambda path: False)]
    assert unknown == found[:2]
    at_once = make_run(PLAIN, {"data": {"lanes": 4}, "train": {"lanes_at_once": 4}})
    alone = {"train.lanes_at_once": 1}
    assert [one.overrides for one in smaller(at_once, None, lambda path: False)] == [
        alone, {**alone, "train.gradient_checkpointing": "selective"}, {**alone, **whole},
    ]  # fmt: skip


def test_fields_of_the_command_line_are_fixed_by_themselves_or_by_their_section():
    settings = Settings(
        None, {"data": {"lanes": 2}}, {"data": {"sources": ["x"]}}, {"train": {"compile": True}, "guard": 1}
    )
    assert settings.is_fixed("train.compile")
    assert settings.is_fixed("data.sources")
    assert settings.is_fixed("guard.spike")
    assert not settings.is_fixed("data.lanes")
    assert not settings.is_fixed("train.lanes_at_once")


def test_the_run_file_that_is_written_is_the_given_one_with_the_command_line_and_what_was_found(tmp_path):
    from kosmos.run_file import read_run_file

    settings = Settings(
        "a.yaml", {"modalities": {"image": {}}, "data": {"lanes": 2}}, {"modalities": "image,audio"}, {}
    )
    file = tmp_path / "new.yaml"
    file.write_text(settings.text({"train.lanes_at_once": 2, "data.cells_per_pack.image": 5}))
    assert read_run_file(file) == {
        "modalities": {"image": {}, "audio": {}},
        "data": {"lanes": 2, "cells_per_pack": {"image": 5}},
        "train": {"lanes_at_once": 2},
    }
    with pytest.raises(ConfigError, match=r"a\.yaml"):
        Settings("a.yaml", {"train": {"step": 2}}, {}, {}).config()


def test_arguments_of_a_command_are_read_back_as_they_were_meant():
    from kosmos.run_file import parse_overrides
    from kosmos.tune.settings import written

    overrides = {"train.compile": False, "train.gradient_checkpointing": "selective", "data.lanes": 2}
    assert parse_overrides(written(overrides)) == nested(overrides)

from __future__ import annotations

import pytest
from transformers.pytorch_utils import Conv1D

from kosmos.compose import compose
from kosmos.train.parameter_groups import _decays, parameter_groups
from support.runs import small_run, ticks_registry

HEAD = "backbone.model.lm_head.weight"


def composed(**over):
    config = small_run(**over)
    return compose(config, ticks_registry()).model, config


@pytest.mark.parametrize("backbone", [{}, {"freeze": True}, {"tie_embeddings": True}])
def test_every_trainable_parameter_is_in_exactly_one_group(backbone):
    model, config = composed(backbone=backbone)
    grouped = [id(p) for g in parameter_groups(model, config) for p in g["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters() if p.requires_grad}


def test_norms_biases_and_embeddings_are_not_decayed():
    model, config = composed(train={"weight_decay": 0.5})
    for group in parameter_groups(model, config):
        for name, parameter in zip(group["names"], group["params"], strict=True):
            assert group["weight_decay"] == (0.5 if parameter.ndim == 2 and "embed" not in name else 0.0), name


def test_a_stream_and_the_backbone_may_have_learning_rates_of_their_own():
    model, config = composed(streams={"ticks": {"learning_rate": 1e-5}}, backbone={"learning_rate": 2e-5})
    rates = {g["name"].split(" ")[0]: g["lr"] for g in parameter_groups(model, config)}
    assert rates == {"streams.ticks": 1e-5, "backbone": 2e-5}


def test_a_connector_may_have_another_rate_than_its_encoder():
    rates = {"learning_rate": 1e-5, "connector_learning_rate": 4e-3}
    groups = parameter_groups(*composed(streams={"ticks": rates}))
    assert {g["name"].split(" ")[0]: g["lr"] for g in groups} == {
        "streams.ticks": 1e-5, "streams.ticks.connector": 4e-3, "backbone": 3e-4,
    }  # fmt: skip
    assert {n.split(".")[2] for g in groups if g["name"].startswith("streams.ticks.connector") for n in g["names"]} == {
        "connector"
    }
    whole = [n for g in parameter_groups(*composed()) for n in g["names"]]
    assert sorted(n for g in groups for n in g["names"]) == sorted(whole)


def test_a_frozen_encoder_leaves_its_connector_trained():
    model, config = composed(streams={"ticks": {"freeze": True}})
    names = [n for g in parameter_groups(model, config) for n in g["names"]]
    assert not any(n.startswith("streams.ticks.encoder") for n in names)
    assert any(n.startswith("streams.ticks.connector") for n in names)
    model.train()
    assert not model.streams["ticks"].encoder.training
    assert model.streams["ticks"].connector.training


def test_matrices_of_experts_are_decayed():
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    experts = {"model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4, **shape}
    model, config = composed(backbone={"name": "hf", "config": experts}, train={"weight_decay": 0.5})
    decayed = {n for g in parameter_groups(model, config) if g["weight_decay"] for n in g["names"]}
    plain = {n for g in parameter_groups(model, config) if not g["weight_decay"] for n in g["names"]}
    assert sum("mlp.experts" in name for name in decayed) == 2 and any("mlp.gate" in name for name in decayed)
    assert {n for g in parameter_groups(model, config) for n in g["matrices"]} == decayed - {HEAD}
    assert not any("mlp" in name for name in plain) and any("norm" in name for name in plain)


@pytest.mark.parametrize("tied", [False, True])
def test_matrices_are_what_layers_multiply_by_but_for_the_head(tied):
    model, config = composed(backbone={"tie_embeddings": tied})
    groups = parameter_groups(model, config)
    matrices = {name for g in groups for name in g["matrices"]}
    assert all(g["matrices"] <= set(g["names"]) for g in groups)
    expected = {f"backbone.blocks.0.{part}" for part in ("attention.query.weight", "feed_forward.inner.weight")}
    assert expected < matrices and any(name.startswith("streams.ticks.connector") for name in matrices)
    assert not any("embed" in name or "head" in name or "norm" in name or "bias" in name for name in matrices)


def test_matrices_of_conv1d_are_decayed():
    layer = Conv1D(4, 3)
    assert _decays(layer, layer.weight)

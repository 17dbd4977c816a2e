"""Models of the wav2vec 2.0 family that transformers has saved are loaded into torchaudio's, and say the same."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from torch import nn

from kosmos import ConfigError
from kosmos_audio.wav2vec2 import Wav2Vec2Encoder

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": [16] * 7, "vocab_size": 8,
}  # fmt: skip
OURS = {"width": 32, "layers": 2, "heads": 4, "feed_forward": 64, "channels": 16}
NORM_FIRST = {**SIZES, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}
MODELS = {
    "wav2vec2_base": (hf.Wav2Vec2Model, hf.Wav2Vec2Config, SIZES),
    "wav2vec2_large_lv60k": (hf.Wav2Vec2ForCTC, hf.Wav2Vec2Config, NORM_FIRST),
    "hubert_base": (hf.HubertModel, hf.HubertConfig, SIZES),
    "wavlm_base": (hf.WavLMModel, hf.WavLMConfig, SIZES),
}


def saved(kind, folder):
    model, config, sizes = MODELS[kind]
    torch.manual_seed(0)
    theirs = model(config(**sizes)).eval()
    for name, parameter in theirs.named_parameters():
        if "original0" not in name:  # the norm of a weight
            nn.init.normal_(parameter, mean=0.0 if parameter.ndim > 1 else 0.3, std=0.1)
    theirs.save_pretrained(folder)
    return getattr(theirs, "wav2vec2", theirs)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_transformers_gives_the_same_features(kind, tmp_path):
    theirs = saved(kind, tmp_path)
    ours = Wav2Vec2Encoder(model=kind, weights=str(tmp_path), **OURS).eval()
    sound = torch.randn(1, 4_000)
    with torch.no_grad():
        expected, found = theirs(sound).last_hidden_state, ours.model(sound)[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_older_names_of_a_weight_by_its_norm_are_known(tmp_path):
    theirs = saved("hubert_base", tmp_path)
    old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    state = {}
    for name, tensor in theirs.state_dict().items():
        for new, before in old.items():
            name = name.replace(new, before)
        state[f"hubert.{name}"] = tensor
    torch.save(state, tmp_path / "old.pt")
    one = Wav2Vec2Encoder(model="hubert_base", weights=str(tmp_path), **OURS).state_dict()
    other = Wav2Vec2Encoder(model="hubert_base", weights=str(tmp_path / "old.pt"), **OURS).state_dict()
    assert all(torch.equal(other[name], tensor) for name, tensor in one.items())


def test_a_model_of_another_size_is_told(tmp_path):
    saved("wav2vec2_base", tmp_path)
    with pytest.raises(ConfigError, match=r"of .* tensors are missing, such as encoder\.transformer\.layers\.2"):
        Wav2Vec2Encoder(model="wav2vec2_base", weights=str(tmp_path), **{**OURS, "layers": 3})

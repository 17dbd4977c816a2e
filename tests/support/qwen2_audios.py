"""Tiny models of Qwen2-Audio as transformers saves them, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2AudioConfig,
    Qwen2AudioEncoderConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    Qwen2Config,
    WhisperFeatureExtractor,
)

from kosmos.data.tokenizer import train_tokenizer

MELS = 16


def save_qwen2_audio(folder: Path, *, tied: bool = False) -> Qwen2AudioForConditionalGeneration:
    """Write one of two layers each, ``tied`` with its embedding as output projection."""
    train_tokenizer(["What is said here, and here?"] * 3, vocab_size=300, folder=folder)
    (folder / "kosmos_tokenizer.json").unlink(missing_ok=True)
    tokens = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokens.add_special_tokens({"additional_special_tokens": ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]})
    text: dict[str, Any] = {
        "vocab_size": len(tokens), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "bos_token_id": tokens.bos_token_id,
        "eos_token_id": tokens.eos_token_id, "pad_token_id": tokens.pad_token_id,
        "tie_word_embeddings": tied,
    }  # fmt: skip
    heard = Qwen2AudioEncoderConfig(
        d_model=24, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=40, num_mel_bins=MELS
    )
    token = tokens.convert_tokens_to_ids("<|AUDIO|>")
    torch.manual_seed(0)
    model = Qwen2AudioForConditionalGeneration(
        Qwen2AudioConfig(
            audio_config=heard, text_config=Qwen2Config(**text), audio_token_index=token, tie_word_embeddings=tied
        )
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms are ones otherwise, and the first logits all alike
            parameter.add_(torch.randn_like(parameter) * 0.2)
        if tied:  # which transformers leaves to who writes the file
            model.lm_head.weight.copy_(model.get_input_embeddings().weight)
    model.save_pretrained(folder)
    sounds = WhisperFeatureExtractor(feature_size=MELS, return_attention_mask=True)
    Qwen2AudioProcessor(sounds, tokens, chat_template="{{ messages }}").save_pretrained(folder)
    return model

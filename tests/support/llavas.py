"""Tiny models of LLaVA as transformers saves them, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2Config,
    SiglipImageProcessor,
    SiglipVisionConfig,
)

from kosmos.data.tokenizer import train_tokenizer

SIDE, PATCH = 56, 14
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


VICUNA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def save_llava(
    folder: Path, tower: str, *, chatml: bool = False, vicuna: bool = False, side: int = SIDE
) -> LlavaForConditionalGeneration:
    """Write one with a tower of ``clip`` (and a Llama) or ``siglip`` (and a Qwen2, whose embedding is its output).

    Args:
        vicuna: with a tokenizer as that of Llama 2, which puts a space in front of a text, and Vicuna's turns.
    """
    is_clip = tower == "clip"
    tokens = _as_llama_2() if vicuna else _tokenizer(folder, chatml=chatml)
    seen = {"num_hidden_layers": 3, "image_size": side, "patch_size": PATCH, **SIZES}
    text: dict[str, Any] = {
        "vocab_size": len(tokens), "num_hidden_layers": 2, "num_key_value_heads": 1, **SIZES,
        "bos_token_id": tokens.bos_token_id, "eos_token_id": tokens.eos_token_id, "pad_token_id": None,
        "tie_word_embeddings": not is_clip,
    }  # fmt: skip
    how = {"vision_feature_select_strategy": "default" if is_clip else "full"}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(projection_dim=16, **seen) if is_clip else SiglipVisionConfig(**seen),
        text_config=LlamaConfig(**text) if is_clip else Qwen2Config(**text),
        image_token_index=tokens.convert_tokens_to_ids("<image>"), tie_word_embeddings=not is_clip, **how,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms are ones otherwise, and the first logits all alike
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    square = {"height": side, "width": side}
    pictures = (
        CLIPImageProcessor(size={"shortest_edge": side}, crop_size=square)
        if is_clip
        else SiglipImageProcessor(size=square)
    )
    extra = {"patch_size": PATCH, "num_additional_image_tokens": int(is_clip), "image_token": "<image>"}
    LlavaProcessor(pictures, tokens, **how, **extra).save_pretrained(folder)
    return model


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    """Of the only checkpoint of a run, by their names there."""
    (checkpoint,) = (run / "checkpoints").iterdir()
    return {name: t for file in (checkpoint / "tensors").iterdir() for name, t in load_file(file).items()}


def _tokenizer(folder: Path, *, chatml: bool) -> PreTrainedTokenizerFast:
    train_tokenizer(["The cat sat on the mat. What is in this picture?"] * 3, vocab_size=300, folder=folder)
    (folder / "kosmos_tokenizer.json").unlink(missing_ok=True)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ends = [("<s>", backend.token_to_id("<s>"))]
    backend.post_processor = TemplateProcessing(single=["<s>", "$A"], pair=["<s>", "$A", "$B:1"], special_tokens=ends)
    tokens = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    added = ["<image>", *(("<|im_start|>", "<|im_end|>") if chatml else ())]
    tokens.add_special_tokens({"additional_special_tokens": added})
    tokens.chat_template = CHATML if chatml else None
    return tokens


def _as_llama_2() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    ends = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence([decoders.Replace(space, " "), *ends])
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    backend.train_from_iterator(["What is in this picture? USER: ASSISTANT: a cat"], trainer)
    content = json.loads(backend.to_str())
    words = content["model"]["vocab"]
    words |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    backend = Tokenizer.from_str(json.dumps(content))
    backend.post_processor = TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    tokens = PreTrainedTokenizerFast(tokenizer_object=backend, **named)
    tokens.add_special_tokens({"additional_special_tokens": [AddedToken("<image>", normalized=False, special=True)]})
    tokens.chat_template = VICUNA
    return tokens

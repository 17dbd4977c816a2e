"""Any causal language model of transformers as a backbone, with the documents of a row truly apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import DynamicCache

from kosmos.errors import ConfigError
from kosmos.model import huggingface_attention
from kosmos.model.attention import bounds_of
from kosmos.model.caches import KeyValueBatch
from kosmos.model.cpu_kernels import WithKernels
from kosmos.model.huggingface_check import check_apart, check_head, rope_types
from kosmos.model.huggingface_kernels import offer_kernels
from kosmos.model.huggingface_loading import fields_of, from_config_of, from_fields, from_weights, grow_vocabulary
from kosmos.model.huggingface_router import balance_of
from kosmos.model.lora import refuse_updates
from kosmos.model.own_losses import WithLosses, output_of
from kosmos.model.recompute import Recompute, options_of
from kosmos.model.segments import Segments
from kosmos.model.weights import filled_later, take_over


class HuggingFaceBackbone(WithKernels):
    """A causal language model of transformers by id, folder or configuration.

    Attention goes through ``kosmos.model.attention.attend``, so documents never see each other. When the
    model is built, its logits for two packed documents are compared with transformers' own for each alone;
    a model whose documents would mix (state-space layers, convolutions, positions by row, ..) is refused.
    Attention dropout is not applied; other dropouts are as the configuration says.

    Args:
        vocab_size: ids of the tokenizer; the embeddings grow to it where they are smaller and never shrink.
            New rows start as the mean of the old ones.
        model: id on the hub or a folder. Weights are read from safetensors alone; code never.
        config: build from this configuration with random weights instead: ``{"model_type": "llama", ..}``.
        pretrained: load the weights of ``model``; without, take only its configuration.
        router_loss: of a mixture of experts: so many times transformers' own loss of the balance of its experts over a
            row, times the tokens of the row, is minimized beside the loss of the tokens (``router_aux_loss_coef`` of
            its configuration, often 0.001 to 0.02). It depends on what shares a row.
        dtype: of the parameters. float16 is none of them: without a scale of the loss, small gradients vanish in it.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        model: str | None = None,
        config: dict[str, Any] | None = None,
        pretrained: bool = True,
        router_loss: float | None = None,
        dtype: Literal["float32", "bfloat16", "float64"] = "float32",
    ) -> None:
        super().__init__()
        if (model is None) == (config is None):
            raise ConfigError("hf: give either model (an id or a folder) or config (model_type and its fields)")
        again = partial(type(self), vocab_size, model=model, config=config, pretrained=pretrained, dtype=dtype)
        self._whole = _Repeated(again, torch.get_rng_state())
        built = _built(vocab_size, model, config, getattr(torch, dtype), pretrained=pretrained)
        self.grown = grow_vocabulary(built, vocab_size)
        """Rows of the embedding that it got for ids of the tokenizer."""
        name = model or str(built.config.model_type)
        self.model = built
        self.without_files = _without_files(model, built.config)
        """Options that build it again where ``model`` is not to be had, its weights aside; None where none can."""
        self.scale = _logit_scale(built.config)
        self.width = int(self.output_weight().shape[1])
        self.vocab_size = int(self.output_weight().shape[0])
        self.longest = _longest(built)
        """Most tokens of a document that it has positions for; None where they have no end."""
        self.made_for: int | None = getattr(built.config, "max_position_embeddings", None)
        """Tokens of the longest document that it was made for, which rotary positions do not end at."""
        self.router_loss = router_loss
        self.own_losses = router_loss is not None
        self._balance = None if router_loss is None else balance_of(name, built, router_loss)
        self._recompute = False
        huggingface_attention.note_windows(built)
        offer_kernels(built)
        check_apart(name, self)
        built.set_attn_implementation(huggingface_attention.NAME)

    draws_packed: ClassVar[bool] = True
    """Whether ``draw_weights`` fills weights in 4 bits, too (``kosmos.model.nf4_linear``)."""

    def draw_weights(self) -> None:
        """The first rank makes the model whole, and all take their shares of it."""
        first = not dist.is_initialized() or dist.get_rank() == 0
        take_over(self, self._whole() if first else None)

    def token_table(self) -> Tensor:
        """[V, D], in which tokens are looked up."""
        return cast(Tensor, self.model.get_input_embeddings().weight)

    def embed(self, token_ids: Tensor) -> Tensor:
        """int [T] -> [T, D], scaled where the model scales its embeddings."""
        return cast(Tensor, self.model.get_input_embeddings()(token_ids))

    def forward(
        self, x: Tensor, position_ids: Tensor, segments: Segments, cache: DynamicCache | KeyValueBatch | None = None
    ) -> Tensor | WithLosses:
        """[T, D] -> hidden states [T, D]; see ``kosmos.model.protocols.Backbone``.

        Raises:
            ConfigError: a document is longer than the model has positions for.
        """
        longest = segments.longest + _seen(cache)
        if self.longest is not None and longest > self.longest:
            raise ConfigError(f"hf: a document of {longest} tokens; the model has positions for {self.longest}")
        if not x.shape[0]:  # ranks that share a model run it all or none: on one token, of which nothing is left
            one, place = torch.cat([x, x.new_zeros(1, x.shape[1])]), position_ids.new_zeros(1)
            return cast(Tensor, output_of(self.forward(one, place, Segments((1,)))))[:0]
        own: DynamicCache | None = None
        row: Segments | KeyValueBatch | None = segments
        if isinstance(cache, KeyValueBatch):  # attention fills it; transformers knows nothing of it
            cache.begin(segments)
            row = cache
        elif cache is not None:
            own, row = cache, None
        decoder = self.model.get_decoder()
        balance = self._balance if self.training and cache is None and torch.is_grad_enabled() else None
        output = decoder(
            inputs_embeds=x[None].clone(),  # of a view a compiled layer would be another program than the layers behind
            position_ids=position_ids[None],
            attention_mask=None,
            use_cache=own is not None,
            return_dict=True,
            **({} if own is None else {_name_of_cache(decoder): own}),
            **({} if balance is None else {"output_router_logits": True}),
            **{
                huggingface_attention.SEGMENTS: row,
                huggingface_attention.BOUNDS: None if cache is not None else bounds_of(segments, x),
                huggingface_attention.KERNELS: self.by_kernels,
            },
        )
        hidden: Tensor = output.last_hidden_state.squeeze(0)
        hidden = hidden if self.scale == 1.0 else hidden * self.scale
        if balance is None:
            return hidden
        return WithLosses(hidden, {"router": len(x) * balance(output.router_logits)})

    def output_weight(self) -> Tensor:
        """[V, D]."""
        return cast(Tensor, self.model.get_output_embeddings().weight)

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers of the decoder."""
        lists = [part for part in self.model.get_decoder().children() if isinstance(part, nn.ModuleList)]
        return list(max(lists, key=len, default=()))

    def new_cache(self) -> DynamicCache:
        """An empty cache for one document; windows are applied by the attention."""
        return DynamicCache()

    def new_batch_cache(self) -> KeyValueBatch:
        """An empty cache for documents that are continued together."""
        return KeyValueBatch()

    def to_transformers(self, longest: int) -> Any:
        """The model of transformers, with attention of its own: its weights are ours, the modules around them are not.

        Raises:
            ConfigError: low-rank updates are not in its weights.
        """
        refuse_updates(self.model)
        tensors = (*self.model.parameters(), *self.model.buffers())
        plain = deepcopy(self.model, {id(tensor): tensor for tensor in tensors})
        plain.set_attn_implementation("sdpa" if plain._supports_sdpa else "eager")
        return plain

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each block in training, or also products and attention, and compute the rest again.

        Raises:
            ConfigError: the model cannot.
        """
        if enabled and not self.model.supports_gradient_checkpointing:
            raise ConfigError(f"hf: {self.model.config.model_type} has no gradient checkpointing")
        kind = "activation" if hasattr(self.model, "activation_checkpointing_enable") else "gradient"
        if enabled:
            options = {f"{kind}_checkpointing_kwargs": options_of(enabled, self.blocks)}
            getattr(self.model, f"{kind}_checkpointing_enable")(**options)
        elif self.model.supports_gradient_checkpointing:
            getattr(self.model, f"{kind}_checkpointing_disable")()
        self._recompute = bool(enabled)

    def train_frozen(self) -> None:
        """As in evaluation, but layers recompute where they were told to: transformers' do so in training alone."""
        for block in self.blocks if self._recompute else ():
            block.training = True  # of the layer itself: its parts, dropout among them, stay as they are
            for name, value in vars(block).items():
                if "dropout" in name and isinstance(value, float):
                    setattr(block, name, 0.0)  # which some layers apply by themselves


def _seen(cache: DynamicCache | KeyValueBatch | None) -> int:
    """Tokens of the longest document in a cache."""
    if cache is None:
        return 0
    return cache.length if isinstance(cache, KeyValueBatch) else int(cache.get_seq_length())


def _name_of_cache(decoder: nn.Module) -> str:
    """Of the parameter for it, which transformers 5.24 renamed."""
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"


def _built(
    vocab_size: int, model: str | None, config: dict[str, Any] | None, dtype: torch.dtype, *, pretrained: bool
) -> Any:
    """The model of transformers; its weights are read where they have memory."""
    if model is None:
        built = from_fields(dict(config or {}), vocab_size, dtype)
    elif pretrained and not filled_later():
        built = from_weights(model, dtype)
    else:
        built = from_config_of(model, dtype)
    check_head(model or str(built.config.model_type), built)
    return built


def _without_files(model: str | None, config: Any) -> dict[str, Any] | None:
    if model is None:
        return {}
    fields = fields_of(config)
    return None if fields is None else {"model": None, "config": fields}


class _Repeated(NamedTuple):
    """A call, to be made again with the random numbers that it had."""

    call: Callable[[], nn.Module]
    random: Tensor

    def __call__(self) -> nn.Module:
        with torch.random.fork_rng(devices=()):
            torch.set_rng_state(self.random)
            return self.call()


def _logit_scale(config: Any) -> float:
    """What the model multiplies its logits with; multiplied into the hidden states instead."""
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    return float(scale if scale is not None else 1.0) / float(divisor if divisor is not None else 1.0)


def _longest(model: Any) -> int | None:
    """Tokens of the longest document: learned positions have an end, and longrope's frequencies change at one.

    From there on they would hang on the longest document of the row.
    """
    config = model.config
    if "longrope" in rope_types(config):
        return int(getattr(config, "original_max_position_embeddings", None) or _original(config))
    tokens = model.get_input_embeddings()
    learned = any(isinstance(part, nn.Embedding) and part is not tokens for part in model.get_decoder().modules())
    return int(config.max_position_embeddings) if learned else None


def _original(config: Any) -> int:
    said = (getattr(config, "rope_parameters", None) or {}).get("original_max_position_embeddings")
    return int(said or config.max_position_embeddings)

"""A row's way through the model on a GPU, followed without one: nothing is mixed, and the CPU waits for nothing."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from kosmos import Document, ItemTransformer, Segments, Text, attend, to_device
from kosmos.data.batch import assemble, to_tensors
from kosmos.data.transfer import on_its_way
from kosmos.generate import generate_ids, generate_together, ready_prompt
from kosmos.model.caches import KeyValueBatch
from kosmos.model.decoder import Decoder
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.sequence import SequenceGroup, part_of
from kosmos.testing.fake_gpu import CUDA, fake_gpu, put_on
from support.backbones import LLAMA
from support.programs import LENGTHS, check_programs, grids_of, programs

from .test_decoder import Calls
from .test_omni import BACKBONES, composition, medium, ready

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="this build of torch knows no CUDA")

MIXED = [
    Document("a", (Text("abc"), medium("image", 3), medium("image", 9), medium("audio", 5), Text("end", train=True))),
    Document("b", (medium("video", 2), medium("ticks", 7), medium("video", 3), Text("end", train=True))),
    Document("c", (medium("audio", 2), medium("ticks", 4), Text("the end", train=True))),
]
TEXT = [Document("d", (Text("abc", train=True),))]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("documents", [MIXED, TEXT], ids=["mixed", "text"])
def test_losses_of_a_row_wait_for_nothing(backbone, dtype, documents):
    composed = composition(backbone)
    rows = [ready(composed.planner, document) for document in documents]
    batch = to_tensors(assemble(rows, composed.planner.routes, tuple(composed.model.streams)))
    with fake_gpu() as gpu, torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        model = put_on(deepcopy(composed.model).train())
        losses = model(batch.to(CUDA))
    assert losses.total.device == losses.per_token.device == CUDA
    assert len(losses.per_token) == batch.num_targets
    assert gpu.waits == []


@pytest.mark.parametrize("rank", range(3))
def test_the_part_of_a_row_that_a_rank_computes_waits_for_nothing(rank):
    composed = composition("decoder")
    rows = [ready(composed.planner, document) for document in MIXED]
    batch = to_tensors(assemble(rows, composed.planner.routes, tuple(composed.model.streams)))
    slots = {name: stream.connector.slots for name, stream in composed.model.streams.items()}
    ranks = SequenceGroup(None, rank, 3)
    expected = part_of(batch, ranks, slots)
    with fake_gpu() as gpu:
        part = part_of(batch.to(CUDA), ranks, slots)
    assert gpu.waits == []
    assert part.own == expected.own and part.trained.shape == expected.trained.shape
    assert {n: m.values.shape for n, m in part.seen.media.items()} == {
        n: m.values.shape for n, m in expected.seen.media.items()
    }


@pytest.mark.parametrize("backbone", ["decoder", "hf"])
def test_generation_asks_for_each_token_once(backbone):
    composed = deepcopy(composition(backbone))
    prompt = Document("p", (medium("image", 1), Text("what?")))
    with fake_gpu() as gpu:
        put_on(composed.model.eval())
        found = generate_ids(
            composed, prompt, max_new_tokens=3, temperature=0, device=CUDA, dtype=torch.bfloat16, seed=0
        )
    assert found == [0, 0, 0]  # what is asked of a fake GPU is 0
    waits = [wait for wait in gpu.waits if "site-packages" not in wait]  # DynamicCache asks once for each prompt
    assert [wait.split(" at ")[0] for wait in waits] == ["aten._local_scalar_dense.default"] * 3


@pytest.mark.parametrize("backbone", ["decoder", "hf"])
def test_generation_together_asks_for_the_tokens_alone(backbone):
    composed = deepcopy(composition(backbone))
    prompts = [
        ready_prompt(composed, Document("p", (medium("image", seed), Text("what?" * seed)))) for seed in (1, 2, 30)
    ]
    with fake_gpu() as gpu:
        put_on(composed.model.eval())
        found = generate_together(composed, prompts, max_new_tokens=3, device=CUDA, dtype=torch.bfloat16)
    assert found == [[0, 0, 0]] * 3
    # A GPU gives the tokens of all documents in one copy; of a fake one each number is asked for.
    assert len(set(gpu.waits)) == 1 and len(gpu.waits) == 9


def test_prompts_are_put_into_a_cache_by_as_many_launches_however_many_they_are():
    counts = []
    with fake_gpu():
        for lengths in ((3, 70), (3, 70, 5) * 10):
            q, k, v = (torch.empty(sum(lengths), n, 16, device=CUDA, dtype=torch.bfloat16) for n in (4, 2, 2))
            cache = KeyValueBatch()
            with Calls() as calls:
                cache.begin(Segments(lengths))
                for layer in range(2):
                    cache.attend(layer, q, k, v)
            counts.append(calls.of)
    assert counts[0] == counts[1]
    assert counts[0]["index_copy_"] == 4


def test_documents_that_go_on_without_the_others_wait_for_nothing():
    with fake_gpu() as gpu:
        cache = KeyValueBatch()
        for lengths in ((3, 70, 5), (1, 1, 1)):
            q, k, v = (torch.empty(sum(lengths), heads, 16, device=CUDA) for heads in (4, 2, 2))
            cache.begin(Segments(lengths))
            cache.attend(0, q, k, v, window=8)
        cache.keep(torch.tensor([0, 2]))
        cache.begin(Segments((1, 1)))
        assert cache.attend(0, q[:2], k[:2], v[:2]).shape == (2, 4, 16)
    assert gpu.waits == []


def _waits(act) -> list[str]:
    with fake_gpu() as gpu:
        act()
    return [wait.split(" at ")[0] for wait in gpu.waits]


def test_what_would_wait_is_counted():
    def there() -> torch.Tensor:
        return torch.ones(3, device=CUDA)

    assert _waits(lambda: there() * 2) == []
    assert _waits(lambda: float(there()[0])) == ["aten._local_scalar_dense.default"]
    assert _waits(lambda: there().cpu()) == ["aten._to_copy.default"]
    assert _waits(lambda: torch.ones(3).to(CUDA, non_blocking=True)) == ["aten._to_copy.default"]
    assert _waits(lambda: torch.ones(3).pin_memory().to(CUDA)) == ["aten._to_copy.default"]
    assert _waits(lambda: torch.ones(3).pin_memory().to(CUDA, non_blocking=True)) == []
    assert _waits(lambda: there().copy_(torch.ones(3))) == ["aten.copy_.default"]
    assert _waits(lambda: torch.ones(3).copy_(there())) == ["aten.copy_.default"]
    assert _waits(lambda: there()[torch.arange(2)]) == ["aten.index.Tensor"]
    assert _waits(lambda: there()[there().long()]) == []
    assert _waits(lambda: to_device(torch.ones(1).expand(3), CUDA)) == []
    assert _waits(lambda: there().to("cpu", non_blocking=True)) == []
    assert _waits(lambda: torch.ones(3).copy_(there(), non_blocking=True)) == ["aten.copy_.default"]
    assert _waits(lambda: torch.ones(3, pin_memory=True).copy_(there())) == ["aten.copy_.default"]
    assert _waits(lambda: torch.ones(6, pin_memory=True)[3:].copy_(there(), non_blocking=True)) == []
    with fake_gpu(), pytest.raises(RuntimeError, match="devices"):
        there() + torch.ones(3)


def test_what_is_on_its_way_is_waited_for_only_where_the_gpu_has_nothing_else_to_do():
    with fake_gpu() as gpu:
        x = torch.ones(3, device=CUDA)
        arrived = on_its_way(x)
        y = x * 2
        assert arrived().tolist() == [0, 0, 0] and gpu.waits == []
        arrived = on_its_way(y)
        assert arrived().tolist() == [0, 0, 0] and len(gpu.waits) == 1
        torch.cuda.synchronize()
        assert len(gpu.waits) == 2


def test_memory_that_is_pinned_has_an_end_where_one_is_said():
    with fake_gpu(most_pinned=16):
        torch.empty(2, pin_memory=True)
        with pytest.raises(RuntimeError, match="memory"):
            torch.empty(3, pin_memory=True)


def test_tensors_of_the_cpu_keep_their_values():
    with fake_gpu():
        assert torch.arange(4).reshape(2, 2).prod(dim=1).tolist() == [0, 6]


def test_attention_takes_fewer_heads_of_keys_and_values_as_they_are():
    segments = Segments((5, 0, 9))
    with fake_gpu():
        q, k, v = (torch.empty(14, heads, 16, device=CUDA, dtype=torch.bfloat16) for heads in (8, 2, 2))
        with Calls() as calls:
            out = attend(q, k, v, segments, causal=True)
    assert out.shape == (14, 8, 16)
    assert calls.of["_varlen_attn"] == 1
    assert not calls.of.keys() & {"repeat_interleave", "expand", "clone", "index_select"}


def test_a_compiled_block_holds_its_attention_and_is_compiled_for_no_row_of_its_own():
    def call(decoder, lengths):
        ids = torch.zeros(sum(lengths), dtype=torch.int64, device=CUDA)
        out = decoder(decoder.embed(ids), ids, Segments(lengths))
        assert out.shape == (sum(lengths), 64)

    check_programs(programs(Decoder(300, width=64, layers=2, heads=4, kv_heads=2, ffn_width=96), LENGTHS, call))


@pytest.mark.parametrize("rotary", [False, True])
def test_so_does_a_block_of_an_encoder(rotary):
    class Plain(ItemTransformer):
        def forward(self, values, grids):
            return self.transform(values, grids)

    def call(encoder, lengths):
        assert encoder(torch.zeros(sum(lengths), 64, device=CUDA), grids_of(lengths)).shape == (sum(lengths), 64)

    check_programs(programs(Plain(width=64, layers=2, heads=4, feed_forward=2, rotary=rotary), LENGTHS, call))


HALVES = {"layer_types": ["sliding_attention", "full_attention"] * 5, "sliding_window": 64}


@pytest.mark.parametrize(("kind", "more", "kinds"), [("qwen3", {}, 1), ("gemma3_text", HALVES, 2)])
def test_so_do_layers_of_transformers_whatever_their_number(kind, more, kinds):
    small = {**LLAMA, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 10, "model_type": kind}

    def call(backbone, lengths):
        ids = torch.zeros(sum(lengths), dtype=torch.int64, device=CUDA)
        assert backbone(backbone.embed(ids), ids, Segments(lengths)).shape == (sum(lengths), 32)

    check_programs(programs(HuggingFaceBackbone(300, config={**small, **more}), LENGTHS, call), kinds)

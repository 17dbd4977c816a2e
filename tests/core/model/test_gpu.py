"""A row on a real GPU: what a document comes to, whatever else is in the row, in each kernel that computes there."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from kosmos import Document, Segments, Text, make_run
from kosmos.compose import compose
from kosmos.data.batch import assemble, to_tensors
from kosmos.generate import generate_ids, generate_together, ready_prompt
from kosmos.model.attention import attend, attend_across, attend_cached
from kosmos.model.caches import KeyValueBatch, KeyValueCache
from kosmos.model.continuing import Captured, OneShape, continuing
from kosmos.model.decoder import Decoder
from kosmos.model.fp8 import use_fp8
from kosmos.model.loss import linear_cross_entropy
from kosmos.model.nf4 import pack, unpack
from kosmos.model.nf4_linear import begin_nf4
from kosmos.plugins import Registry
from support import ticks
from support.continued import hidden_states, launched

from .test_attention import dense
from .test_omni import BACKBONES, STREAMS, medium, ready, worst_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LENGTHS = {"mixed": (1, 70, 0, 9, 64, 65, 200, 3), "alike": (64, 64, 64), "one": (300,)}
UNITS = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""By how much results may be off, of values around one."""


def apart(one: torch.Tensor, other: torch.Tensor, *, least: float = 0.0) -> float:
    """Relative to the other or to ``least``."""
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm() / other.norm().clamp(min=least))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 16)])
@pytest.mark.parametrize("dtype", UNITS, ids=["fp32", "bf16"])
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_and_its_gradients_are_those_of_a_dense_mask(lengths, causal, window, dtype, groups):
    own = LENGTHS[lengths]
    random = torch.Generator("cuda").manual_seed(1)
    exact = [
        torch.randn(sum(own), n, 64, device="cuda", generator=random).to(dtype).double().requires_grad_()
        for n in (4, groups, groups)
    ]
    given = [x.detach().to(dtype).requires_grad_() for x in exact]
    got = attend(*given, Segments(own), causal=causal, window=window)
    with torch.device("cuda"):
        expected = dense(*exact, list(own), causal, window)
    upstream = torch.randn_like(expected).to(dtype)
    found = torch.autograd.grad(got, given, upstream)
    wanted = torch.autograd.grad(expected, exact, upstream.double())
    for one, other in zip((got, *found), (expected, *wanted), strict=True):
        assert apart(one, other) < UNITS[dtype]


@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("dtype", UNITS, ids=["fp32", "bf16"])
@pytest.mark.parametrize("groups", [4, 2])
def test_tokens_that_are_continued_see_their_document_as_a_dense_mask_does(window, dtype, groups):
    lengths, more = (5, 130, 2), 70
    random = torch.Generator("cuda").manual_seed(5)
    documents = [
        [torch.randn(n + more, h, 64, device="cuda", generator=random).to(dtype) for h in (4, groups, groups)]
        for n in lengths
    ]
    together, alone = KeyValueBatch(), KeyValueCache(1)
    for at in range(more + 1):
        now = [slice(0, n) if at == 0 else slice(n + at - 1, n + at) for n in lengths]
        rows = [[x[part] for x in own] for own, part in zip(documents, now, strict=True)]
        together.begin(Segments(tuple(len(q) for q, _, _ in rows)))
        got = together.attend(0, *(torch.cat(xs) for xs in zip(*rows, strict=True)), window=window)
        one = attend_cached(rows[1][0], *alone.extend(0, *rows[1][1:]), window=window)
        for found, own, part in zip(got.split([len(q) for q, _, _ in rows]), documents, now, strict=True):
            with torch.device("cuda"):
                whole = dense(*(x[: part.stop].double() for x in own), [part.stop], True, window)
            assert apart(found, whole[part]) < UNITS[dtype]
            assert own is not documents[1] or apart(one, whole[part]) < UNITS[dtype]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("dtype", UNITS, ids=["fp32", "bf16"])
def test_queries_of_items_see_their_item_alone(lengths, dtype):
    own = tuple(n for n in LENGTHS[lengths] if n)
    random = torch.Generator("cuda").manual_seed(2)
    q, k, v = (
        torch.randn(n, 4, 64, device="cuda", generator=random).to(dtype) for n in (5 * len(own), sum(own), sum(own))
    )
    found = attend_across(q, k, v, 5, Segments(own))
    begin = 0
    for number, length in enumerate(own):
        theirs = slice(begin, begin + length)
        logits = torch.einsum("qhd,khd->hqk", q[5 * number : 5 * number + 5].double(), k[theirs].double()) / 8
        expected = torch.einsum("hqk,khd->qhd", logits.softmax(-1), v[theirs].double())
        assert apart(found[5 * number : 5 * number + 5], expected) < UNITS[dtype]
        begin += length


@pytest.mark.parametrize("vocabulary", [300, 9001])
@pytest.mark.parametrize("dtype", UNITS, ids=["fp32", "bf16"])
@pytest.mark.parametrize("chunk", [None, 7])
def test_the_loss_and_its_gradients_are_those_of_all_logits(vocabulary, dtype, chunk):
    random = torch.Generator("cuda").manual_seed(3)
    hidden, weight = (torch.randn(n, 96, device="cuda", generator=random) for n in (50, vocabulary))
    targets = torch.randint(vocabulary, (50,), device="cuda", generator=random)
    given = [x.to(dtype).requires_grad_() for x in (hidden, weight * 0.2)]
    exact = [x.detach().double().requires_grad_() for x in given]
    got = linear_cross_entropy(*given, targets, chunk=chunk).total
    expected = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, targets, reduction="sum")
    assert apart(got, expected) < UNITS[dtype]
    for one, other in zip(torch.autograd.grad(got, given), torch.autograd.grad(expected, exact), strict=True):
        assert apart(one, other) < UNITS[dtype]


ROW = [
    Document("a", (Text("abc"), medium("image", 3), medium("image", 9), medium("audio", 5), Text("end", train=True))),
    Document("b", (medium("ticks", 7), medium("image", 2), Text("end", train=True))),
    Document("c", (medium("audio", 2), medium("ticks", 4), Text("the end", train=True))),
    Document("d", (Text("only text", train=True),)),
]


def composition(backbone):
    """Without video: a machine with a GPU may lack its libraries."""
    registry = Registry.from_modules({"vision": "kosmos_vision.plugin", "audio": "kosmos_audio.plugin", "ticks": ticks})
    modalities = ["image", "audio", "ticks"]
    streams = {name: STREAMS[name] for name in modalities}
    return compose(make_run({"modalities": modalities, "streams": streams, "backbone": BACKBONES[backbone]}), registry)


def loss_and_gradients(composed, model, rows, device, dtype):
    model.zero_grad()
    total = 0.0
    for row in rows:
        made = [ready(composed.planner, document) for document in row]
        batch = to_tensors(assemble(made, composed.planner.routes, composed.streams)).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            losses = model(batch)
        losses.total.backward()
        total += float(losses.total.detach())
    return total, {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("backbone", BACKBONES)
def test_packed_is_unpacked_and_as_on_the_cpu(backbone):
    composed, cuda, cpu = composition(backbone), torch.device("cuda"), torch.device("cpu")
    on_gpu, alone = deepcopy(composed.model).eval().to(cuda), [[document] for document in ROW]
    expected, slopes = loss_and_gradients(composed, deepcopy(composed.model).eval(), [ROW], cpu, torch.float32)
    for rows in ([ROW], alone):
        loss, gradients = loss_and_gradients(composed, on_gpu, rows, cuda, torch.float32)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert worst_error(gradients, slopes) < 1e-3
        loss, gradients = loss_and_gradients(composed, on_gpu, rows, cuda, torch.bfloat16)
        assert loss == pytest.approx(expected, rel=1e-2)
        least = 0.05 * max(float(slope.norm()) for slope in slopes.values())
        found = {name: apart(gradients[name], slope, least=least) for name, slope in slopes.items()}
        assert max(found.values()) < 0.1, found


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("tokens", [64, 77])
def test_products_of_8_bits_are_rounded_as_a_cpu_rounds_them(recipe, tokens):
    torch.manual_seed(0)
    x, upstream = torch.randn(tokens, 128), torch.randn(tokens, 256)
    plain, found = torch.nn.Module(), {}
    plain.blocks = torch.nn.ModuleList([torch.nn.Linear(128, 256)])
    for device in map(torch.device, ("cpu", "cuda")):
        model = deepcopy(plain).to(device)
        assert use_fp8(model, recipe, device) == 1
        inner = x.to(device).requires_grad_()
        with torch.autocast(device.type, torch.bfloat16):
            out = model.blocks[0](inner)
        out.backward(upstream.to(device, out.dtype))
        found[device.type] = [t.float().cpu() for t in (out, inner.grad, model.blocks[0].weight.grad)]
    for on_gpu, emulated in zip(found["cuda"], found["cpu"], strict=True):
        assert apart(on_gpu, emulated) < UNITS[torch.bfloat16]


@pytest.mark.parametrize("dtype", UNITS, ids=["fp32", "bf16"])
def test_graphs_give_the_hidden_states_of_tokens_that_are_launched(dtype):
    torch.manual_seed(0)
    backbone = Decoder(256, width=64, layers=2, heads=4, kv_heads=2, ffn_width=96).eval().to("cuda")
    case, graphs = ([3, 120, 60, 9], 80, {5: (0, 1, 3), 9: (0, 1), 75: (1,)}), []

    class Counted(Captured):
        def _capture(self):
            graphs.append((self.cache.documents, self.cache.room))
            return super()._capture()

    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found, same, anew = (hidden_states(backbone, way, *case) for way in (Counted, OneShape, launched))
    for one, other, third in zip(found, same, anew, strict=True):
        assert apart(one, other) < 1e-5
        assert apart(one, third) < UNITS[dtype]
    assert graphs == [(4, 192), (2, 192), (2, 384), (1, 384)]
    assert isinstance(continuing(backbone, torch.device("cuda"), one=True), Captured)


@pytest.mark.parametrize("backbone", ["decoder", "hf"])
def test_what_is_written_is_what_the_cpu_writes(backbone):
    """Document by document and together, of prompts of several lengths."""
    on_cpu = composition(backbone)
    on_gpu = replace(on_cpu, model=deepcopy(on_cpu.model).eval().to("cuda"))
    on_cpu.model.eval()
    prompts = [Document("p", (medium("image", n), Text("what?" * n), medium("ticks", n))) for n in (1, 2, 30)]
    how = {"max_new_tokens": 12, "dtype": torch.float32}
    expected = [generate_ids(on_cpu, p, temperature=0, seed=0, device=torch.device("cpu"), **how) for p in prompts]
    cuda = torch.device("cuda")
    assert [generate_ids(on_gpu, p, temperature=0, seed=0, device=cuda, **how) for p in prompts] == expected
    ready_prompts = [ready_prompt(on_gpu, p) for p in prompts]
    assert generate_together(on_gpu, ready_prompts, device=cuda, **how) == expected
    drawn = [generate_ids(on_gpu, prompts[0], temperature=1, seed=5, device=cuda, **how) for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_weights_in_4_bits_are_those_of_a_cpu_also_in_a_compiled_layer():
    layer = torch.nn.Linear(128, 64, device="cuda")
    layer.requires_grad_(False)
    packed = pack(layer.weight)
    assert torch.equal(packed.cpu(), pack(layer.weight.cpu()))
    begin_nf4(layer)
    assert torch.equal(layer.weight.cpu(), unpack(packed.cpu(), torch.float32))
    x = torch.randn(70, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    outcomes = []
    for one in (layer, torch.compile(layer, fullgraph=True)):
        y = one(x)
        outcomes.append((y, *torch.autograd.grad(y.sum(), [x])))
    exact = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert apart(outcomes[0][0], exact) < UNITS[torch.bfloat16]
    for one, other in zip(*outcomes, strict=True):
        assert apart(one, other) < 1e-2

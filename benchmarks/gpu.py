"""Every measurement that needs a GPU, in one call of under nine minutes.

    python benchmarks/gpu.py                    # on one GPU
    python benchmarks/gpu.py --tiny             # the same code on a CPU in a minute: says that it runs, and no speed
    python benchmarks/gpu.py --only attention --only text

Limits, written first: products at the data sheet's dense bf16 rate (989 TFLOP/s on an H100 or H200); an optimizer's
step at its bytes over the measured bandwidth of a copy; the loss at the products of its three matrices; a token that is
generated, of one document or of each of several, at the bytes of the weights over that bandwidth. Each part prints
what it reached of its limit and the ratio to its peer, both run here on the same work.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from gpu_attention import attention
from gpu_place import Place
from workload import DATA

from kosmos import make_run, train_model
from kosmos.model.loss import linear_cross_entropy
from kosmos.train.peak import peak_flops

BF16 = torch.bfloat16


def loss(place: Place) -> None:
    """Linear and cross entropy in chunks against torch's, in time and in memory beyond the inputs."""
    tokens, width, vocabulary = (64, 32, 1000) if place.tiny else (8192, 2048, 128_000)
    hidden = torch.randn(tokens, width, device=place.device, dtype=BF16, requires_grad=True)
    weight = torch.randn(vocabulary, width, device=place.device, dtype=BF16, requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,), device=place.device)
    arms = {
        "ours": lambda: linear_cross_entropy(hidden, weight, targets).total.backward(),
        "torch": lambda: F.cross_entropy((hidden @ weight.T).float(), targets, reduction="sum").backward(),
    }
    limit = 3 * 2 * tokens * width * vocabulary / peak_flops(place.device, BF16)
    for name, seconds in place.by_turns(arms).items():
        peak = place.peak_bytes(arms[name])
        print(f"loss {name}: {1000 * seconds:.2f} ms, {limit / seconds:.2f} of the limit, {peak / 2**20:,.0f} MiB more")


def optimizers(place: Place) -> None:
    """``optim.py`` on the GPU."""
    import optim

    device, count = place.device, 200_000 if place.tiny else 500_000_000
    tensors, rounds = (7, 3) if place.tiny else (37, 9)
    several = list(optim.candidates(device))
    for name in optim.DTYPES:
        found = optim.measure(several, name, device, count=count, tensors=tensors, rounds=rounds)
        print(optim.table(name, *found), flush=True)


def orthogonal(place: Place) -> None:
    """``muon.py`` on the GPU, over the matrices of a decoder of 124 M and of 1.3 B."""
    import muon

    for width, layers, ffn_width in ((64, 2, 128),) if place.tiny else ((768, 12, 2048), (2048, 26, 5632)):
        shapes = muon.shapes_of(width, layers, ffn_width)
        print(muon.table(shapes, muon.measure(shapes, place.device, 1 if place.tiny else 5)), flush=True)


def sounds(place: Place) -> None:
    """``encoders.py`` on the GPU: Whisper's encoder on clips of many lengths."""
    import encoders

    if not (DATA / "audio").exists():
        print("no clips to hear: $KOSMOS_TEST_DATA has no folder audio")
        return
    less: dict[str, Any] = {"count": 2, "sentences": 0} if place.tiny else {}
    name = "whisper (tiny)" if place.tiny else encoders.OF_A_GPU
    line = encoders.measure(name, "bf16", place.device, **less)
    print(f"clips of many lengths, milliseconds\n{encoders.HEAD}\n{line}", flush=True)


TINY = {"width": 64, "layers": 2, "heads": 2, "ffn_width": 128}
WIDE = {"width": 2048, "layers": 26, "heads": 16, "ffn_width": 5632, "tie_embeddings": True}
"""A decoder of 1.3 B in Llama's shape."""
MASTER = {"weights": "bf16", "optimizer": {"name": "lion8bit", "master": "bits16"}}
"""bf16 weights with the bits below them beside 8-bit momentum: 5 bytes a parameter."""


def text(place: Place) -> None:
    """Text alone, with 8-bit Lion: our decoder at 1.3 B, and at 7 B with gradients freed one by one.

    Memory, reckoned: at 1.3 B weights, gradients and bf16 copies are 15 GB and a row keeps 35 GB for the backward pass;
    at 7 B weights and state are 22 GB, a row keeps 25 GB. Recomputation would cost up to a third of the operations,
    which MFU does not count.
    """
    released = {
        "weights": "bf16", "optimizer": {"name": "lion8bit", "master": "stochastic"}, "release_gradients": True,
        "clip_norm": None,
    }  # fmt: skip
    models: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
        "1.3 B, fp32 weights": (WIDE, 16_384, {"optimizer": "lion8bit"}),
        "1.3 B, bf16 weights and 16 more bits": (WIDE, 16_384, MASTER),
        "7 B, bf16 weights, gradients released": ({"preset": "7b"}, 8192, released),
    }
    if place.tiny:
        models = {name: (TINY, 128, train) for name, (_, _, train) in models.items()}
    for name, (backbone, tokens, train) in models.items():
        _show(f"text {name}", _run(_of_text(backbone, tokens, train), place, 8))


def layers(place: Place) -> None:
    """Text through the layers of transformers, in the shape of our decoder at 1.3 B. Norms, rotations and activations
    are theirs; attention is ours, within their compiled layers."""
    own = TINY if place.tiny else WIDE
    shape = {
        "model_type": "llama", "hidden_size": own["width"], "intermediate_size": own["ffn_width"],
        "num_hidden_layers": own["layers"], "num_attention_heads": own["heads"], "tie_word_embeddings": True,
    }  # fmt: skip
    tokens = {}
    for name, backbone in {"our decoder": {"name": "decoder", **own}, "hf": {"name": "hf", "config": shape}}.items():
        rows = _run(_of_text(backbone, 128 if place.tiny else 16_384, MASTER), place, 8)
        _show(f"text 1.3 B, {name}", rows)
        tokens[name] = median(row["tokens_per_s"] for row in rows)
    print(f"layers of transformers: {tokens['hf'] / tokens['our decoder']:.2f} times as fast as ours", flush=True)


def fp8(place: Place) -> None:
    """Eight blocks of the 7 B, whose products are in bf16 and in 8 bits. By reckoning products are three quarters of a
    step, and at twice the rate a step would take five eighths of its time; with gradients of weights in bf16, three
    quarters."""
    backbone, tokens = (TINY, 128) if place.tiny else ({"preset": "7b", "layers": 8}, 8192)
    found = {}
    for recipe in (None, "rowwise") if place.tiny else (None, "tensorwise", "rowwise_with_gw_hp", "rowwise"):
        rows = _run(_of_text(backbone, tokens, {**MASTER, "precision": "bf16", "fp8": recipe}), place, 10)
        _show(f"text, 8 layers of 7 B, products {'in bf16' if recipe is None else f'in 8 bits, {recipe}'}", rows)
        found[recipe] = median(row["tokens_per_s"] for row in rows)
        print(f"{recipe}: {found[recipe] / found[None]:.2f} times as fast as bf16", flush=True)


def lora(place: Place) -> None:
    """Text at 7 B, whose weights stay as they are: 15 GB, a row keeps 25 GB, and the updates with their state next to
    nothing. Products count twice, not three times."""
    backbone, tokens = (TINY, 128) if place.tiny else ({"preset": "7b"}, 8192)
    _show("text 7 B, bf16 weights, LoRA 16", _run(_of_text({**backbone, "lora": 16}, tokens, MASTER), place, 8))


def nf4(place: Place) -> None:
    """Four blocks of transformers in the shape of the 7 B, whose weights are kept in bf16 and in 4 bits beside updates.

    A row of 8,192 tokens does 16,384 operations a weight, twice; to make the weight whole reads half a byte and writes
    two, twice: by reckoning a hundredth of the step. Memory falls by 1.5 bytes a weight.
    """
    wide = {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 4}
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2}
    shape, tokens = {"model_type": "llama", **(small if place.tiny else wide)}, 128 if place.tiny else 8192
    found = {}
    for quantize in (None, "nf4"):
        backbone = {"name": "hf", "config": shape, "dtype": "bfloat16", "lora": {"rank": 16, "quantize": quantize}}
        rows = _run(_of_text(backbone, tokens, {"optimizer": "lion"}), place, 8)
        _show(f"LoRA 16, weights in {quantize or 'bf16'}", rows)
        found[quantize] = median(row["tokens_per_s"] for row in rows)
    print(f"weights in 4 bits: {found['nf4'] / found[None]:.2f} times as fast as in bf16", flush=True)


def _of_text(backbone: dict[str, Any], tokens: int, train: dict[str, Any]) -> dict[str, Any]:
    return {
        "modalities": [],
        "backbone": {"name": "decoder", **backbone},
        "data": {"sources": [_text_file()], "tokens_per_pack": tokens, "lanes": 1},
        "train": train,
    }


def pictures(place: Place) -> None:
    """Pictures with captions: a ViT-L that is trained, in front of a small decoder and of one of 1.3 B."""
    small = {"preset": "small"}
    cases = {
        "124 M, 4 rows of 8,192": (small, 4, 8192, 1),
        "124 M, 2 rows of 16,384": (small, 2, 16_384, 1),
        "1.3 B, 4 rows of 8,192": (WIDE, 4, 8192, 1),
        "1.3 B, 4 rows of 8,192, two as one": (WIDE, 4, 8192, 2),
    }
    for name, (backbone, lanes, tokens, at_once) in cases.items():
        over = _with_pictures(place, backbone, lanes=lanes, tokens=tokens)
        over["train"] = {**over["train"], "lanes_at_once": at_once}
        _show(f"image and text, decoder of {name}", _run(over, place, 12))


def joined(place: Place) -> None:
    """Short rows of pictures one after another, and as one: the same documents. The CPU launches each row by itself."""
    tokens = {}
    for at_once in (1, 4):
        over = _with_pictures(place, {"preset": "small"}, lanes=4, tokens=2048)
        over["train"] = {**over["train"], "lanes_at_once": at_once}
        rows = _run(over, place, 16)
        _show(f"image and text, decoder of 124 M, 4 rows of 2,048, {at_once} at once", rows)
        tokens[at_once] = median(row["tokens_per_s"] for row in rows)
    print(f"rows as one: {tokens[4] / tokens[1]:.2f} times as fast as one after another")


def lane(place: Place) -> None:
    """One lane of pictures, which one data worker or several decode."""
    for workers in (1, 2 if place.tiny else 8):
        rows = _run(_with_pictures(place, {"preset": "small"}, lanes=1, workers=workers), place, 40)
        late = rows[len(rows) // 3 :]  # what was decoded while the blocks were compiled is used up
        step_s, wait_s = (sum(row[key] for row in late) / len(late) for key in ("step_s", "data_wait_s"))
        print(
            f"one lane, {workers} data workers: {step_s:.3f} s a step, {100 * wait_s / step_s:.1f} % waiting for data"
        )


def generation(place: Place) -> None:
    """Greedy generation in bf16, one document and 32 together, beside transformers' ``generate`` of a Llama so shaped.

    The limit is to read the weights, 2.7 GB, once for all documents; keys and values, at the end 21 MB of each, are not
    in it. By reckoning 40 s: 30 calls of 48 tokens, for most of which about a thousand kernels are launched; where a
    graph replays them, they take about 3 microseconds each.
    """
    import generate as sides

    place.forget()
    backbone, tokens, together = (TINY, 4, 3) if place.tiny else (WIDE, 48, 32)
    parts = sides.composed({"name": "decoder", **backbone}, place.device)
    own: Any = parts.model.backbone
    peer = sides.of_transformers(own.shape, own.vocab_size, BF16, place.device)
    documents = sides.documents(together)
    prompts = [sides.ready_prompt(parts, document) for document in documents]
    lengths = [len(prompt.plan) for prompt in prompts]
    weights = torch.ones(sum(p.numel() for p in own.parameters()), device=place.device, dtype=BF16)
    into = torch.empty_like(weights)
    limit = place.seconds(lambda: into.copy_(weights)) / 2  # a copy reads them and writes as much
    cases: dict[str, tuple[int, dict[str, Callable[[], int]]]] = {
        "one document": (1, {
            "ours": lambda: sides.one_by_one(parts, documents[:1], tokens, BF16),
            "ours, launched anew": lambda: sides.launched(parts, sides.one_by_one, documents[:1], tokens, BF16),
            "transformers": lambda: sides.theirs(peer, lengths[:1], tokens),
        }),
        f"{together} together": (together, {
            "ours": lambda: sides.ours(parts, prompts, tokens, BF16),
            "ours, launched anew": lambda: sides.launched(parts, sides.ours, prompts, tokens, BF16),
            "transformers": lambda: sides.theirs(peer, lengths, tokens),
        }),
    }  # fmt: skip
    for case, (count, arms) in cases.items():
        for name, act in arms.items():
            if (written := act()) != count * tokens:
                raise RuntimeError(f"generation of {case}, {name}: {written} tokens, not {count * tokens}")
        times = {name: seconds / tokens for name, seconds in place.by_turns(arms, 3).items()}
        for name, seconds in times.items():
            print(
                f"generation of {case}, {name}: {1000 * seconds:.2f} ms a token, {count / seconds:,.0f} tokens/s, "
                f"{seconds / times['ours']:.2f}x ours, {limit / seconds:.2f} of the limit ({1000 * limit:.2f} ms)",
                flush=True,
            )


def _with_pictures(place: Place, backbone: dict[str, Any], *, tokens: int = 8192, **data: Any) -> dict[str, Any]:
    encoder = "test_vit" if place.tiny else "vit_large_patch14_clip_224.openai"
    source = DATA / "images/coco"
    if not source.exists():
        print("pictures: no data; KOSMOS_TEST_DATA says where they are; made pictures in their place")
    return {
        "modalities": ["image"],
        "streams": {
            "image": {"encoder": {"name": "timm", "model": encoder}, "connector": {"name": "pool", "factor": 2}}
        },
        "backbone": {"name": "decoder", **(backbone if not place.tiny else {"width": 64, "layers": 1, "heads": 2})},
        "data": {
            "sources": [str(source) if source.exists() else "shapes"],
            "tokens_per_pack": 256 if place.tiny else tokens, "workers": 0 if place.tiny else None, **data,
        },
        "train": MASTER,
    }  # fmt: skip


def _text_file() -> str:
    found = DATA / "text" / "tinyshakespeare.txt"
    return str(found) if found.exists() else "sums"


def _run(over: dict[str, Any], place: Place, steps: int) -> list[dict[str, Any]]:
    """The rows of a real run after its warm-up."""
    place.forget()
    with tempfile.TemporaryDirectory() as folder:
        base = {
            "train": {"steps": 5 if place.tiny else steps, "warmup_steps": 1, "device": place.device.type},
            "evaluate": {"max_documents": 1}, "trackers": [], "output": f"{folder}/run",
            "checkpoint": {"every_steps": 1000},
        }  # fmt: skip
        begin = perf_counter()
        train_model(make_run(base, over))
        spent = {name: sum(row["seconds"].get(name, 0) for row in _rows(folder, "goodput")) for name in SPENT}
        print(f"a run of {perf_counter() - begin:.0f} s: " + ", ".join(f"{k} {v:.1f} s" for k, v in spent.items()))
        return _rows(folder, "metrics")[4:]


SPENT = ("start_up", "compile", "evaluation", "blocking_save")


def _rows(folder: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "run", f"{name}.jsonl").read_text().splitlines()]


def _show(name: str, rows: list[dict[str, Any]]) -> None:
    def middle(key: str) -> float:
        return median(row[key] for row in rows)

    wait = sum(row["data_wait_s"] for row in rows) / sum(row["step_s"] for row in rows)
    print(
        f"{name}: {middle('tokens_per_s'):,.0f} tokens/s, MFU {100 * middle('mfu'):.1f} % (causal attention halved "
        f"{100 * middle('mfu_half_causal'):.1f} %), data wait {100 * wait:.1f} %, peak "
        f"{max(row['peak_memory_bytes'] for row in rows) / 2**30:.1f} GiB, compiled {rows[-1].get('compilations', 0)} "
        f"programs ({rows[-1].get('compilations', 0) - rows[0].get('compilations', 0)} after the warm-up)",
        flush=True,
    )
    modules = rows[0]["mfu_by_module"]
    of = {module: median(row["mfu_by_module"][module] for row in rows) for module in modules}
    print("  of it " + ", ".join(f"{module} {100 * share:.1f} %" for module, share in of.items()), flush=True)


PARTS: dict[str, Callable[[Place], None]] = {
    "optimizers": optimizers,
    "text": text,
    "pictures": pictures,
    "joined": joined,
    "fp8": fp8,
    "muon": orthogonal,
    "loss": loss,
    "attention": attention,
    "sounds": sounds,
    "generation": generation,
    "lora": lora,
    "lane": lane,
    "layers": layers,
    "nf4": nf4,
}
"""Those with a target first: what is begun too late is left out."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--seconds", type=float, default=490, help="no part begins later")
    given = parser.parse_args()
    if not given.tiny and not torch.cuda.is_available():
        raise SystemExit("no GPU: --tiny runs the same code at small sizes on a CPU")
    place = Place(torch.device("cpu" if given.tiny else "cuda"), given.tiny)
    print(torch.cuda.get_device_name() if place.device.type == "cuda" else "a CPU, small sizes", torch.__version__)
    started, failed, late = perf_counter(), 0, []
    for name in given.only or PARTS:
        begin = perf_counter()
        if begin - started > given.seconds:
            late.append(name)
            continue
        try:
            PARTS[name](place)
        except Exception:  # one part that fails must not cost the time of the others
            failed += 1
            traceback.print_exc()
        print(f"({name}: {perf_counter() - begin:.0f} s)", flush=True)
    print(f"(in all: {perf_counter() - started:.0f} s, of 540 at most)")
    if late:
        print("left out, for want of time: " + " ".join(f"--only {name}" for name in late))
    raise SystemExit(1 if failed or late else 0)


if __name__ == "__main__":
    main()

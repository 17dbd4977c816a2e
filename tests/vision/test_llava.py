"""Models of LLaVA: begun with by ``kosmos import``, and written by ``kosmos export --for llava``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoProcessor, LlavaForConditionalGeneration

import kosmos_vision.plugin
from kosmos import (
    ConfigError,
    Document,
    Generated,
    LayoutSpec,
    Media,
    Registry,
    SavedRun,
    Text,
    chat_prompt,
    generate_text,
    hookimpl,
    load_plugins,
    load_run,
    make_run,
)
from kosmos.cli import main
from kosmos.commands.whole_model import write_whole_model
from kosmos.compose import Composition, compose
from kosmos.testing import Conditions, promises_of
from kosmos.train.importing import import_folder
from kosmos.train.layout import ModelParts
from kosmos.train.run import train_model
from kosmos_vision.layouts.llava import LlavaLayout
from support.llavas import SIDE, SIZES, VICUNA, save_llava, tensors_of

QUESTION = "What is in this picture?"
KINDS = "clip", "siglip"
ENCODER = {
    "name": "timm", "model": "vit_base_patch16_clip_quickgelu_224", "image_size": 32, "layer": -2,
    "model_options": {"embed_dim": 32, "depth": 3, "num_heads": 2},
}  # fmt: skip
OWN: dict[str, Any] = {
    "modalities": {"image": {}},
    "streams": {"image": {"encoder": ENCODER, "connector": {"name": "mlp", "norm": False}}},
    "backbone": {"name": "decoder", "width": 32, "layers": 2, "heads": 2, "ffn_width": 48},
    "data": {"tokens_per_pack": 128, "workers": 0},
}


@pytest.fixture(scope="module")
def photo(shared_data: Callable[[str], Path]) -> Path:
    return sorted(shared_data("images/photos").rglob("*.jpg"))[0]


@pytest.fixture(scope="module", params=KINDS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A published model, and the run that was made of it."""
    place = tmp_path_factory.mktemp(request.param)
    save_llava(place / "published", request.param, side=336 if request.param == "clip" else SIDE)
    import_folder(place / "published", place / "run", load_plugins())
    return place / "published", place / "run"


def asked(photo: Path) -> Document:
    return Document("photo", (Media("image", photo), Text(QUESTION)))


def as_given(composition: Composition, document: Document) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [1, T] with -1 in slots, pixels as LLaVA takes them, and logits [T, V] of a prompt."""
    batch = composition.pack([document])
    values, encoder = batch.media["image"].values, composition.model.streams["image"].encoder
    side, px = round(len(values) ** 0.5), values.shape[-1]
    picture = values.view(side, side, 3, px, px).permute(2, 0, 3, 1, 4).reshape(1, 3, side * px, side * px)
    mean, std = (torch.tensor(of).view(3, 1, 1) for of in (encoder.input.mean, encoder.input.std))
    ids = batch.token_ids.clone()
    ids[batch.media["image"].slots] = -1
    with torch.no_grad():
        logits = composition.model.hidden(batch) @ composition.model.backbone.output_weight().T
    return ids[None], (picture / 255 - mean) / std, logits


def compared(run: Path, folder: Path, photo: Path) -> dict[str, Any]:
    """A run, and what transformers reads of it, at one prompt without its end."""
    composition = load_run(run, device="cpu").composition
    model, info = LlavaForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ids, pixels, ours = as_given(composition, asked(photo))
    filled = torch.where(ids < 0, model.config.image_token_id, ids)
    with torch.no_grad():
        theirs = model.eval()(input_ids=filled, pixel_values=pixels).logits[0]
    rows = min(theirs.shape[1], ours.shape[1])
    worst = (theirs[:, :rows] - ours[:, :rows]).abs().max().item()
    return {"composition": composition, "model": model, "ids": filled[:, :-1], "pixels": pixels, "worst": worst}


# what is read


def test_a_model_that_was_imported_has_the_logits_of_transformers(imported: tuple[Path, Path], photo: Path) -> None:
    published, run = imported
    assert compared(run, published, photo)["worst"] < 1e-4  # rounding in fp32: 6e-6 of 4


def test_pictures_and_tokens_are_as_the_published_processor_makes_them(
    imported: tuple[Path, Path], photo: Path
) -> None:
    published, run = imported
    found = compared(run, published, photo)
    given = AutoProcessor.from_pretrained(published)(
        images=Image.open(photo), text="<image>" + QUESTION, return_tensors="pt"
    )
    assert torch.equal(given["input_ids"], found["ids"])
    apart = (given["pixel_values"] - found["pixels"]).abs()
    assert apart.max() < 0.031 and apart.mean() < 0.005  # resampling: up to 2 steps of a byte, of 255


def test_what_was_imported_is_written_and_read_again_bit_for_bit(imported: tuple[Path, Path], tmp_path: Path) -> None:
    published, run = imported
    assert main(["export", str(run), str(tmp_path / "written"), "--for", "llava"]) == 0
    assert main(["import", str(tmp_path / "written"), str(tmp_path / "again")]) == 0
    first, again = tensors_of(run), tensors_of(tmp_path / "again")
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    stored = load_file(published / "model.safetensors")
    written = load_file(tmp_path / "written" / "model.safetensors")
    for name in (
        n
        for n in stored
        if "layers.2" not in n
        and "post_layernorm" not in n
        and "embed_tokens" not in n
        and "head.mlp" not in n
        and ".head." not in n
    ):
        theirs = name.replace("vision_tower.", "vision_tower.vision_model.").replace(
            "vision_model.vision_model", "vision_model"
        )
        assert torch.equal(stored[name], written[theirs][: len(stored[name])]), name


def test_a_model_that_was_imported_is_generated_with_and_trained_on(
    imported: tuple[Path, Path], photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = imported
    assert main(["generate", str(run), "--image", str(photo), "--prompt", "The", "--max-new-tokens", "3"]) == 0
    further = ["train", f"{run}/run.yaml", "--data", "shapes", "--output", str(tmp_path / "further")]
    quick = [
        "--steps",
        "1",
        "backbone.lora.rank=2",
        "streams.image.lora.rank=2",
        "data.workers=0",
        "evaluate.max_documents=2",
        "data.look_ahead=8",
    ]
    assert main([*further, *quick]) == 0
    assert "begins with backbone, streams.image.encoder, streams.image.connector of" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "further"), str(tmp_path / "served"), "--for", "llava"]) == 0
    assert compared(tmp_path / "further", tmp_path / "served", photo)["worst"] < 1e-4
    assert main(["train", "--resume", str(run)]) == 3
    assert "begin a run with it (init=" in capsys.readouterr().err


# what is written


@pytest.mark.parametrize(("chats", "marks"), [(None, True), ("chatml", ["", "\n"]), ("chatml", ["In: ", " \n"])])
def test_a_run_that_was_exported_answers_as_here(chats: str | None, marks: Any, photo: Path, tmp_path: Path) -> None:
    tokenizer = {"name": "bytes"}
    if chats:
        save_llava(tmp_path / "tokens", "clip", chatml=True)
        tokenizer = {"name": str(tmp_path / "tokens"), "turns": chats}
    settings = {**OWN, "tokenizer": tokenizer, "output": tmp_path / "run", "train": {"steps": 2, "precision": "fp32"}}
    pictures = {"marks": marks, "resize": "pad" if chats else "crop", "exact": True}
    settings |= {"evaluate": {"max_documents": 2}, "modalities": {"image": {"processor": pictures}}}
    train_model(make_run(settings))
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "written"), "--for", "llava"]) == 0
    found = compared(tmp_path / "run", tmp_path / "written", photo)
    assert found["worst"] < 1e-4
    processor = AutoProcessor.from_pretrained(tmp_path / "written")
    said = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    text = processor.apply_chat_template([{"role": "user", "content": said}], add_generation_prompt=True)
    given = processor(images=Image.open(photo), text=text, add_special_tokens=False, return_tensors="pt")
    composition: Composition = found["composition"]
    document = chat_prompt([Media("image", photo), Text(QUESTION)])
    plan = composition.planner.prompt(document)
    ours = torch.tensor(plan.token_ids.astype("int64"))
    ours[torch.tensor(plan.slots["image"].astype("int64"))] = found["model"].config.image_token_id
    assert given["input_ids"][0].tolist() == ours.tolist()
    answer = found["model"].generate(**given, max_new_tokens=6, do_sample=False)[0, len(ours) :]
    assert answer.tolist() == _answer(composition, document)
    again = import_folder(tmp_path / "written", tmp_path / "again", load_plugins())
    assert again.spells and again.composition.config.tokenizer.turns == composition.config.tokenizer.turns
    before, behind = again.composition.planner.routes["image"].processor.around  # type: ignore[attr-defined]
    assert [before, behind] == (["<image>", "</image>"] if marks is True else marks)


def _answer(composition: Composition, document: Document) -> list[int]:
    made: list[Generated] = []
    generate_text(composition, document, max_new_tokens=6, dtype=torch.float32, on_end=made.append)
    return [*made[0].token_ids]


def stream(encoder: dict[str, Any], connector: dict[str, Any]) -> dict[str, Any]:
    return {"streams": {"image": {"encoder": encoder or None, "connector": connector or None}}}


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (stream(ENCODER, {}), "streams.image.connector.norm: true"),
        (stream({**ENCODER, "layer": None}, {"norm": False}), "set layer: -2"),
        (stream(ENCODER, {"norm": False, "pool": [1, 2, 2]}), "connector.pool"),
        (stream(ENCODER, {"norm": False, "hidden": 8}), "connector.hidden: 8"),
        (stream(ENCODER, {"name": "linear"}), "set name: mlp"),
        (stream({}, {"norm": False}), "encoder: it is timm's EfficientNet"),
        ({"modalities": {"image": {"processor": {"max_tiles": 4}}}}, "max_tiles: 4"),
        ({"modalities": {}, "streams": {}}, "the run has no pictures"),
        ({"modalities": {"image": {}, "audio": {}}}, "modalities: audio"),
    ],
)  # fmt: skip
def test_a_run_that_is_no_llava_is_refused_with_what_to_set(over: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        LlavaLayout().write(parts(over))
    assert "\n" not in str(refused.value)


def parts(over: dict[str, Any]) -> ModelParts:
    composition = compose(make_run({**OWN, **over}), load_plugins())
    composition.model.eval()
    language: Any = composition.model.backbone
    return ModelParts(composition, language.to_transformers(128))


def test_who_exports_is_told_where_transformers_makes_other_pixels() -> None:
    def told(**options: Any) -> tuple[str, ...]:
        return LlavaLayout().write(parts({"modalities": {"image": {"processor": options}}})).hints

    (hint,) = told(resize="pad")
    assert "resize pad without exact" in hint and "exact: true" in hint
    assert told(resize="pad", exact=True) == ()


def test_a_run_with_weights_in_bf16_is_written_so(tmp_path: Path) -> None:
    settings = {**OWN, "train": {"steps": 1, "weights": "bf16"}, "evaluate": {"max_documents": 2}}
    train_model(make_run({**settings, "output": tmp_path / "run"}))
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "written"), "--for", "llava"]) == 0
    assert {tensor.dtype for tensor in load_file(tmp_path / "written" / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert LlavaForConditionalGeneration.from_pretrained(tmp_path / "written").dtype == torch.bfloat16


def test_a_tower_that_computes_otherwise_is_refused() -> None:
    given: Any = parts({})
    given.composition.model.streams["image"].encoder.model.blocks[1].norm1.eps = 1.0
    with pytest.raises(ConfigError, match="its features differ by"):
        LlavaLayout().write(given)


# names of layouts, turns, files


def test_a_layout_that_is_not_installed_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "written"), "--for", "lava"]) == 2
    said = "error[config]: --for lava: nothing that is installed writes for it; did you mean llava?\n"
    assert capsys.readouterr().err == said
    assert main(["export", "run", "m", "--for", "llava", "--part", "backbone"]) == 2
    assert "--part: --for llava writes a whole model" in capsys.readouterr().err


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "llava"
    save_llava(folder, "clip")
    return folder


def test_turns_are_those_of_the_template(tmp_path: Path) -> None:
    save_llava(tmp_path / "chatml", "siglip", chatml=True)
    made = import_folder(tmp_path / "chatml", tmp_path / "run", load_plugins())
    assert made.composition.config.tokenizer.turns is not None
    assert made.composition.config.tokenizer.turns.user == "<|im_start|>user\n{}<|im_end|>\n"


LOOSE = "USER: {% for m in messages %}{{ m.content }}{% endfor %} ASSISTANT:"


@pytest.mark.parametrize("spaced", [True, False])
def test_a_chat_of_vicuna_has_the_tokens_of_its_template(spaced: bool, photo: Path, tmp_path: Path) -> None:
    """Of a tokenizer that puts a space in front of a text: behind a picture it stands in front of the line end."""
    save_llava(tmp_path / "vicuna", "clip", vicuna=spaced)
    (tmp_path / "vicuna" / "chat_template.jinja").write_text(VICUNA)
    made = import_folder(tmp_path / "vicuna", tmp_path / "run", load_plugins())
    processor = AutoProcessor.from_pretrained(tmp_path / "vicuna")
    text = [{"type": "text", "text": QUESTION}]
    for system in ([], [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]):
        said = [*system, {"role": "user", "content": [{"type": "image"}, *text]}]
        prompt = processor.apply_chat_template(said, add_generation_prompt=True)
        given = processor(images=Image.open(photo), text=prompt, return_tensors="pt")["input_ids"][0]
        brief = "Be brief." if system else ""
        plan = made.composition.planner.prompt(chat_prompt([Media("image", photo), Text(QUESTION)], system=brief))
        ours = torch.tensor(plan.token_ids.astype("int64"))
        ours[torch.tensor(plan.slots["image"].astype("int64"))] = processor.tokenizer.convert_tokens_to_ids("<image>")
        assert given.tolist() == ours.tolist()
    assert any("begin the answers of rows with one" in hint for hint in made.hints)
    (tmp_path / "vicuna" / "chat_template.jinja").write_text(LOOSE)
    again = import_folder(tmp_path / "vicuna", tmp_path / "again", load_plugins())
    line_end = " \\n" if spaced else "\\n"
    assert not again.spells and f"set it to ['', '{line_end}'] in the run file" in again.hints[0]


def test_a_folder_of_an_older_transformers_is_read(published: Path, tmp_path: Path) -> None:
    shutil.copytree(published, tmp_path / "older")
    file = tmp_path / "older" / "config.json"
    config = json.loads(file.read_text())
    config["text_config"] |= {"return_dict": True, "temperature": 1.0, "pruned_heads": {}, "_name_or_path": "lmsys/x"}
    config["text_config"] |= {"torch_dtype": "float16", "architectures": ["LlamaForCausalLM"]}
    config["vision_config"] |= {"vocab_size": 300, "torch_dtype": "float16"}
    file.write_text(json.dumps(config | {"ignore_index": -100, "pad_token_id": 3}))
    tensors = load_file(tmp_path / "older" / "model.safetensors")
    half = {name.replace("vision_tower.", "vision_tower.vision_model."): t.half() for name, t in tensors.items()}
    half["vision_tower.vision_model.embeddings.position_ids"] = torch.arange(17)[None]
    save_file(half, tmp_path / "older" / "model.safetensors")
    import_folder(tmp_path / "older", tmp_path / "run", load_plugins())
    found = tensors_of(tmp_path / "run")["model.streams.image.connector.layers.0.weight"]
    assert torch.equal(found, tensors["multi_modal_projector.linear_1.weight"].half().float())


def test_a_large_model_is_written_in_several_files(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_folder(published, tmp_path / "run", load_plugins())
    monkeypatch.setattr("kosmos.commands.whole_model.FILE_BYTES", 100_000)
    run: SavedRun = load_run(tmp_path / "run", device="cpu", merge=True)
    write_whole_model(run, tmp_path / "written", LlavaLayout())
    assert len(list((tmp_path / "written").glob("model-*-of-*.safetensors"))) > 1
    import_folder(tmp_path / "written", tmp_path / "again", load_plugins())
    first, again = tensors_of(tmp_path / "run"), tensors_of(tmp_path / "again")
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("lava", "no such layout is installed; did you mean llava?"),
        ("plain", "is none of it (its config.json says model_type 'llava')"),
        (None, "is read by the layouts"),
    ],
)
def test_the_layout_is_the_one_that_is_named_or_the_only_one_that_knows_the_folder(
    named: str | None, said: str, published: Path, tmp_path: Path
) -> None:
    registry = Registry.from_modules({"vision": kosmos_vision.plugin, "other": Others})
    with pytest.raises(ConfigError) as refused:
        import_folder(published, tmp_path / "run", registry, named)
    assert said in str(refused.value)
    import_folder(published, tmp_path / "run", registry, "llava")
    with pytest.raises(ConfigError, match="is there already"):
        import_folder(published, tmp_path / "run", registry, "llava")


class Plain(LlavaLayout):
    def matches(self, config: Mapping[str, Any]) -> bool:
        return False


class Others:
    """A plugin with a second layout that knows the same folders, and one that knows none."""

    KOSMOS_API = 1

    @hookimpl
    def kosmos_layouts() -> list[LayoutSpec]:  # type: ignore[misc]
        return [
            LayoutSpec(name="also", target=f"{__name__}:LlavaLayout", summary="The same."),
            LayoutSpec(name="plain", target=f"{__name__}:Plain", summary="None."),
        ]


def test_the_layout_keeps_its_promises() -> None:
    few = {"model_type": "llama", "num_hidden_layers": 1, **SIZES}
    conditions = Conditions(runs={"llava": {**OWN, "backbone": {"name": "hf", "config": few}}})
    wanted = promises_of(load_plugins(), plugins=["vision"], conditions=conditions, fast=True)
    found = [promise.verdict() for promise in wanted if promise.component == "layout llava"]
    assert [verdict.message for verdict in found if verdict.outcome != "passed"] == []
    assert {"leaves-others", "refuses-others", "gives-back"} <= {verdict.id for verdict in found}

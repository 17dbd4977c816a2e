"""How LLaVA brings pictures to their size: ``preprocessor_config.json``, as options of the modality and back."""

from __future__ import annotations

from typing import Any

from kosmos import ConfigError, ModelFolder

_BICUBIC = 3
FILE = "preprocessor_config.json"


def read_pictures(folder: ModelFolder, side: int) -> tuple[str, dict[str, Any]]:
    """How pictures are resized (an option of the modality), and mean and std of their colours.

    Args:
        side: of the pictures that the tower takes, in pixels.

    Raises:
        ConfigError: nothing is said, or pictures are prepared as none are here.
    """
    stated, where = folder.preparation("image_processor")
    for name, expected in (("do_resize", True), ("do_rescale", True), ("do_normalize", True), ("resample", _BICUBIC)):
        if stated.get(name, expected) != expected:
            raise ConfigError(
                f"{where}: {name}: expected {expected}, got {stated[name]!r:.40}; pictures here are so prepared"
            )
    factor = stated.get("rescale_factor", 1 / 255)
    if not isinstance(factor, int | float) or abs(factor * 255 - 1) > 1e-3:
        raise ConfigError(f"{where}: rescale_factor: expected 1/255, got {factor!r:.40}")
    return _fit(stated, side, where), {
        kind: _three(stated.get(f"image_{kind}"), kind, where) for kind in ("mean", "std")
    }


def _fit(stated: dict[str, Any], side: int, where: str) -> str:
    size, crop = _sides(stated.get("size")), _sides(stated.get("crop_size"))
    crops = bool(stated.get("do_center_crop")) and crop is not None
    if size in ({"shortest_edge": side}, {"height": side, "width": side}) and (not crops or crop in _squares(side)):
        if stated.get("do_pad"):
            return "pad"
        if "height" in size:
            return "squash"
        if crops:
            return "crop"
    raise ConfigError(
        f"{where}: size {stated.get('size')!r:.60}, crop_size {stated.get('crop_size')!r:.60}, do_center_crop "
        f"{bool(stated.get('do_center_crop'))}: expected what makes {side} x {side} pixels, which the tower takes"
    )


def _squares(side: int) -> tuple[dict[str, int], ...]:
    return {"height": side, "width": side}, {"shortest_edge": side}


def _sides(value: Any) -> dict[str, Any] | None:
    if isinstance(value, int):
        return {"shortest_edge": value}
    return {name: side for name, side in value.items() if side is not None} if isinstance(value, dict) else None


def _three(value: Any, kind: str, where: str) -> list[float]:
    right = isinstance(value, list) and len(value) == 3 and all(type(one) in (int, float) for one in value)
    if not right or (kind == "std" and min(value) <= 0):
        raise ConfigError(f"{where}: image_{kind}: expected three numbers, got {value!r:.60}")
    return [float(one) for one in value]


def written_pictures(resize: str, side: int, mean: tuple[float, ...], std: tuple[float, ...]) -> dict[str, Any]:
    """The file, by the option ``resize`` of the modality."""
    square = {"height": side, "width": side}
    return {
        "image_processor_type": "LlavaImageProcessor" if resize == "pad" else "CLIPImageProcessor",
        "processor_class": "LlavaProcessor", "do_convert_rgb": True, "do_resize": True, "resample": _BICUBIC,
        "size": square if resize == "squash" else {"shortest_edge": side},
        "do_center_crop": True, "crop_size": square, **({"do_pad": True} if resize == "pad" else {}),
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(mean), "image_std": list(std),
    }  # fmt: skip

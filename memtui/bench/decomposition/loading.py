"""Loads a network and its example input, in the process that runs it. ``torch`` is passed in, and not imported here."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.text import nearest
from memtui.core.user_function import NoFunction, load_function

SIZE, CHANNELS = 224, 3  # of images where the network does not say
FRAMES = 16  # of a video
SHAPE = "(model, inputs), as in: return model, torch.randn(1, 3, 224, 224)"
_SLOW_WEIGHTS = ("googlenet", "inception_v3")  # of torchvision: their usual random weights take seconds

_DEFINED: list[Any] = []  # libraries of operators, which last as long as they are held


class NoNetwork(Exception):
    """The network cannot be loaded or run; the message says why, in one line."""


@dataclass(frozen=True)
class LoadedNetwork:
    """A network that is ready to be called: ``model(*arguments, **named)``."""

    model: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self) -> Any:
        return self.model(*self.arguments, **self.named)


def load(torch: Any, name: str, n: int, size: int, device: Any, dtype: Any) -> LoadedNetwork:
    """Return a network in evaluation mode with its input, on a device, its numbers in a type.

    Args:
        torch: the module.
        name: ``text`` of a ``NetworkName``.
        n: images for a library's network.
        size: their height and width; 0: the network's own.
        device: of the weights and inputs.
        dtype: of the weights and inputs that are not whole numbers.

    Raises:
        NoNetwork: it cannot be loaded.
    """
    torch.manual_seed(0)
    library, _, model_name = name.partition(":")
    try:
        if library == "torchvision":
            model, inputs = _of_torchvision(torch, model_name, n, size)
        elif library == "timm":
            model, inputs = _of_timm(torch, model_name, n, size)
        else:
            model, inputs = _of_file(torch, name)

        def move(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)

        # A tuple may have names, and a dict may be in it.
        arguments, named = torch.utils._pytree.tree_map(move, _arguments(torch, name, inputs))
        return LoadedNetwork(model.eval().to(device=device, dtype=dtype), arguments, named)
    except NoNetwork:
        raise
    except NoFunction as error:
        raise NoNetwork(str(error)) from None
    except Exception as error:
        raise NoNetwork(f"{name}: {in_a_line(error)}") from error


def in_a_line(error: BaseException) -> str:
    """Return an error as one line, with the line of a file outside of installed packages that it came from."""
    first = next(filter(None, map(str.strip, str(error).splitlines())), "")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
    own = [f for f in frames if not Path(f.filename).is_relative_to(Path(__file__).parents[2])]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line})" if own else ""
    return f"{type(error).__name__}: {first}{where}"


def _of_torchvision(torch: Any, name: str, n: int, size: int) -> tuple[Any, Any]:
    models = library_of(torch, "torchvision.models")
    if name not in (names := models.list_models()):
        raise NoNetwork(f"torchvision has no network {name}; {nearest(name, names, 'torchvision.models names them')}")
    more: dict[str, Any] = {"init_weights": False} if name in _SLOW_WEIGHTS else {}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        more["weights_backbone"] = None
    model = models.get_model(name, weights=None, **more)
    own = getattr(model, "image_size", 0)
    side = size or (own if isinstance(own, int) and own else 0) or _crop_size(models, name)
    is_video = models.get_model_builder(name).__module__.startswith("torchvision.models.video.")
    return model, torch.randn(n, CHANNELS, *((FRAMES,) if is_video else ()), side, side)


def library_of(torch: Any, name: str) -> Any:
    """Return a module of torchvision, or timm, which imports it, also of a build for CUDA beside PyTorch for CPUs.

    The operators of such a build (they are about boxes) cannot be loaded, and torchvision then fails at their names. No
    network that gives one tensor calls them, so the names are enough.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    operators = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DEFINED.append(operators)
    return importlib.import_module(name)


def _crop_size(models: Any, name: str) -> int:
    """Return the size of the images that the published weights of a network were trained with; nothing is loaded."""
    weights = list(models.get_model_weights(name))
    crop = getattr(weights[0].transforms(), "crop_size", None) if weights else None
    return int(crop[0]) if isinstance(crop, list | tuple) and crop else SIZE


def _of_timm(torch: Any, name: str, n: int, size: int) -> tuple[Any, Any]:
    timm = library_of(torch, "timm")
    if not timm.is_model(name):
        raise NoNetwork(
            f"timm has no network {name}; {nearest(name, timm.list_models(), 'timm.list_models names them')}"
        )
    model = timm.create_model(name, pretrained=False)
    channels, high, wide = (getattr(model, "default_cfg", None) or {}).get("input_size", (CHANNELS, SIZE, SIZE))
    return model, torch.randn(n, channels, size or high, size or wide)


def _of_file(torch: Any, name: str) -> tuple[Any, Any]:
    """Return what ``FILE.py:function`` returns: a model and inputs, and perhaps a loss, as for ``memtui place``."""
    file, _, function = name.rpartition(":")
    path = Path(file)
    returned = load_function(path, function, f"memtui_bench_{path.stem}")()
    if not (
        isinstance(returned, tuple | list) and len(returned) in (2, 3) and isinstance(returned[0], torch.nn.Module)
    ):
        raise NoNetwork(f"{name} has to return a torch.nn.Module and its input: {SHAPE}")
    return returned[0], returned[1]


def _arguments(torch: Any, name: str, inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a call: one tensor, several in a row, or several by name."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise NoNetwork(
        f"{name}: an input is a tensor, a list of arguments, or a dict of them, not {type(inputs).__name__}"
    )

"""Checks of a training before anything is started: shapes, files, PyTorch is installed. Does not import torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.core.file_set import make_folder
from memtui.core.files import check_folder, check_place
from memtui.core.os_errors import CREATE, refused
from memtui.core.small_file import check_readable
from memtui.training.datasets import CLASSES, check_batch, check_files, examples, shape_of
from memtui.training.network_specs import check_shapes, data_shape, layers_of
from memtui.training.settings import FROM_FOLDER, Settings

INSTALL_TENSORBOARD = "pip install 'memtui[tensorboard]'"


def check(settings: Settings) -> None:
    """Raise UserError for layers whose shapes do not fit, and for missing files of a data set."""
    layers = layers_of(settings.sequence, CLASSES[settings.dataset_name])
    shape = shape_of(settings.dataset_name, data_shape(settings.sequence))
    check_shapes(layers, shape, CLASSES[settings.dataset_name])
    if settings.dataset_name in FROM_FOLDER:
        check_files(settings.dataset_name, settings.data)
    if (count := examples(settings.dataset_name, shape)) is not None:
        check_batch(settings.batch_size, count)
    if settings.restore_model:
        check_readable(Path(settings.restore_model_path or ""))
    if settings.save_model:
        check_place(Path(settings.save_model_path or ""), force=True)


def check_event_files(folder: Path) -> None:
    """Create the folder. Raise UserError where TensorBoard is not installed, or no file can be written there."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(f"event files need TensorBoard, which is not installed: {INSTALL_TENSORBOARD}", FAILURE)
    try:
        created = make_folder(folder)
    except OSError as error:
        raise refused(folder, error, CREATE, remedy="name another folder with --tensorboard") from None
    if not created:
        check_folder(folder)


def check_torch() -> None:
    """Raise UserError where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UserError("training needs PyTorch, which is not installed: pip install 'memtui[torch]'", FAILURE)

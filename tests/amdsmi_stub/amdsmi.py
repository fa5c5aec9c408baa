"""A stand-in for AMD's module amdsmi 7.0: the same calls, keys, units, errors and checks, on GPUs told by a file.

The file is named by AMDSMI_STUB and is read in every call: ``{"init": code, "gpus": [{...}], "hang": path}``. A GPU has
the results of the calls by their names without ``amdsmi_get_``; a number in place of a result is the code of an error.
"""

from __future__ import annotations

import json
import os
import time
from enum import IntEnum
from pathlib import Path
from typing import Any

_TEXTS = {
    2: "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    10: "AMDSMI_STATUS_NO_PERM - Permission Denied",
    34: "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded",
    40: "AMDSMI_STATUS_NO_DATA - No data was found for given input",
}


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code
        self.err_info = _TEXTS.get(err_code, "AMDSMI_STATUS_UNKNOWN_ERROR - An unknown error occurred")


class AmdSmiParameterException(AmdSmiException):
    pass


class AmdSmiVramType(IntEnum):
    UNKNOWN = 0
    HBM3 = 4
    DDR4 = 12
    GDDR6 = 22


class Handle:
    """What ``amdsmi_processor_handle`` is: nothing else is taken."""

    def __init__(self, index: int) -> None:
        self.index = index


def _told() -> dict[str, Any]:
    told = json.loads(Path(os.environ["AMDSMI_STUB"]).read_text())
    while told.get("hang") and Path(told["hang"]).exists():
        time.sleep(0.02)
    return told


def _get(call: str, handle: Handle) -> Any:
    if not isinstance(handle, Handle):
        raise AmdSmiParameterException(handle, Handle)
    result = _told()["gpus"][handle.index].get(call, 2)
    if isinstance(result, int):
        raise AmdSmiLibraryException(result)
    return result


def amdsmi_init(flag: int = 2) -> None:
    if code := _told().get("init", 0):
        raise AmdSmiLibraryException(code)


def amdsmi_get_processor_handles() -> list[Handle]:
    return [Handle(n) for n in range(len(_told()["gpus"]))]


def amdsmi_get_gpu_device_bdf(processor_handle: Handle) -> str:
    return _get("gpu_device_bdf", processor_handle)


def amdsmi_get_gpu_asic_info(processor_handle: Handle) -> dict[str, Any]:
    return _get("gpu_asic_info", processor_handle)


def amdsmi_get_gpu_vram_info(processor_handle: Handle) -> dict[str, Any]:
    return _get("gpu_vram_info", processor_handle)


def amdsmi_get_power_cap_info(processor_handle: Handle) -> dict[str, Any]:
    return _get("power_cap_info", processor_handle)


def amdsmi_get_power_info(processor_handle: Handle) -> dict[str, Any]:
    return _get("power_info", processor_handle)


def amdsmi_get_energy_count(processor_handle: Handle) -> dict[str, Any]:
    return _get("energy_count", processor_handle)


def amdsmi_get_gpu_activity(processor_handle: Handle) -> dict[str, Any]:
    return _get("gpu_activity", processor_handle)


def amdsmi_get_gpu_vram_usage(processor_handle: Handle) -> dict[str, Any]:
    return _get("gpu_vram_usage", processor_handle)


def amdsmi_get_gpu_process_list(processor_handle: Handle) -> list[dict[str, Any]]:
    return _get("gpu_process_list", processor_handle)

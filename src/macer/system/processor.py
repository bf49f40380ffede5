"""The processor whose arithmetic a network's outputs depend on in their last bits."""

import platform
from pathlib import Path

import torch

# Instructions for which libraries have kernels of their own, beside those that torch names.
_EXTENSIONS = ("fma", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "avx_vnni")


def instruction_set(device: torch.device) -> str | None:
    """What tells CPUs apart on which the same network may round differently; None for a GPU.

    The capability that torch uses, which ATEN_CPU_CAPABILITY can lower; then vendor and extensions,
    by which libraries choose their kernels.
    """
    if device.type != "cpu":
        return None
    return " ".join((torch.backends.cpu.get_cpu_capability(), *_vendor_and_extensions()))


def _vendor_and_extensions() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [platform.machine()]
    entries = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    flags = entries.get("flags", "").split()
    vendor = entries.get("vendor_id", platform.machine()).strip(" :\t")
    return [vendor, *(name for name in _EXTENSIONS if name in flags)]

"""The processor type, because the last bits of a network's outputs depend on it."""

import platform
from pathlib import Path

import torch

# Libraries have special kernels for these instructions, which torch's capability does not name.
_EXTENSIONS = ("fma", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "avx_vnni")


def instruction_set(device: torch.device) -> str | None:
    """The properties of a CPU that decide how a network's outputs are rounded; None for a GPU.

    First the capability that torch uses, which ATEN_CPU_CAPABILITY can lower; then the vendor and
    the extensions by which libraries choose their kernels.
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

"""This machine as a record: stable facts with a fingerprint, plus measured peaks.

In: /proc, /sys, NVML when present, and two small generated C loops. Out: a frozen `Machine`.
Never here: caching (the caller's business), host names, anything that changes between two boots of
one machine inside the fingerprint.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernelgen.targets.cpu import compile_shared

# The words schedules and flags ask about. Others are left out so that a microcode update that adds
# an unrelated flag does not make the same machine look like a new one.
_ISA_WORDS = frozenset(
    {
        "sse4_2",
        "avx",
        "f16c",
        "fma",
        "avx2",
        "bmi1",
        "bmi2",
        "avx_vnni",
        "avx512f",
        "avx512cd",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
        "asimd",
        "asimddp",
        "asimdhp",
        "sve",
        "sve2",
        "bf16",
        "i8mm",
    }
)

_GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True)
class Machine:
    """`isa`: sorted instruction-set words. Peaks are per core and None when unmeasured; caches are
    per core but L3.
    """

    cpu_model: str
    architecture: str
    isa: tuple[str, ...]
    cores: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    kernel: str
    gpus: tuple[Gpu, ...]
    fingerprint: str
    peak_gflops_per_core: float | None
    peak_gbps_per_core: float | None

    def to_dict(self) -> dict[str, object]:
        """JSON-able; `from_dict` reads it back to an equal record."""
        data = asdict(self)
        data["isa"] = list(self.isa)
        data["gpus"] = [asdict(gpu) for gpu in self.gpus]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Machine:
        """Raises `ValueError` naming the field that is missing or of the wrong kind."""
        isa, gpus = data.get("isa"), data.get("gpus")
        if not isinstance(isa, list | tuple):
            raise ValueError(f"machine.isa: got {isa!r}, wanted a list of words")
        if not isinstance(gpus, list | tuple):
            raise ValueError(f"machine.gpus: got {gpus!r}, wanted a list")
        return cls(
            cpu_model=_text(data, "cpu_model"),
            architecture=_text(data, "architecture"),
            isa=tuple(str(word) for word in isa),
            cores=_count(data, "cores"),
            l1d_bytes=_count(data, "l1d_bytes"),
            l2_bytes=_count(data, "l2_bytes"),
            l3_bytes=_count(data, "l3_bytes"),
            memory_bytes=_count(data, "memory_bytes"),
            kernel=_text(data, "kernel"),
            gpus=tuple(
                Gpu(_text(gpu, "name"), _count(gpu, "memory_bytes"), _text(gpu, "driver"))
                for gpu in gpus
            ),
            fingerprint=_text(data, "fingerprint"),
            peak_gflops_per_core=_peak(data, "peak_gflops_per_core"),
            peak_gbps_per_core=_peak(data, "peak_gbps_per_core"),
        )


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ValueError(f"machine.{key}: got {value!r}, wanted text")
    return value


def _count(data: Mapping[str, object], key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"machine.{key}: got {value!r}, wanted a whole number")
    return value


def _peak(data: Mapping[str, object], key: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"machine.{key}: got {value!r}, wanted a number or null")
    return float(value)


def describe(*, measure: bool = True) -> Machine:
    """Read this machine; with `measure` also time both peaks on the calling core (about half a
    second).

    Raises `RuntimeError` with the compiler's words when the measuring loops do not compile.
    """
    model, isa = _cpu(Path("/proc/cpuinfo"))
    caches = _caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    facts = Machine(
        cpu_model=model,
        architecture=platform.machine(),
        isa=isa,
        cores=os.cpu_count() or 1,
        l1d_bytes=caches.get((1, "Data"), 0),
        l2_bytes=caches.get((2, "Unified"), 0),
        l3_bytes=caches.get((3, "Unified"), 0),
        memory_bytes=_memory(Path("/proc/meminfo")),
        kernel=platform.release(),
        gpus=_gpus(),
        fingerprint="",
        peak_gflops_per_core=None,
        peak_gbps_per_core=None,
    )
    machine = replace(facts, fingerprint=fingerprint_of(facts))
    if not measure:
        return machine
    gflops, gbps = _measure(machine)
    return replace(machine, peak_gflops_per_core=gflops, peak_gbps_per_core=gbps)


def fingerprint_of(machine: Machine) -> str:
    """SHA-256 over the facts that stay the same from boot to boot; memory counts in whole GiB."""
    stable = {
        "cpu_model": machine.cpu_model,
        "architecture": machine.architecture,
        "isa": list(machine.isa),
        "cores": machine.cores,
        "caches": [machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes],
        "memory_gib": round(machine.memory_bytes / _GIB),
        "gpus": [[gpu.name, gpu.memory_bytes] for gpu in machine.gpus],
    }
    text = json.dumps(stable, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_SYS_ARCH_PRCTL = 158


def allow_tiles() -> bool:
    """Ask the operating system for this process's use of the matrix unit (AMX); False when it
    refuses.

    Linux hands out the unit's large register state on request only
    (Documentation/arch/x86/xstate.rst); the grant lasts for the process and passes to its threads
    and children. Asking twice is harmless.
    """
    if platform.machine() != "x86_64":
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return bool(syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)


def _cpu(path: Path) -> tuple[str, tuple[str, ...]]:
    model, words = platform.machine(), set[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            model = value
        elif key in ("flags", "Features"):
            words |= set(value.split()) & _ISA_WORDS
            break
    if "amx_tile" in words and not allow_tiles():
        # A unit that the system does not hand out is as good as none: code for it dies of SIGILL.
        words -= {word for word in words if word.startswith("amx_")}
    return model, tuple(sorted(words))


def _caches(folder: Path) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for index in sorted(folder.glob("index*")):
        level = int((index / "level").read_text())
        kind = (index / "type").read_text().strip()
        size = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
        if size is not None:
            scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size.group(2)]
            found[level, kind] = int(size.group(1)) * scale
    return found


def _memory(path: Path) -> int:
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs as NVML sees them; none when the library or the driver is absent."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            found.append(Gpu(str(pynvml.nvmlDeviceGetName(handle)), memory, driver))
        return tuple(found)
    finally:
        pynvml.nvmlShutdown()


def vector_floats(isa: tuple[str, ...]) -> int:
    """Widest float32 vector the ISA adds and multiplies in one instruction."""
    if "avx512f" in isa:
        return 16
    return 8 if "avx2" in isa else 4


def isa_flags(isa: tuple[str, ...], vector: int) -> tuple[str, ...]:
    """GCC flags for `vector` floats: named levels, so that the same text builds the same code
    anywhere.
    """
    if "avx512f" in isa and vector >= 16:
        bytes_dot = ("-mavx512vnni",) if "avx512_vnni" in isa else ()
        return ("-march=x86-64-v4", "-mprefer-vector-width=512", *bytes_dot)
    if "avx2" in isa and vector >= 8:
        bytes_dot = ("-mavxvnni",) if "avx_vnni" in isa else ()
        return ("-march=x86-64-v3", *bytes_dot)
    return ()


_PEAKS = """\
/* Peaks of one core: independent fused multiply-adds in registers, and a stream triad over arrays
   beyond L2. */
#include <stddef.h>
#include <time.h>
typedef float vec __attribute__((vector_size({bytes})));
#define CHAINS 12
static double now(void) {{
  struct timespec t; clock_gettime(CLOCK_MONOTONIC_RAW, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}}
/* GFLOP/s; `out` keeps the sums alive. */
__attribute__((visibility("default"))) double fma_peak(float *out, long rounds) {{
  vec sum[CHAINS], x, y;
  for (int i = 0; i < {floats}; i++) {{ x[i] = 0.999999f; y[i] = 1e-6f; }}
  for (int c = 0; c < CHAINS; c++) sum[c] = y * (float)c;
  double start = now();
  for (long r = 0; r < rounds; r++) {{
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * x + y;
  }}
  double seconds = now() - start;
  for (int c = 0; c < CHAINS; c++)
    for (int i = 0; i < {floats}; i++) out[c * {floats} + i] = sum[c][i];
  return 2e-9 * rounds * CHAINS * {floats} / seconds;
}}
/* GB/s, counting two reads and one write per element. */
__attribute__((visibility("default")))
double triad(float *a, const float *b, const float *c, size_t count) {{
  double start = now();
  for (size_t i = 0; i + {floats} <= count; i += {floats})
    *(vec *)(a + i) = *(const vec *)(b + i) + *(const vec *)(c + i) * 3.0f;
  return 12e-9 * count / (now() - start);
}}
"""

_TRIAD_FLOATS = 8 << 20
_REPEATS = 7


def _measure(machine: Machine) -> tuple[float, float]:
    """Best of a few short rounds of each loop: a peak is what the core can do when nobody disturbs
    it.
    """
    import numpy as np

    floats = vector_floats(machine.isa)
    text = _PEAKS.format(bytes=4 * floats, floats=floats)
    with tempfile.TemporaryDirectory(prefix="kernelgen-peak-") as folder:
        flags = ("-O3", *isa_flags(machine.isa, floats))
        built = compile_shared(text, flags, Path(folder) / "peak.so")
        if built.path is None:
            raise RuntimeError(f"the peak loops do not compile: {built.stderr}")
        library = ctypes.CDLL(str(built.path))
        library.fma_peak.restype = library.triad.restype = ctypes.c_double
        library.fma_peak.argtypes = [ctypes.c_void_p, ctypes.c_long]
        library.triad.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
        sink = np.zeros(12 * floats, np.float32)
        gflops = max(float(library.fma_peak(sink.ctypes.data, 1_000_000)) for _ in range(_REPEATS))
        # One block cut at 64-byte boundaries: the triad's vector type promises alignment.
        block = np.ones(3 * _TRIAD_FLOATS + 16, np.float32)
        first = block.ctypes.data + (-block.ctypes.data) % 64
        step = 4 * _TRIAD_FLOATS
        gbps = max(
            float(library.triad(first, first + step, first + 2 * step, _TRIAD_FLOATS))
            for _ in range(_REPEATS)
        )
    return round(gflops, 2), round(gbps, 2)

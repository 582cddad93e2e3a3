"""What a shared object would do to its process before and after loading, read from its file, never
by loading it.

In: a path. Out: nothing, or a `Refusal`. Everything not known to be harmless is refused: dynamic
entries, relocations, imports and exports each have a list of what a kernel needs.
Never here: running the object.
"""

from __future__ import annotations

from pathlib import Path

from kernelgen.judge import elf
from kernelgen.judge.session import Refusal

MATHEMATICS = ("memcpy", "memset", "memmove", "expf", "erff", "sqrtf", "tanhf", "fmaf")
START_UP = (
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
)
"""Names that compiler and linker put into every shared object."""

ALLOWED = frozenset(MATHEMATICS + START_UP)
REQUIRED = frozenset(("kernel", "packed_bytes", "prepare", "scratch_bytes"))
LINKER = frozenset(("_init", "_fini", "_edata", "_end", "__bss_start"))
LIBRARIES = frozenset(("libc.so.6", "libm.so.6"))

_THREAD_LOCAL, _RESOLVED_BY_CODE = 6, 10

_CODE_ON_LOADING = {
    12: "INIT",
    13: "FINI",
    25: "INIT_ARRAY",
    26: "FINI_ARRAY",
    32: "PREINIT_ARRAY",
}
# fmt: off
_HARMLESS = frozenset((
    # NEEDED PLTRELSZ PLTGOT HASH STRTAB SYMTAB RELA RELASZ RELAENT STRSZ SYMENT SONAME SYMBOLIC
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 16,
    # PLTREL JMPREL BIND_NOW INIT_ARRAYSZ FINI_ARRAYSZ FLAGS
    20, 23, 24, 27, 28, 30,
    # GNU_HASH VERSYM RELACOUNT FLAGS_1 VERDEF VERDEFNUM VERNEED VERNEEDNUM
    0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF,
))
# fmt: on
_MARKS = range(0x70000001, 0x70000006)
"""Processor marks (branch protection, vector calling convention); none runs code."""

_FLAGS, _TEXT_CHANGES, _STATIC_THREAD_LOCAL = 30, 4, 16

_X86_64, _AARCH64, _RISCV = 62, 183, 243
_PLAIN_RELOCATIONS = {_X86_64: (1, 6, 7, 8), _AARCH64: (257, 1025, 1026, 1027), _RISCV: (2, 3, 5)}
"""Absolute address, data and function slot, relative address: changes that run no code."""

_INDIRECT = {_X86_64: 37, _AARCH64: 1032, _RISCV: 58}
_COPY = {_X86_64: 5, _AARCH64: 1024, _RISCV: 4}


def check(library: Path) -> None:
    """Refuse an object with foreign symbols, code that runs on loading, or no kernel in it."""
    try:
        image = elf.read(library.read_bytes())
    except (elf.ElfError, OSError) as error:
        raise Refusal("not_loadable", f"{library.name}: {error}") from error
    _check_segments(image)
    _check_entries(image)
    _check_relocations(image)
    _check_symbols(image)


def _check_segments(image: elf.Image) -> None:
    stacks = [part for part in image.segments if part.kind == elf.STACK]
    if not stacks or any(part.flags & elf.EXECUTABLE for part in stacks):
        raise Refusal(
            "unsafe_object",
            "it asks for an executable stack (nested functions, or assembly without its note)",
        )
    for part in image.segments:
        if part.kind == elf.THREAD_LOCAL:
            raise Refusal("constructor", "thread-local storage is set up on loading")
        if part.kind == elf.LOAD and part.flags & elf.EXECUTABLE and part.flags & elf.WRITABLE:
            raise Refusal("unsafe_object", "a segment is both writable and executable")


def _check_entries(image: elf.Image) -> None:
    for tag, value in image.entries:
        if tag in _CODE_ON_LOADING:
            raise Refusal("constructor", f"code would run on loading: {_CODE_ON_LOADING[tag]}")
        if tag not in _HARMLESS and tag not in _MARKS:
            raise Refusal("unsafe_object", f"dynamic entry {tag:#x} is nothing a kernel needs")
        if tag == _FLAGS and value & (_TEXT_CHANGES | _STATIC_THREAD_LOCAL):
            raise Refusal("unsafe_object", f"loader flags {value:#x}")
    foreign = [name for name in image.needed if name not in LIBRARIES]
    if foreign:
        raise Refusal("forbidden_symbol", f"another library would be loaded: {foreign[0]}")


def _check_relocations(image: elf.Image) -> None:
    # Were a table writable, one relocation could turn the next into a call.
    for address in image.tables:
        part = image.segment_at(address)
        if part is None or part.flags & elf.WRITABLE:
            raise Refusal("unsafe_object", "the loader's tables are writable")
    plain = _PLAIN_RELOCATIONS.get(image.machine, ())
    for change in image.relocations:
        if change.kind == _INDIRECT.get(image.machine):
            raise Refusal("constructor", "a relocation is resolved by code that runs on loading")
        if change.kind == _COPY.get(image.machine):
            raise Refusal("forbidden_symbol", "a copy relocation reaches into the harness")
        part = image.segment_at(change.address)
        if change.kind not in plain or part is None or not part.flags & elf.WRITABLE:
            raise Refusal("unsafe_object", f"a relocation of kind {change.kind} in the wrong place")


def _check_symbols(image: elf.Image) -> None:
    exported = set()
    for symbol in image.symbols[1:]:
        if symbol.kind == _RESOLVED_BY_CODE:
            raise Refusal(
                "constructor", f"{symbol.name} is resolved by code that runs on loading (ifunc)"
            )
        if symbol.kind == _THREAD_LOCAL:
            raise Refusal("constructor", f"{symbol.name} is thread-local")
        if symbol.defined:
            exported.add(symbol.name)
        elif symbol.name not in ALLOWED:
            raise Refusal(
                "forbidden_symbol", f"{symbol.name}; allowed are {', '.join(sorted(ALLOWED))}"
            )
    missing = sorted(REQUIRED - exported)
    if missing:
        raise Refusal("not_loadable", f"{', '.join(missing)} is not defined")
    surplus = sorted(exported - REQUIRED - LINKER)
    if surplus:
        raise Refusal(
            "forbidden_symbol",
            f"exports {', '.join(surplus[:5])}, wanted the four functions only; make it static",
        )

"""A shared object as the dynamic loader will see it, read from the file and never by loading it.

In: the bytes of an ELF file. Out: an `Image`: segments, dynamic entries, symbols, relocations.
Section headers are ignored: the loader ignores them too, so a file whose headers tell another story
gains nothing. Source: System V ABI, Linux Standard Base. Never here: what is allowed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LOAD, DYNAMIC, THREAD_LOCAL, STACK = 1, 2, 7, 0x6474E551
EXECUTABLE, WRITABLE = 1, 2
PAGE = 4096

_HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _STRSZ = 4, 5, 6, 7, 8, 10
_PLTRELSZ, _JMPREL, _GNU_HASH = 2, 23, 0x6FFFFEF5
NEEDED = 1

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_MOST = 1 << 20


class ElfError(ValueError):
    """The file is no object that a loader could use; the text says what is wrong with it."""


@dataclass(frozen=True)
class Segment:
    """One program header."""

    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Symbol:
    """One dynamic symbol. `kind` 6 is thread-local, 10 resolved by code; `binding` 0 is local."""

    name: str
    kind: int
    binding: int
    defined: bool


@dataclass(frozen=True)
class Relocation:
    """One change the loader makes at `address` before anything runs."""

    address: int
    kind: int
    symbol: int


@dataclass(frozen=True)
class Image:
    """What the loader would work with; addresses are relative to where the object is mapped."""

    machine: int
    segments: tuple[Segment, ...]
    entries: tuple[tuple[int, int], ...]
    needed: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]
    tables: tuple[int, ...]

    def segment_at(self, address: int) -> Segment | None:
        """The loaded segment that holds `address`."""
        for part in self.segments:
            if part.kind == LOAD and 0 <= address - part.address < part.memory_bytes:
                return part
        return None


def read(data: bytes) -> Image:
    """Parse a 64-bit little-endian object. Raises `ElfError`."""
    try:
        return _read(data)
    except (struct.error, IndexError, OverflowError) as error:
        raise ElfError(f"a table reaches beyond the file ({error})") from error


def _read(data: bytes) -> Image:
    ident, kind, machine, _, _, at, _, _, _, size, count, *_ = _HEADER.unpack_from(data, 0)
    if ident[:4] != b"\x7fELF" or ident[4:6] != b"\x02\x01" or kind != 3:
        raise ElfError("not a 64-bit little-endian shared object")
    if size != _SEGMENT.size or count > 64:
        raise ElfError(f"{count} program headers of {size} bytes")
    segments = tuple(_segment(data, at + number * size) for number in range(count))
    _check_layout(segments)
    found = [part for part in segments if part.kind == DYNAMIC]
    if len(found) != 1:
        raise ElfError(f"{len(found)} dynamic segments, wanted 1")
    memory = _Memory(data, segments)
    entries = tuple(_entries(memory, found[0].address))
    table = dict(entries)
    names = memory.piece(table.get(_STRTAB, 0), table.get(_STRSZ, 0))
    relocations = tuple(_relocations(memory, table))
    symbols = tuple(_symbols(memory, table, names, relocations))
    needed = tuple(_name(names, value) for tag, value in entries if tag == NEEDED)
    tables = tuple(
        table[tag] for tag in (_STRTAB, _SYMTAB, _RELA, _JMPREL, _HASH, _GNU_HASH) if tag in table
    )
    return Image(machine, segments, entries, needed, symbols, relocations, tables)


class _Memory:
    """The file as it lies in memory after mapping."""

    def __init__(self, data: bytes, segments: tuple[Segment, ...]) -> None:
        self._data = data
        self._parts = [part for part in segments if part.kind == LOAD]

    def offset(self, address: int, size: int) -> int:
        for part in self._parts:
            inside = address - part.address
            if inside >= 0 and inside + size <= part.file_bytes:
                return part.offset + inside
        raise ElfError(f"address {address:#x} ({size} bytes) is in no loaded part of the file")

    def piece(self, address: int, size: int) -> bytes:
        at = self.offset(address, size)
        return self._data[at : at + size]

    def unpack(self, form: struct.Struct, address: int) -> tuple[int, ...]:
        return form.unpack(self.piece(address, form.size))

    def word(self, address: int) -> int:
        return int.from_bytes(self.piece(address, 4), "little")


def _segment(data: bytes, at: int) -> Segment:
    kind, flags, offset, address, _, file_bytes, memory_bytes, _ = _SEGMENT.unpack_from(data, at)
    if kind == LOAD and (offset + file_bytes > len(data) or file_bytes > memory_bytes):
        raise ElfError("a segment reaches beyond the file")
    return Segment(kind, flags, offset, address, file_bytes, memory_bytes)


def _check_layout(segments: tuple[Segment, ...]) -> None:
    """Pages of two segments must not overlap: what lies there would depend on the loader."""
    end = 0
    for part in (part for part in segments if part.kind == LOAD):
        begin = part.address // PAGE * PAGE
        if begin < end:
            raise ElfError("loaded segments overlap")
        end = -(-(part.address + part.memory_bytes) // PAGE) * PAGE


def _entries(memory: _Memory, address: int) -> Iterator[tuple[int, int]]:
    for number in range(256):
        tag, value = memory.unpack(_ENTRY, address + number * _ENTRY.size)
        if tag == 0:
            return
        yield tag, value
    raise ElfError("the dynamic section does not end")


def _relocations(memory: _Memory, table: Mapping[int, int]) -> Iterator[Relocation]:
    for place, bytes_tag in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        if place not in table:
            continue
        count = table.get(bytes_tag, 0) // _RELOCATION.size
        if count > _MOST:
            raise ElfError(f"{count} relocations")
        for number in range(count):
            where = table[place] + number * _RELOCATION.size
            address, info, _ = memory.unpack(_RELOCATION, where)
            yield Relocation(address, info & 0xFFFFFFFF, info >> 32)


def _symbols(
    memory: _Memory, table: Mapping[int, int], names: bytes, changes: tuple[Relocation, ...]
) -> Iterator[Symbol]:
    count = max(_hashed(memory, table), 1 + max((change.symbol for change in changes), default=0))
    if count > _MOST:
        raise ElfError(f"{count} symbols")
    for number in range(count):
        name, info, _, section, _, _ = memory.unpack(
            _SYMBOL, table.get(_SYMTAB, 0) + number * _SYMBOL.size
        )
        yield Symbol(_name(names, name), info & 15, info >> 4, section != 0)


def _hashed(memory: _Memory, table: Mapping[int, int]) -> int:
    """How many symbols a lookup can reach, by either hash table."""
    count = 0
    if _HASH in table:
        count = memory.word(table[_HASH] + 4)
    if _GNU_HASH in table:
        at = table[_GNU_HASH]
        buckets, first, bloom = (memory.word(at + 4 * place) for place in range(3))
        if buckets > _MOST or bloom > _MOST:
            raise ElfError("the hash table is larger than any kernel's")
        heads = at + 16 + 8 * bloom
        last = max((memory.word(heads + 4 * place) for place in range(buckets)), default=0)
        count = max(count, first)
        if last >= first:
            while not memory.word(heads + 4 * buckets + 4 * (last - first)) & 1:
                last += 1
            count = max(count, last + 1)
    return count


def _name(names: bytes, at: int) -> str:
    end = names.find(b"\0", at)
    if not 0 <= at < len(names) or end < 0:
        raise ElfError(f"a name at {at} lies outside the string table")
    return names[at:end].decode("latin-1")

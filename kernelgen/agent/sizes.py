"""From `--op` and `--shape` to an operator and the sizes of its calls.

In: words such as `gemm_bias:k=384,n=1152` and `m=32`. Out: an operator of any known family and its
dims. Which words belong to the operator is read from the family itself, so a new family needs no
change here.
Never here: anything but reading words. Errors name what was got and what was wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields

from kernelgen.ops import FAMILIES, from_spec
from kernelgen.ops.operator import Operator

Size = int | float | str | bool
_KINDS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}


def operator_of(named: str, shape: Sequence[str]) -> tuple[Operator, dict[str, int]]:
    """The operator and the sizes of one call. Raises `ValueError`."""
    family, colon, sizes = named.partition(":")
    words = read_sizes([*([word for word in sizes.split(",") if word] if colon else []), *shape])
    return _split(family, words)


def read_sizes(words: Sequence[str]) -> dict[str, Size]:
    """`NAME=VALUE` words; a value is a number, true, false or a plain word."""
    found: dict[str, Size] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise ValueError(f"--shape: got {word!r}, wanted NAME=NUMBER")
        if name in found:
            raise ValueError(f"--shape: {name} is given twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> Size:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _split(family: str, words: Mapping[str, Size]) -> tuple[Operator, dict[str, int]]:
    if family not in FAMILIES:
        raise ValueError(f"--op: got {family!r}, wanted one of {', '.join(sorted(FAMILIES))}")
    own = {item.name: item for item in fields(FAMILIES[family]) if item.init}
    fixed = {name: value for name, value in words.items() if name in own}
    rest = {name: value for name, value in words.items() if name not in own}
    missing = [
        name
        for name, item in own.items()
        if name not in fixed and item.default is MISSING and item.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"--shape: missing {sorted(missing)} for {family}")
    for name, value in fixed.items():
        kinds = _KINDS.get(str(own[name].type))
        if kinds is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise ValueError(f"--shape: {name}={value}: wanted {own[name].type}")
    operator = from_spec({"family": family, **fixed})
    if set(rest) != set(operator.dims):
        raise ValueError(
            f"--shape: got sizes {sorted(rest)}, {family} wants {sorted(operator.dims)} for a call"
        )
    dims: dict[str, int] = {}
    for name, value in rest.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"--shape: {name}={value}: wanted a whole number of 1 or more")
        dims[name] = value
    return operator, dims

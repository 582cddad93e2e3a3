"""The text form of a tile program: Python syntax, printed and read back without loss.

In: a kernel, or its text. Out: the other. Never here: running any of it; the text is parsed with
`ast` and every node outside the small set below is refused by line.

    kernel = "row_sum"
    m = dim
    x: f32[m, 64] = input
    y: f32[m] = output

    def run():
        for i in parallel(0, m, 1):
            t = x[i, 0:64]
            s = sum(t)
            y[i] = s

`x[i, j:16]` is 16 lanes from j on; `x[i, j:16:n - j]` touches only the first n - j of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelgen.tile.ir import (
    DTYPES,
    ROLES,
    Assign,
    Buffer,
    Check,
    Const,
    Expr,
    Fill,
    For,
    If,
    Kernel,
    Load,
    Name,
    Op,
    Prefetch,
    Span,
    Stmt,
    Store,
    TileError,
)
from kernelgen.tile.words import SYMBOLS, WORDS

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE: dict[type[ast.cmpop], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq"}


def text(kernel: Kernel) -> str:
    """Print `kernel`; `parse` gives an equal one back."""
    lines = [f'kernel = "{kernel.name}"']
    lines += [f"{dim} = dim" for dim in kernel.dims]
    for buffer in kernel.buffers:
        sizes = ", ".join(map(show, buffer.shape))
        lines.append(f"{buffer.name}: {buffer.dtype}[{sizes}] = {buffer.role}")
    for name, block in (("prepare", kernel.prepare), ("run", kernel.run)):
        if block:
            lines += ["", f"def {name}():", *_block(block, "    ")]
    return "\n".join(lines) + "\n"


def _block(block: tuple[Stmt, ...], pad: str) -> Iterator[str]:
    if not block:
        yield f"{pad}pass"
    for statement in block:
        match statement:
            case Assign(name, value):
                yield f"{pad}{name} = {show(value)}"
            case Store(target, value):
                yield f"{pad}{show(target)} = {show(value)}"
            case For(var, start, stop, step, body, parallel, unroll):
                turns = "parallel" if parallel else "range"
                wish = f", unroll={unroll}" if unroll > 1 else ""
                yield f"{pad}for {var} in {turns}({show(start)}, {show(stop)}, {step}{wish}):"
                yield from _block(body, pad + "    ")
            case If(test, then, other):
                yield f"{pad}if {show(test)}:"
                yield from _block(then, pad + "    ")
                if other:
                    yield f"{pad}else:"
                    yield from _block(other, pad + "    ")
            case Check(test, code):
                yield f"{pad}check({show(test)}, {code})"
            case Prefetch(target, cache):
                yield f"{pad}prefetch({show(target)}, {cache})"


def show(expr: Expr) -> str:
    """One expression as text."""
    match expr:
        case Const(value):
            return repr(value)
        case Name(name):
            return name
        case Fill(value, dtype, shape):
            return f"fill({', '.join((show(value), dtype, *map(str, shape)))})"
        case Load(buffer, index):
            return f"{buffer}[{', '.join(map(_place, index))}]"
        case Op(word, args):
            if word in SYMBOLS:
                left, right = map(_inner, args)
                return f"{left} {SYMBOLS[word]} {right}"
            return f"{word}({', '.join(map(show, args))})"
    raise TileError(f"{expr!r} is no expression")


def _place(at: Expr | Span) -> str:
    if isinstance(at, Span):
        limit = f":{show(at.limit)}" if at.limit is not None else ""
        return f"{show(at.start)}:{at.count}{limit}"
    return show(at)


def _inner(expr: Expr) -> str:
    bracket = isinstance(expr, Op) and expr.word in SYMBOLS
    bracket |= isinstance(expr, Const) and str(expr.value).startswith("-")
    return f"({show(expr)})" if bracket else show(expr)


def parse(source: str) -> Kernel:
    """The kernel that `source` describes. Raises `TileError` with the line that does not fit."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise TileError(f"tile program: not readable: {error}") from error
    name, dims, buffers = "", [], []
    blocks: dict[str, tuple[Stmt, ...]] = {}
    for node in module.body:
        match node:
            case ast.Assign([ast.Name("kernel")], ast.Constant(str(value))):
                name = value
            case ast.Assign([ast.Name(dim)], ast.Name("dim")):
                dims.append(dim)
            case ast.AnnAssign(
                ast.Name(buffer),
                ast.Subscript(ast.Name(dtype), sizes),
                ast.Name(role),
            ) if dtype in DTYPES and role in ROLES:
                shape = sizes.elts if isinstance(sizes, ast.Tuple) else [sizes]
                buffers.append(Buffer(buffer, dtype, tuple(map(_expr, shape)), role))
            case ast.FunctionDef("prepare" | "run") if node.name not in blocks:
                blocks[node.name] = _statements(node.body)
            case _:
                raise _refused(node)
    if not name or "run" not in blocks:
        raise TileError("tile program: wanted a kernel's name and a run")
    return Kernel(name, tuple(dims), tuple(buffers), blocks.get("prepare", ()), blocks["run"])


def _statements(body: list[ast.stmt]) -> tuple[Stmt, ...]:
    return tuple(_statement(node) for node in body if not isinstance(node, ast.Pass))


def _statement(node: ast.stmt) -> Stmt:
    match node:
        case ast.Assign([ast.Name(name)], value):
            return Assign(name, _expr(value))
        case ast.Assign([ast.Subscript() as target], value):
            return Store(_load(target), _expr(value))
        case ast.For(
            ast.Name(var),
            ast.Call(
                ast.Name("range" | "parallel" as turns),
                [start, stop, ast.Constant(int(step))],
                keywords,
            ),
            body,
            [],
        ):
            unroll = 1
            for keyword in keywords:
                match keyword:
                    case ast.keyword("unroll", ast.Constant(int(count))):
                        unroll = count
                    case _:
                        raise _refused(node)
            return For(
                var,
                _expr(start),
                _expr(stop),
                step,
                _statements(body),
                turns == "parallel",
                unroll,
            )
        case ast.If(test, then, other):
            return If(_expr(test), _statements(then), _statements(other))
        case ast.Expr(ast.Call(ast.Name("check"), [test, ast.Constant(int(code))], [])):
            return Check(_expr(test), code)
        case ast.Expr(
            ast.Call(
                ast.Name("prefetch"), [ast.Subscript() as target, ast.Constant(int(cache))], []
            )
        ) if cache in (1, 2):
            return Prefetch(_load(target), cache)
    raise _refused(node)


def _load(node: ast.Subscript) -> Load:
    if not isinstance(node.value, ast.Name):
        raise _refused(node)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return Load(node.value.id, tuple(map(_index, parts)))


def _index(node: ast.expr) -> Expr | Span:
    match node:
        case ast.Slice(start, ast.Constant(int(count)), limit) if start is not None:
            return Span(_expr(start), count, None if limit is None else _expr(limit))
        case ast.Slice():
            raise _refused(node)
    return _expr(node)


def _expr(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value) if isinstance(value, int | float) and not isinstance(value, bool):
            return Const(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int | float):
            return Const(-value)
        case ast.Name(name):
            return Name(name)
        case ast.Subscript():
            return _load(node)
        case ast.BinOp(left, operator, right) if type(operator) in _BINARY:
            return Op(_BINARY[type(operator)], (_expr(left), _expr(right)))
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARE:
            return Op(_COMPARE[type(operator)], (_expr(left), _expr(right)))
        case ast.Call(ast.Name("fill"), [value, ast.Name(dtype), *sizes], []) if dtype in DTYPES:
            shape = [
                size.value
                for size in sizes
                if isinstance(size, ast.Constant) and isinstance(size.value, int)
            ]
            if len(shape) == len(sizes):
                return Fill(_expr(value), dtype, tuple(shape))
        case ast.Call(ast.Name(word), args, []) if word in WORDS:
            return Op(word, tuple(map(_expr, args)))
    raise _refused(node)


def _refused(node: ast.AST) -> TileError:
    line = getattr(node, "lineno", 0)
    return TileError(f"tile program line {line}: {ast.unparse(node)[:60]!r} is not part of it")

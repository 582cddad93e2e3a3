"""What a C text may not ask of the compiler, the assembler and the sanitizers.

In: compiler flags; C text after the preprocessor, when no macro hides anything any more. Out:
nothing, or a `Refusal` that names the line. Never here: what the kernel computes, and trust in this
list alone: the compiler runs walled in, and the object is read again before it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernelgen.judge.session import Refusal
from kernelgen.judge.terms import PACKAGED, Terms

SOURCE_NAME = "kernel.c"

_FLAG = re.compile(
    r"-O[0-3sg]?|-Ofast|-g[0-3]?|-std=(gnu|c)\d\w|-shared|-nostartfiles|-pthread|"
    r"-f(?!(?:no-)?(?:plugin|profile|dump|sanitize|save|opt-info|working-dir|callgraph|stack-usage))"
    r"[a-z0-9-]+(=[a-z0-9-]+)?|-fPIC|-m[a-z0-9][a-z0-9.-]*(=[A-Za-z0-9+_.-]+)?|-W(?![alp],)[a-z0-9+=-]*"
)
"""Flags that choose code, never files, programs or plug-ins."""

_FORBIDDEN = {
    "constructor": "constructor",
    "destructor": "constructor",
    "init_priority": "constructor",
    "ifunc": "constructor",
    "target_clones": "constructor",
    "tls_model": "constructor",
    "weak": "forbidden_source",
    "weakref": "forbidden_source",
    "alias": "forbidden_source",
    "symver": "forbidden_source",
    "section": "forbidden_source",
    "retain": "forbidden_source",
    "naked": "forbidden_source",
    "patchable_function_entry": "forbidden_source",
    "no_instrument_function": "forbidden_source",
    "no_sanitize": "forbidden_source",
    "no_sanitize_address": "forbidden_source",
    "no_sanitize_undefined": "forbidden_source",
    "no_sanitize_coverage": "forbidden_source",
    "no_sanitize_thread": "forbidden_source",
    "no_address_safety_analysis": "forbidden_source",
}
_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s*(?:"((?:\\.|[^"\\])*)"(.*))?$')
_TOKEN = re.compile(
    r'(?P<raw>(?:u8|[uUL])?R")'
    r'|(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")'
    r"|(?P<char>[uUL]?'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[A-Za-z_$\x80-\U0010ffff\\][\w$\x80-\U0010ffff\\]*)"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)"
    r"|(?P<line>(?<![^\n])[ \t]*(?:\#|%:)[^\n]*)"
    r"|(?P<sign>[^\s])",
    re.S,
)
_CUT = re.compile(r'^#\s*\d+\s*"([^"\n]*)"', re.M)
_HEADERS = ("/usr/include/", "/usr/lib/gcc", "/usr/local/include/", "/usr/lib/llvm")
_OWN = (SOURCE_NAME, "<built-in>", "<command-line>")
_ASSEMBLY = ("asm", "__asm", "__asm__")
_ASKS = ("_Pragma", "__has_include", "__has_include_next", "__has_embed")
_DIRECTIVE = re.compile(r"(?:^|[\n\r;:{|}\\@!])\s*(?:[\w$]+:\s*)*\.")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]+|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.S)
_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def check_flags(flags: Sequence[str]) -> None:
    """Refuse a flag that names a file, a program or a plug-in, or one nobody knows."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise Refusal("forbidden_source", f"compiler flag {flag!r} is not on the list")


def check_text(text: str, terms: Terms = PACKAGED) -> None:
    """Refuse preprocessed C that asks for code on loading, for assembler directives, for files, for
    less checking, or for what `terms` do not grant.
    """
    check_size(text, terms)
    if "\0" in text:
        raise Refusal("forbidden_source", "a zero byte in the text")
    if terms.closed:
        _check_lines(text)
    # Headers are long and always the same: a part of them that passed need not be read again.
    for own, piece, line in _pieces(text):
        if own:
            _check_piece(piece, line, terms)
        else:
            _check_header(piece, terms)


def check_size(text: str, terms: Terms) -> None:
    """Refuse a text longer than `terms` grant, before or after macros are expanded."""
    if len(text.encode("utf-8", "replace")) > terms.text_bytes:
        raise Refusal("forbidden_source", f"over {terms.text_bytes} bytes of text")


def _check_lines(text: str) -> None:
    """The preprocessor leaves neither behind: only an edited text has them."""
    for number, line in enumerate(text.splitlines(), start=1):
        if "??" in line or line.rstrip().endswith("\\"):
            raise Refusal("forbidden_source", f"line {number}: a trigraph or a spliced line")


def _pieces(text: str) -> Iterator[tuple[bool, str, int]]:
    """The text cut at line markers: whether it comes from the source itself, and where it starts.

    Nothing that is looked for may reach over a cut; `_check_piece` refuses what does.
    """
    own, begin, line = True, 0, 1
    for match in _CUT.finditer(text):
        mine = match.group(1) == SOURCE_NAME
        if mine != own:
            yield own, text[begin : match.start()], line
            line += text.count("\n", begin, match.start())
            own, begin = mine, match.start()
    yield own, text[begin:], line


@lru_cache(maxsize=4096)
def _check_header(piece: str, terms: Terms) -> None:
    _check_piece(piece, 1, terms)


def _check_piece(text: str, line: int, terms: Terms) -> None:
    tokens = list(_tokens(text, line))
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "line":
            _check_line(token, terms)
        elif token.kind == "raw" or (token.text in ('"', "'") and token.kind == "sign"):
            raise Refusal("forbidden_source", f"{_where(token)}: a raw or unfinished string")
        elif token.kind == "word":
            word = token.text.strip("_")
            if terms.closed and (word == "asm" or token.text in _ASKS):
                raise Refusal(
                    "forbidden_source",
                    f"{_where(token)}: {token.text} is not allowed; vector extensions are",
                )
            if token.text in _ASSEMBLY:
                at = _check_assembly(tokens, at)
                continue
            if token.text in ("__attribute__", "__attribute"):
                at = _check_attribute(tokens, at + 1, "()", terms)
                continue
            if word in ("Thread_local", "thread") and token.text.startswith("_"):
                raise Refusal("constructor", f"{_where(token)}: thread-local storage")
        elif token.text == "[" and at + 1 < len(tokens) and tokens[at + 1].text == "[":
            at = _check_attribute(tokens, at, "[]", terms)
            continue
        at += 1


def uses_intrinsics(text: str) -> bool:
    """Whether preprocessed text holds a header of intrinsics, whose immediate arguments only an
    optimising compiler accepts.
    """
    return (
        re.search(r'^# \d+ "[^"\n]*(?:intrin|arm_neon|arm_sve|riscv_vector)\w*\.h"', text, re.M)
        is not None
    )


def _tokens(text: str, line: int) -> Iterator[_Token]:
    seen = 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        kind = str(match.lastgroup)
        piece = match.group()
        if kind == "string":
            piece = _unescape(piece[piece.index('"') + 1 : -1])
        yield _Token(kind, piece, line)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        word = match.group(1)
        if word[0] in "xuU" and len(word) > 1:
            return chr(int(word[1:], 16) & 0x10FFFF)
        if word[0] in "01234567":
            return chr(int(word, 8))
        return _LETTERS.get(word, word)

    return _ESCAPE.sub(plain, text)


def _check_line(token: _Token, terms: Terms) -> None:
    text = re.sub(r"^[ \t]*(#|%:)", "#", token.text).rstrip()
    marker = _MARKER.match(text)
    if marker is not None:
        name = marker.group(2)
        if name is not None and not _known(name, terms):
            raise Refusal("forbidden_source", f"{_where(token)}: text of the file {name!r}")
        return
    pragma = re.match(r"#\s*pragma\s+(.*)$", text)
    if pragma is None or not terms.pragmas.fullmatch(pragma.group(1)):
        raise Refusal(
            "forbidden_source", f"{_where(token)}: directive {text[:80]!r} is not on the list"
        )


def _known(name: str, terms: Terms) -> bool:
    return name in _OWN or (not terms.closed and name.startswith(_HEADERS) and "/../.." not in name)


def _check_attribute(tokens: Sequence[_Token], at: int, brackets: str, terms: Terms) -> int:
    end = _closing(tokens, at, brackets[0], brackets[1])
    if terms.attributes is not None and brackets == "[]":
        raise Refusal("forbidden_source", f"{_where(tokens[at])}: [[ ]]; write __attribute__(( ))")
    depth = 0
    for token in tokens[at:end]:
        if token.kind != "word":
            depth += (token.text == "(") - (token.text == ")")
            continue
        reason = _FORBIDDEN.get(token.text.strip("_"))
        granted = terms.attributes is None or token.text.strip("_") in terms.attributes
        # Deeper down are arguments: expressions, whose names are not ours to know.
        if reason is None and not granted and depth <= 2:
            reason = "forbidden_source"
        if reason is not None:
            allowed = f"; allowed are {', '.join(sorted(terms.attributes or ()))}"
            raise Refusal(
                reason,
                f"{_where(token)}: attribute {token.text}{allowed if terms.attributes else ''}",
            )
        if token.text in _ASSEMBLY:
            raise Refusal("forbidden_source", f"{_where(token)}: assembly inside an attribute")
    return end


def _check_assembly(tokens: Sequence[_Token], at: int) -> int:
    begin = at
    while begin < len(tokens) and tokens[begin].kind == "word":
        begin += 1
    end = _closing(tokens, begin, "(", ")")
    pieces: list[str] = []
    for token in tokens[begin:end]:
        if token.kind == "string":
            pieces.append(token.text)
        else:
            _check_template("".join(pieces), token)
            pieces = []
    return end


def _check_template(text: str, token: _Token) -> None:
    if "/*" in text or "//" in text:
        raise Refusal("forbidden_source", f"{_where(token)}: a comment inside assembly")
    if _DIRECTIVE.search(text):
        raise Refusal(
            "forbidden_source", f"{_where(token)}: an assembler directive; instructions only"
        )


def _closing(tokens: Sequence[_Token], at: int, opened: str, closed: str) -> int:
    """Place after the bracket that closes the first one, which must stand at `at`."""
    depth = 0
    for place in range(at, len(tokens)):
        text = tokens[place].text if tokens[place].kind == "sign" else ""
        depth += (text == opened) - (text == closed)
        if depth == 0:
            return place + 1
    last = tokens[min(at, len(tokens) - 1)]
    raise Refusal("forbidden_source", f"{_where(last)}: a bracket that does not close here")


def _where(token: _Token) -> str:
    return f"line {token.line} of the preprocessed text"

"""Digests of source, to compare what two Pythons compiled."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterator
from typing import Any, TypeAlias

from sweepkit.bytecode import read_code
from sweepkit.digest import digest_of
from sweepkit.spelling import Spelling

__all__ = ["normal_form", "source_digest"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_UNSAID = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores"}


def source_digest(code: types.CodeType, digest: str, scope: dict[str, Any]) -> str:
    """Digest of the normalised source; "" unless it compiles to this very code.

    The file may have been edited since, and a line may hold several lambdas.
    """
    for node in _candidates(code, linecache.getlines(code.co_filename, scope)):
        made = (c for c in _compiled(node, code) if c.co_name == code.co_name)
        if any(read_code(one).digest == digest for one in made):
            arguments = ast.arguments(**(vars(node.args) | {"defaults": [], "kw_defaults": []}))
            return digest_of(normal_form([arguments, node.body]))
    return ""


def _candidates(code: types.CodeType, lines: list[str]) -> Iterator[Function]:
    """Functions of the name, where the code is said to stand."""
    texts = ["".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))] if lines else []
    if code.co_name == "<lambda>":  # the lines it stands on need not be a statement
        texts.append("".join(lines))
    for text in texts:
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(textwrap.dedent(text))):
                if isinstance(node, Function) and getattr(node, "name", "<lambda>") == code.co_name:
                    yield node


def _compiled(node: Function, code: types.CodeType) -> list[types.CodeType]:
    """Code objects of a function, compiled amid the names and the class that `code` was amid."""
    owner = code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    arguments = ", ".join(name for name in code.co_freevars if name != "__class__")
    frame = ast.parse(f"def _({arguments}):\n class _: pass")
    outer: Any = frame.body[0]
    if owner.isidentifier():  # for __class__ and the private names
        outer.body[0].name = owner
        outer = outer.body[0]
    outer.body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node]
    ast.fix_missing_locations(frame)
    flags = code.co_flags & annotations.compiler_flag
    try:
        return _codes(compile(frame, "", "exec", flags=flags, dont_inherit=True))
    except (SyntaxError, ValueError):
        return []


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return inner + [c for outer in inner for c in _codes(outer)]


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def normal_form(node: object) -> str:
    """Text of a syntax tree without docstrings and annotations; the same in every Python."""
    if isinstance(node, ast.Constant):
        return Spelling()(node.value)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return f"Assign({normal_form([node.target])},{normal_form(node.value)})"
    if isinstance(node, ast.Assign):
        return f"Assign({normal_form(node.targets)},{normal_form(node.value)})"
    if isinstance(node, ast.AST):
        told = [
            (k, v) for k, v in ast.iter_fields(node) if k not in _UNSAID and v not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(f'{k}={normal_form(v)}' for k, v in told)})"
    if isinstance(node, list):
        said = [n for n in node if not isinstance(n, ast.Pass) and not _is_text(n)]
        return f"[{','.join(map(normal_form, said))}]"
    return ascii(node)

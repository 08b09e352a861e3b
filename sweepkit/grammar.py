"""The grammar of masks and requirements: a text is read into a syntax tree, and never run."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

__all__ = [
    "ExpressionError",
    "boolean",
    "dim_of",
    "number_of",
    "over_runs",
    "place_of",
    "read",
    "refusal",
    "suggestion",
    "uses",
    "written",
]

MAX_LENGTH = 4000
MAX_DEPTH = 100

WORDS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="
}  # fmt: skip
REDUCTIONS = ("max", "min", "mean", "sum", "first", "last")
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_HINTS: dict[type[ast.AST], str] = {
    ast.BitAnd: "write 'and' for &", ast.BitOr: "write 'or' for |", ast.Invert: "write 'not' for ~",
    ast.BitXor: "write ** for a power", ast.Is: "write == to compare",
    ast.In: "write == and 'or' for each value", ast.NotIn: "write != and 'and' for each value",
}  # fmt: skip
_ALLOWED = (
    "allowed are names, numbers, 'strings', True, False, + - * / **, comparisons, and, or, not, "
    "abs(...), and .max .min .mean .sum .first .last over dims, as in abs(angle).max(time) < 0.2"
)
_RUN_ON = re.compile(
    r"(?<![\w.])(?:\d[\d_]*+\.?+[\d_]*+|\.\d[\d_]*+)(?:[eE][+-]?\d[\d_]*+)?+(?=[^\W\d_])"
)


class ExpressionError(ValueError):
    """A text that is not of the grammar, or does not fit the values it is given."""


def refusal(message: str, text: str, place: int, *, allowed: bool = False) -> ExpressionError:
    """Error that shows at most 72 characters of `text` with a caret at character `place`."""
    start = max(0, min(place - 40, len(text) - 72))
    shown = re.sub(r"[^\S ]|[\x00-\x1f\x7f]", " ", text[start : start + 72])
    shown = shown.encode("utf-8", "backslashreplace").decode()
    caret = " " * (place - start) + "^"
    tail = f"\n{_ALLOWED}" if allowed else ""
    return ExpressionError(f"{message}\n  {shown}\n  {caret}{tail}")


def place_of(text: str, node: ast.AST) -> int:
    """At which character of `text` a node begins."""
    # ast counts bytes of UTF-8; every text here is one line.
    offset: int = getattr(node, "col_offset", 0)
    return len(text.encode()[:offset].decode())


def written(text: str, node: ast.AST) -> str:
    """The part of `text` that `node` was read from: names as written, for ast normalises them."""
    end: int | None = getattr(node, "end_col_offset", None)
    return text.encode()[getattr(node, "col_offset", 0) : end].decode()


def suggestion(name: str, known: Iterable[Any], what: str = "available") -> str:
    """What there is in place of a name that is not there, for the end of a message."""
    names = sorted(map(str, known))
    near = difflib.get_close_matches(name, names, 1)
    shown = ", ".join(f"'{n}'" for n in names[:20]) or "none"
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f" ({what}: {shown}{more})" + (f"; did you mean '{near[0]}'?" if near else "")


def read(text: str) -> tuple[str, ast.expr]:
    """The text on one line, and the syntax tree that it is read into.

    Raises
    ------
    ExpressionError
        If the text is not of the grammar; the message shows the place and says what is allowed.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is a str, not {type(text).__name__}")
    text = re.sub(r"[\r\n]+", " ", text).strip()
    if not text:
        raise refusal("the expression is empty", text, 0, allowed=True)
    if len(text) > MAX_LENGTH:
        raise refusal(f"the expression has {len(text)} characters, more than {MAX_LENGTH}", text, 0)
    # Python's parser would warn on stderr about some escapes, and about numbers such as `1or`.
    if odd := re.search(r"[\x00\\\ud800-\udfff]", text):
        raise refusal(
            f"{odd[0]!r} cannot be part of an expression", text, odd.start(), allowed=True
        )
    if odd := _RUN_ON.search(_without_strings(text)):
        raise refusal("a number is decimal and set apart from words", text, odd.start())
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        place = min(error.offset - 1, len(text)) if error.offset else len(text)
        why, place = _reason(text, place)
        raise refusal(f"cannot read this{why}", text, place, allowed=True) from None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        raise refusal("the expression is nested too deeply", text, 0, allowed=True) from None
    _check_grammar(tree, text, 0)
    if "#" in (tail := text.encode()[tree.end_col_offset :].decode()):
        raise refusal("comments are not allowed", text, len(text) - len(tail), allowed=True)
    return text, tree


def over_runs(dim: str) -> str:
    """Why nothing is reduced over a dim of the runs."""
    return f"'{dim}' is a dim of the runs; an expression judges each run by itself"


def _without_strings(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: " " * len(quoted[0]), text)


def _reason(text: str, place: int) -> tuple[str, int]:
    """Why Python's parser refused the text, where that can be told, and at which character."""
    bare = _without_strings(text)
    for word in re.finditer(r"\w+", bare):
        if keyword.iskeyword(word[0]) and word[0] not in {"and", "or", "not", "True", "False"}:
            return f": '{word[0]}' is a reserved word, so it cannot be a name", word.start()
    if found := re.search(r"(?<![<>=!])=(?!=)", bare):
        return ": write == to compare", found.start()
    if found := re.search(r"&&|\|\||!(?!=)", bare):
        return ": write and, or, not", found.start()
    return "", place


def _check_grammar(node: ast.AST, text: str, depth: int) -> None:
    def refuse(why: str) -> NoReturn:
        raise refusal(why, text, place, allowed=True)

    place = place_of(text, node)
    if depth > MAX_DEPTH:
        refuse(f"the expression is nested more than {MAX_DEPTH} deep")
    children: list[ast.expr] = []
    match node:
        case ast.Constant(value=bool() | float() | str()) | ast.Name():
            pass
        case ast.Constant(value=int(number)):
            if number >= 2**64:
                refuse("an integer has at most 64 bits; write it with an exponent, as 1e30")
        case ast.BinOp(op=op) if type(op) in SIGNS:
            children = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))) if number > 2**63:
            refuse("an integer has at most 64 bits; write it with an exponent, as -1e30")
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            children = [node.operand]
        case ast.BoolOp():
            children = node.values
        case ast.Compare(ops=ops) if all(type(op) in WORDS for op in ops):
            children = [node.left, *node.comparators]
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            children = [argument]
        case ast.Call(func=ast.Attribute(attr=how), args=dims, keywords=[]) if how in REDUCTIONS:
            children = [node.func.value]  # type: ignore[attr-defined]
            for dim in dims:
                if not isinstance(getattr(dim, "value", getattr(dim, "id", None)), str):
                    raise refusal(f".{how}() takes names of dims", text, place_of(text, dim))
        case _:
            kinds = [type(part) for part in ast.walk(node)]
            if isinstance(node, ast.BinOp | ast.Compare):  # point at the operator
                start = len(written(text, node.left)) + place_of(text, node.left)
                place = start + len(text[start:]) - len(text[start:].lstrip(" )"))
            hint = next((f": {_HINTS[kind]}" for kind in kinds if kind in _HINTS), "")
            refuse(f"this is not part of the grammar{hint}")
    joins = isinstance(node, ast.BoolOp) or isinstance(getattr(node, "op", None), ast.Not)
    for child in children:
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if not isinstance(node, ast.Compare):
                raise refusal("a string can only be compared", text, place_of(text, child))
        elif joins and boolean(child) is False:
            raise refusal("'and', 'or', 'not' join comparisons", text, place_of(text, child))
        _check_grammar(child, text, depth + 1)


def uses(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Each node that names a variable (False) or a dim (True), left to right."""
    match node:
        case ast.Name():
            yield node, False
        case ast.Call(func=ast.Attribute(value=value), args=dims):
            yield from uses(value)
            yield from ((dim, True) for dim in dims)
        case ast.Call(args=arguments):
            yield from uses(arguments[0])
        case _:
            for child in ast.iter_child_nodes(node):
                yield from uses(child)


def dim_of(text: str, node: ast.expr) -> str:
    """The dim that an argument of a reduction names, with or without quotes."""
    return str(node.value) if isinstance(node, ast.Constant) else written(text, node)


def boolean(node: ast.AST) -> bool | None:
    """Whether a node is true or false; None if only the values can tell."""
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
            return True
        case ast.Name() | ast.Call(func=ast.Attribute(attr="max" | "min" | "first" | "last")):
            return None
    return False


def number_of(node: ast.AST) -> int | float | None:
    """The number that a node is, with its sign; None if it is anything else."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            return None if (size := number_of(operand)) is None else -size
    return None

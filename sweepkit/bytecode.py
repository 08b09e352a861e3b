"""What a code object computes, read from its bytecode, and the names that it uses.

Bytecode tells where line breaks stood (kept NOPs, jumps that are only threaded along one line), so
each code object is read as an automaton and reduced to its smallest equivalent.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sweepkit.digest import reduced
from sweepkit.spelling import Spelling

__all__ = ["Code", "read_code"]

_PLACEMENT = {"__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__"}
_SILENT = {"NOP", "EXTENDED_ARG", "CACHE", "SETUP_ANNOTATIONS"}
_JUMPS = {"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"}
_TEST = re.compile("(?:POP_)?JUMP_(?:FORWARD_|BACKWARD_)?IF_(TRUE|FALSE)(_OR_POP)?")
_LAYOUT = _JUMPS | {"PUSH_NULL"}
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CLOSURE = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_NAMED = set(dis.hasname) | set(dis.haslocal) | set(dis.hasfree)
_CONSTANT = {dis.opname[code] for code in dis.hasconst}
_JUMPING = set(dis.hasjrel) | set(dis.hasjabs)
# Arguments and kind of function; not nesting, docstring or __future__.
_FLAGS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


class Code(NamedTuple):
    """What is read from a code object and those inside it."""

    digest: str
    used: frozenset[tuple[str, ...]]  # ("global" or "closure", name, attribute, ...)
    imports: frozenset[tuple[int, str, tuple[str, ...]]]  # level, module, names taken from it


class _Step(NamedTuple):
    offset: int
    name: str
    value: Any  # constant, name or argument; None for a jump
    jump: int | None
    effect: int  # on the height of the stack


def read_code(code: types.CodeType) -> Code:
    """Digest of a code object without its position, and the names it uses."""
    steps = _steps(code)
    inside = {
        index: read_code(step.value)
        for index, step in enumerate(steps)
        if isinstance(step.value, types.CodeType)
    }
    names, edges = _flow(code, steps)
    n_args = code.co_argcount + code.co_kwonlyargcount + bin(code.co_flags & 0xC).count("1")
    layout = (code.co_argcount, code.co_posonlyargcount, code.co_flags & _FLAGS)
    own = [f"start {layout} {code.co_varnames[:n_args]}"]
    for index, (name, step) in enumerate(zip(names, steps, strict=True)):
        value = step.value
        if index in inside:
            value = inside[index].digest
        elif step.name in _CONSTANT:
            value = Spelling()(value)
        own.append(f"{name} {value}")
    return Code(
        reduced(own, edges),
        frozenset(_used(steps)).union(*(one.used for one in inside.values())),
        frozenset(_imports(steps)).union(*(one.imports for one in inside.values())),
    )


def _used(steps: Sequence[_Step]) -> Iterator[tuple[str, ...]]:
    stored = {step.value for step in steps if step.name == "STORE_NAME"}
    for index, step in enumerate(steps):
        if step.name not in _GLOBAL | _CLOSURE:
            continue
        if step.name == "LOAD_NAME" and step.value in stored:
            continue
        attributes = itertools.takewhile(
            lambda after: after.name in ("LOAD_ATTR", "LOAD_METHOD"), steps[index + 1 :]
        )
        scope = "global" if step.name in _GLOBAL else "closure"
        yield scope, step.value, *(after.value for after in attributes)


def _imports(steps: Sequence[_Step]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for index, step in enumerate(steps):
        if step.name == "IMPORT_NAME":
            level, taken = (before.value for before in steps[index - 2 : index])
            yield level, step.value, tuple(taken or ())


def _flow(code: types.CodeType, steps: Sequence[_Step]) -> tuple[list[str], list[dict[str, int]]]:
    """Names of the steps, and where control goes from the start (node 0) and from each of them."""
    following = {step.offset: index for index, step in enumerate(steps)}
    for offset in range(len(code.co_code), -1, -2):
        following.setdefault(offset, following.get(offset + 2, len(steps) - 1))

    def land(index: int) -> int:
        """Where control really arrives: plain jumps are only layout, PUSH_NULL only protocol."""
        seen = set()
        while steps[index].name in _LAYOUT and index not in seen:
            seen.add(index)
            jump = steps[index].jump
            index = index + 1 if jump is None else following[jump]
        return index

    def branch(name: str, jump: int) -> tuple[str, int]:
        """A conditional jump to another test of the same value is threaded only along one line."""
        index, keeps = land(following[jump]), _TEST.fullmatch(name)
        while keeps and keeps[2] and (again := _TEST.fullmatch(steps[index].name)):
            same = keeps[1] == again[1]
            index = land(following[steps[index].jump or 0] if same else index + 1)
            if not (same and again[2]):
                return f"POP_JUMP_IF_{keeps[1]}", index
        return name, index

    names: list[str] = []
    edges: list[dict[str, int]] = [{"next": land(0) + 1}]
    for index, step in enumerate(steps):
        # A method is called in another way where its module is imported in the very same file.
        name, out = step.name.replace("_METHOD", "_ATTR"), {}
        if step.jump is not None:
            name, target = branch(name, step.jump)
            out["jump"] = target + 1
        if step.name not in _ENDS | _JUMPS and index + 1 < len(steps):
            out["next"] = land(index + 1) + 1
        names.append(re.sub("_(FORWARD|BACKWARD|BORROW)", "", name))
        edges.append(out)
    for start, end, handler, depth, lasti in _exceptions(code):
        for index, step in enumerate(steps):
            if start <= step.offset < end:
                edges[index + 1][f"except {depth} {lasti}"] = land(following[handler]) + 1
    return names, edges


def _exceptions(code: types.CodeType) -> list[tuple[int, int, int, int, bool]]:
    entries: list[tuple[int, int, int, int, bool]] = vars(dis.Bytecode(code))["exception_entries"]
    return entries


def _steps(code: types.CodeType) -> list[_Step]:
    """Instructions, without those that only place, document or annotate."""
    steps: list[_Step] = []
    for item in dis.get_instructions(code):  # reads co_code: no specialisation, no tracing
        if item.opname in _SILENT:
            continue
        named = item.opcode in _NAMED or item.opcode in dis.hasconst
        value: Any = item.argval if named else item.arg
        effect = dis.stack_effect(item.opcode, item.arg, jump=False)
        jump = None
        if item.opcode in _JUMPING:
            value, jump = None, item.argval
        halves = re.findall("(?:LOAD|STORE)_FAST", item.opname)
        if len(halves) == 2:  # from Python 3.13 on, and only where both stood on one line
            for name, half in zip(halves, value, strict=True):
                steps.append(_Step(item.offset, name, half, None, 1 if name[0] == "L" else -1))
            continue
        step = _Step(item.offset, item.opname, value, jump, effect)
        if step.name == "STORE_NAME" and value in _PLACEMENT:
            del steps[_producer(steps, len(steps)) :]
            continue
        if step.name == "STORE_SUBSCR" and [s.value for s in steps[-2:-1]] == ["__annotations__"]:
            label = steps[-1]
            del steps[_producer(steps, len(steps) - 2) :]
            if code.co_name == "<module>":
                continue
            step = label._replace(name="FIELD", effect=0)  # it may be a field of a dataclass
        if step.name == "MAKE_FUNCTION" and value is not None and value & 4:
            end = _producer(steps, len(steps) - 1) if value & 8 else len(steps) - 1
            del steps[_producer(steps, end) : end]
            step = step._replace(value=value & ~4)
        if step.name == "SET_FUNCTION_ATTRIBUTE" and value in (4, 16):  # from 3.13, 3.14 on
            end = _producer(steps, len(steps))
            del steps[_producer(steps, end) : end]
            continue
        steps.append(step)
    return steps


def _producer(steps: Sequence[_Step], end: int) -> int:
    """Where the expression begins whose value is on the stack before step `end`."""
    height, start = 0, end
    while height < 1 and start > 0:
        start -= 1
        height += steps[start].effect
    return start

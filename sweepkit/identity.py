"""What a function computes, as a digest, and the name of what changed in it.

The code is read from bytecode, which is what runs: a file that was edited since it was imported,
or a cell whose text is gone, cannot mislead it. Bytecode still tells where line breaks stood
(kept NOPs, jumps that are only threaded along one line), so each code object is read as an
automaton and reduced to its smallest equivalent. The graph of functions, classes and values is
reduced in the same way, so that two equal copies of a helper count as one.

What counts as a change: code, names of local variables and arguments, defaults, closure
variables, globals read, methods and attributes of classes used. What does not: positions,
comments, formatting, docstrings, annotations, the function's own name, the module it lives in,
and the version of any installed package. ``import`` inside a function takes in the whole module
where that module is the user's own.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import enum
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import io
import linecache
import os
import re
import sys
import textwrap
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

__all__ = ["Identity", "changes", "identify", "pickling_culprit"]

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_MOST_ITEMS = 1_000_000
_DEEPEST = 60


@dataclass(frozen=True)
class Identity:
    """What a function computes; compare two with `changes`, which also copes with two Pythons.

    Attributes
    ----------
    digest : str
        Hex digest of everything below; bytecode, hence comparable within one Python minor version.
    parts : mapping of str to str
        Digest of each part by name, such as ``helper``, ``GRAVITY``, ``physics.rollout``,
        ``Controller.step``, ``closure k``; "unresolved" for a global that does not exist.
    labels : mapping of str to str
        How each part is spoken of, such as ``function 'helper'``.
    sources : mapping of str to str
        Digest of the normalised source of each part that is code; "" where there is no source.
    opaque : tuple of str
        Parts seen only by the name of their type: changes inside them are not seen.
    version : str or None
        The version that was declared and then alone decides.
    python : str
        Python's minor version.
    """

    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    version: str | None = None
    python: str = _PYTHON

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary, ready for ``json.dumps``."""
        return asdict(self) | {"opaque": list(self.opaque)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Identity from what `to_json` gave."""
        return cls(**(dict(data) | {"opaque": tuple(data["opaque"])}))


def identify(function: Callable[..., object], *, version: str | None = None) -> Identity:
    """Identity of what a function computes, with all it uses of the user's own code and globals.

    Reads, never calls, user code. Installed packages count by name only, except that a `function`
    which itself is installed or compiled also counts by its package's version.

    Parameters
    ----------
    function : callable
        Function, lambda, method, partial, callable instance, class, or a wrapper around one.
    version : str, optional
        Decides alone, in place of the code.

    Raises
    ------
    TypeError
        If `function` is not callable.

    Examples
    --------
    >>> identify(lambda x: x + 1).digest == identify(lambda x: (x + 1)).digest
    True
    >>> changes(identify(len, version="1"), identify(len, version="2"))
    ["version '1' -> '2'"]
    """
    if not callable(function):
        raise TypeError(
            f"only a callable has an identity, got {_type_name(function)}; give a function"
        )
    if version is not None:
        return Identity(_hash(f"version {version}"), version=version)
    return _Walk(function).identity()


def changes(old: Identity, new: Identity) -> list[str]:
    """Sentences, by name, on what changed from `old` to `new`; empty where they compute the same.

    Identities from two Python minor versions are compared by source; code without source is told
    as not comparable.
    """
    if old.version is not None or new.version is not None:
        if old.version == new.version:
            return []
        if old.version is None:
            return [f"version {new.version!r} is declared now"]
        if new.version is None:
            return [f"version {old.version!r} is no longer declared"]
        return [f"version {old.version!r} -> {new.version!r}"]
    if old.digest == new.digest:
        return []
    before, after = dict(old.parts), dict(new.parts)
    pairs = [(name, name) for name in after if name in before]
    gone = [name for name in before if name not in after]
    for name in [name for name in after if name not in before]:
        # A part that moved between a cell and a module is still the same part.
        alike = [
            other
            for other in gone
            if other.rpartition(".")[2] == name.rpartition(".")[2]
            and ("." not in other or "." not in name or before[other] == after[name])
        ]
        if len(alike) == 1:
            gone.remove(alike[0])
            pairs.append((alike[0], name))
    paired = {b: a for a, b in pairs}
    other_python = old.python != new.python
    said = []
    for name in after:
        if name not in paired:
            said.append(f"{name!r} is used now")
            continue
        same = before[paired[name]] == after[name]
        if other_python and name in new.sources:
            sources = old.sources.get(paired[name], ""), new.sources[name]
            same = sources[0] == sources[1]
            if not all(sources):
                said.append(
                    f"{new.labels[name]}: Python {old.python} -> {new.python}: "
                    "code cannot be compared"
                )
                continue
        if not same:
            said.append(f"{new.labels[name]} changed")
    said += [f"{name!r} is no longer used" for name in gone]
    if not said and not other_python:
        said.append("the same parts are used under other names")
    return said


# Reduction: nodes with content and labelled edges -> digest, the same for equivalent graphs.


def _reduced(own: Sequence[object], edges: Sequence[Mapping[str, int]]) -> str:
    """Digest of the graph seen from node 0; equivalent nodes count as one."""
    block = _equivalent(own, edges)
    number, queue, told = {block[0]: 0}, [0], []
    for node in queue:
        out = []
        for label, target in sorted(edges[node].items()):
            if block[target] not in number:
                number[block[target]] = len(number)
                queue.append(target)
            out.append((label, number[block[target]]))
        told.append((own[node], out))
    return _hash(ascii(told))


def _equivalent(own: Sequence[object], edges: Sequence[Mapping[str, int]]) -> list[int]:
    """Class of each node, where equivalent nodes share content and, by label, successors' classes.

    References
    ----------
    J. Hopcroft, An n log n algorithm for minimizing states in a finite automaton (1971).
    """
    first: dict[object, set[int]] = defaultdict(set)
    incoming: list[list[tuple[str, int]]] = [[] for _ in own]
    for node, out in enumerate(edges):
        first[own[node], *sorted(out)].add(node)
        for label, target in out.items():
            incoming[target].append((label, node))
    blocks = list(first.values())
    block = [0] * len(own)
    for index, members in enumerate(blocks):
        for node in members:
            block[node] = index
    waiting = set(range(len(blocks)))
    while waiting:
        sources: dict[str, set[int]] = defaultdict(set)
        for node in blocks[waiting.pop()]:
            for label, source in incoming[node]:
                sources[label].add(source)
        for reaching in sources.values():
            touched: dict[int, set[int]] = defaultdict(set)
            for node in reaching:
                touched[block[node]].add(node)
            for index, inside in touched.items():
                if len(inside) == len(blocks[index]):
                    continue
                blocks[index] -= inside
                blocks.append(inside)
                for node in inside:
                    block[node] = len(blocks) - 1
                smaller = index if len(blocks[index]) < len(inside) else len(blocks) - 1
                waiting.add(len(blocks) - 1 if index in waiting else smaller)
    return block


def _hash(data: str | bytes | memoryview) -> str:
    if isinstance(data, str):
        data = data.encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# Code objects.


class _Code(NamedTuple):
    digest: str
    used: frozenset[tuple[str, ...]]  # ("global" or "closure", name, attribute, ...)
    imports: frozenset[tuple[int, str, tuple[str, ...]]]  # level, module, names taken from it


class _Step(NamedTuple):
    offset: int
    name: str
    value: Any  # constant, name or argument; None for a jump
    jump: int | None
    effect: int  # on the height of the stack


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


def _read(code: types.CodeType) -> _Code:
    """Digest of a code object without its position, and the names it uses."""
    steps = _steps(code)
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

    used: set[tuple[str, ...]] = set()
    imports: set[tuple[int, str, tuple[str, ...]]] = set()
    own: list[str] = ["start"]
    edges: list[dict[str, int]] = [{"next": land(0) + 1}]
    stored = {step.value for step in steps if step.name == "STORE_NAME"}
    for index, step in enumerate(steps):
        value = step.value
        if isinstance(value, types.CodeType):
            inner = _read(value)
            used |= inner.used
            imports |= inner.imports
            value = inner.digest
        elif step.name in _CONSTANT:
            value = _Plain(_no_other)(value)
        elif step.name in _GLOBAL | _CLOSURE and not (step.name == "LOAD_NAME" and value in stored):
            chain = ["global" if step.name in _GLOBAL else "closure", value]
            for after in steps[index + 1 :]:
                if after.name not in ("LOAD_ATTR", "LOAD_METHOD"):
                    break
                chain.append(after.value)
            used.add(tuple(chain))
        elif step.name == "IMPORT_NAME":
            level, taken = (before.value for before in steps[index - 2 : index])
            imports.add((level, value, tuple(taken or ())))
        # A method is called in another way where its module is imported in the very same file.
        name, out = step.name.replace("_METHOD", "_ATTR"), {}
        if step.jump is not None:
            name, target = branch(name, step.jump)
            out["jump"] = target + 1
        if step.name not in _ENDS | _JUMPS and index + 1 < len(steps):
            out["next"] = land(index + 1) + 1
        own.append(f"{re.sub('_(FORWARD|BACKWARD|BORROW)', '', name)} {value}")
        edges.append(out)
    for start, end, handler, depth, lasti in _exceptions(code):
        for index, step in enumerate(steps):
            if start <= step.offset < end:
                edges[index + 1][f"except {depth} {lasti}"] = land(following[handler]) + 1
    n_args = code.co_argcount + code.co_kwonlyargcount + bin(code.co_flags & 0xC).count("1")
    layout = (code.co_argcount, code.co_posonlyargcount, code.co_flags & _FLAGS)
    own[0] = f"start {layout} {code.co_varnames[:n_args]}"
    return _Code(_reduced(own, edges), frozenset(used), frozenset(imports))


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
        steps.append(step)
    return steps


def _producer(steps: Sequence[_Step], end: int) -> int:
    """Where the expression begins whose value is on the stack before step `end`."""
    height, start = 0, end
    while height < 1 and start > 0:
        start -= 1
        height += steps[start].effect
    return start


# Values.


class _TooLargeError(Exception):
    """The value has too many items, or is nested too deeply, to be compared."""


def _no_other(value: object, path: str) -> str:
    return _type_name(value)


class _Plain:
    """Canonical text of a value; what is not plain data goes to `other(value, path)`."""

    def __init__(self, other: Callable[[object, str], str]) -> None:
        self.other = other
        self.n_left = _MOST_ITEMS
        self.open: list[int] = []

    def __call__(self, value: object, path: str = "") -> str:
        self.n_left -= 1
        if self.n_left < 0 or len(self.open) > _DEEPEST:
            raise _TooLargeError
        kind = type(value)
        scalar = _scalar(kind, value)
        if scalar is not None:
            return scalar
        if id(value) in self.open:
            return f"cycle {len(self.open) - self.open.index(id(value))}"
        self.open.append(id(value))
        try:
            library = kind.__module__.partition(".")[0]
            text = None
            if library in ("builtins", "collections", "types", "functools"):
                text = self.container(kind, value, path)
            elif library == "numpy":
                text = self.array(kind, value, path)
            elif library in ("xarray", "pandas"):
                text = self.labelled(kind, value, path)
            return self.other(value, path) if text is None else text
        finally:
            self.open.pop()

    def items(self, values: Iterable[object], path: str) -> str:
        return ",".join([self(value, f"{path}[{i}]") for i, value in enumerate(values)])

    def container(self, kind: type, value: Any, path: str) -> str | None:
        """Text of a built-in container; read by the built-in type's own methods."""
        for ordered in (tuple, list, deque):
            if issubclass(kind, ordered):
                return f"{ordered.__name__}({self.items(ordered.__iter__(value), path)})"
        for unordered in (set, frozenset):
            if issubclass(kind, unordered):
                # By name, not number: the order of a set is another in every process.
                told = [self(v, f"{path}{{{_tag(v)}}}") for v in unordered.__iter__(value)]
                return f"set({','.join(sorted(told))})"
        if issubclass(kind, dict):
            pairs = []
            for key, item in dict.items(value):
                name = self(key, f"{path}{{{_tag(key)}}}") + _tag(key)
                pairs.append(f"{name}:{self(item, f'{path}[{name}]')}")
            if not issubclass(kind, OrderedDict):
                pairs.sort()
            factory = self(value.default_factory, path + ".factory") if kind is defaultdict else ""
            return f"dict{factory}({','.join(pairs)})"
        if kind is types.SimpleNamespace:
            return f"namespace({self(vars(value), path)})"
        if kind is slice:
            return f"slice({self.items((value.start, value.stop, value.step), path)})"
        return None

    def array(self, kind: type, value: Any, path: str) -> str | None:
        """Text of a NumPy array, by dtype, shape and bytes."""
        if issubclass(kind, np.dtype):
            return f"dtype {value!r}"
        if issubclass(kind, np.void) or not issubclass(kind, np.ndarray):
            return None
        if issubclass(kind, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(value)
            return f"masked({self(value.filled(), path)},{self(mask, path)})"
        data = value.view(np.ndarray)
        if data.dtype.names:  # padding between fields holds anything
            return f"fields({self({name: data[name] for name in data.dtype.names}, path)})"
        if data.dtype.hasobject or data.dtype.kind == "T":
            return f"objects {data.shape}({self.items(data.ravel().tolist(), path)})"
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return f"array {data.dtype.str} {data.shape} {_hash(raw.data)}"

    def labelled(self, kind: type, value: Any, path: str) -> str | None:
        """Text of an xarray or pandas object, by values and names, without attrs."""
        name = kind.__name__
        inside: tuple[object, ...]
        if name in ("DataArray", "Variable", "IndexVariable"):
            if value.chunks is not None:
                return None  # reading it would compute it
            coords = dict(value.coords.variables) if name == "DataArray" else {}
            label = value.name if name == "DataArray" else None
            inside = (label, value.dims, np.asarray(value.values), coords)
        elif name == "Dataset":
            if value.chunks:
                return None
            inside = (dict(value.variables), sorted(map(str, value.coords)))
        elif name == "DataFrame":
            columns = [(str(c.dtype), c.to_numpy()) for _, c in value.items()]
            inside = (value.columns, value.index, columns)
        elif name == "Series":
            inside = (value.name, str(value.dtype), value.index, value.to_numpy())
        elif name.endswith("Index"):
            inside = (list(value.names), str(value.dtype), value.to_numpy())
        else:
            return None
        return f"{name}({self(inside, path)})"


_PANDAS_SCALARS = {"Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType"}


def _tag(value: object) -> str:
    return _root_name(value) if type(value) in (types.FunctionType, type) else ""


def _scalar(kind: type, value: Any) -> str | None:
    """Text of a value without parts, the same in every process; None for anything else."""
    if value is None or value is Ellipsis or value is NotImplemented or kind is bool:
        return str(value)
    if kind is int:
        return hex(value)
    if kind is float:
        return float.hex(value)
    if kind is complex:
        return f"complex({value.real.hex()},{value.imag.hex()})"
    if kind is str:
        return ascii(value)
    if kind in (bytes, bytearray):
        return f"bytes {_hash(bytes(value))}"
    if kind is range:
        return repr(value)
    if kind is re.Pattern:
        return f"pattern({value.pattern!a},{value.flags})"
    if issubclass(kind, np.generic) and kind.__module__ == "numpy":
        if issubclass(kind, (np.datetime64, np.timedelta64, np.longdouble, np.clongdouble)):
            return f"{value.dtype.str} {value!s}"
        if not issubclass(kind, np.void):
            plain = value.item()
            return _scalar(type(plain), plain)
    module = kind.__module__.partition(".")[0]
    if module == "datetime":
        zone = getattr(value, "tzinfo", None)
        if zone is None or type(zone).__module__ in ("datetime", "zoneinfo"):
            return repr(value)
    if module in ("zoneinfo", "decimal", "fractions", "uuid", "ipaddress"):
        return repr(value)
    if module == "pathlib":
        return f"path {os.fspath(value)!a}"
    if module == "pandas" and kind.__name__ in _PANDAS_SCALARS:
        return f"{kind.__name__} {value!r}"
    return None


# The walk over everything that is used.

_WRAPPED = ("__wrapped__", "py_func", "pyfunc")  # functools, numba, numpy.vectorize
_ENUM_OWN = re.compile("_.*_$")
_BUILT_IN = frozenset(vars(builtins))
_DESCRIPTORS = (staticmethod, classmethod, property)
_SLOTS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(NamedTuple("_Pair", [("left", int)]).__dict__["left"]),
)
_QUIET = {"typing", "typing_extensions", "types", "dataclasses", "abc"}  # say nothing about values


class _Walk:
    """Breadth first from a function to all it uses; parts are numbered in order of arrival."""

    def __init__(self, root: Any) -> None:
        self.objects: list[Any] = []  # also keeps them alive, so that an id stays theirs
        self.names: list[str] = []
        self.labels: dict[str, str] = {}
        self.own: list[str] = []
        self.edges: list[dict[str, int]] = []
        self.index: dict[object, int] = {}
        self.sources: dict[str, str] = {}
        self.opaque: list[str] = []
        self.unresolved: list[str] = []
        self.library: dict[str, bool] = {}
        inner = root
        while (wrapped := _unwrapped(inner)) is not None:
            inner = wrapped
        self.home = _home(inner if callable(_static(inner, "__get__")) else type(inner))
        bound = "method " if type(root) is types.MethodType else ""
        self.root = self.add(root, bound + _root_name(root), "method" if bound else "function")
        for part, value in enumerate(self.objects):  # grows while it is read
            try:
                self.own[part] = self.fill(part, value)
            except _TooLargeError:
                self.own[part] = self.hidden(part, f"{_type_name(value)}, too large")
        if self.own[0].startswith("named "):
            self.own[0] += f" {_package_version(_home(root))}"

    def identity(self) -> Identity:
        parts = {name: _hash(own) for name, own in zip(self.names, self.own, strict=True)}
        for name in self.unresolved:
            parts.setdefault(name, "unresolved")
            self.labels.setdefault(name, f"global {name!r}")
        digest = _reduced(self.own, self.edges)
        return Identity(digest, parts, self.labels, self.sources, tuple(self.opaque))

    def add(self, value: Any, name: str, noun: str) -> int:
        """Number of the part that `value` is."""
        kind = type(value)
        by_identity = kind in (types.FunctionType, types.ModuleType) or issubclass(kind, type)
        by_identity = by_identity or not self.installed(kind.__module__)
        key: object = id(value) if by_identity else (id(value), name)
        if kind is _Module:
            key = ("module", value)
        if key not in self.index:
            self.index[key] = len(self.objects)
            self.objects.append(value)
            unique, count = name, 1
            while unique in self.labels:
                count += 1
                unique = f"{name} ({count})"
            if name.startswith(("closure ", "default ", "argument ")):
                pass
            elif kind is types.FunctionType:
                noun = "function"
            elif kind in (types.ModuleType, _Module):
                noun = "module"
            elif issubclass(kind, type):
                noun = "class"
            self.names.append(unique)
            head, _, owner = unique.removeprefix(noun.split()[0] + " ").partition(" of ")
            self.labels[unique] = f"{noun} {head!r}" + (f" of {owner!r}" if owner else "")
            self.own.append("")
            self.edges.append({})
        return self.index[key]

    def use(self, part: int, edge: str, value: Any, name: str, noun: str = "global") -> None:
        self.edges[part][edge] = self.add(value, name, noun)

    def hidden(self, part: int, text: str) -> str:
        self.opaque.append(self.names[part])
        return f"opaque {text}"

    def qualified(self, home: str, name: str) -> str:
        return name if home == self.home else f"{home}.{name}"

    def installed(self, module: str) -> bool:
        """Whether a module is part of Python, of an installed package, or of sweepkit."""
        if module not in self.library:
            self.library[module] = _installed(module)
        return self.library[module]

    def fill(self, part: int, value: Any) -> str:
        """Content of one part; notes what it uses on the way."""
        kind, name = type(value), self.names[part]
        if kind is types.FunctionType:
            return self.function(part, value)
        if kind is _Module:
            return self.module(part, value)
        if issubclass(kind, type):
            return self.of_class(part, value)
        if issubclass(kind, types.ModuleType):
            home = _static(value, "__name__")
            if self.installed(home) or home == "__main__":
                return f"package {home}"
            return self.module(part, home)
        if kind is types.MethodType:
            bound, inside = value.__self__, "" if part == self.root else f" of {name}"
            bound_name = bound.__qualname__ if issubclass(type(bound), type) else f"self{inside}"
            self.use(part, "function", value.__func__, _root_name(value.__func__), "method")
            self.use(part, "self", bound, bound_name, "value")
            return "method"
        if kind is functools.partial:
            self.use(part, "function", value.func, _root_name(value.func), "function")
            for key, argument in [*enumerate(value.args), *value.keywords.items()]:
                self.use(part, f"argument {key}", argument, f"argument {key}", "argument")
            return f"partial {len(value.args)}"
        if issubclass(type(kind), enum.EnumMeta):
            if not self.installed(kind.__module__):
                self.use(part, "class", kind, self.qualified(kind.__module__, kind.__qualname__))
            inside = _Plain(self.reference(part))(_static(value, "_value_"), "value")
            return f"member {_static(value, '_name_')}={inside}"
        if not self.installed(kind.__module__):
            return self.instance(part, value)
        if (known := self.named(value)) is not None:
            return known
        if (inner := _unwrapped(value)) is not None:
            self.use(part, "wrapped", inner, _root_name(inner), "function")
            return f"wrapper {_type_name(value)}"
        return _Plain(self.reference(part))(value)

    def reference(self, part: int) -> Callable[[object, str], str]:
        """What to do with a value, somewhere inside the part, that is not plain data."""

        def other(value: object, path: str) -> str:
            if (known := self.named(value)) is not None:
                return known
            kind = type(value)
            if not path:
                if kind.__module__ in _QUIET:
                    return _type_name(value)
                return self.hidden(part, _type_name(value))
            self.use(part, path, value, self.names[part] + path, "value")
            return "*"

        return other

    def named(self, value: Any) -> str | None:
        """Text of an installed or compiled function or class, which counts by its name."""
        if issubclass(type(value), type):
            if not self.installed(value.__module__):
                return None
            return f"named {value.__module__.partition('.')[0]}:{value.__qualname__}"
        name = _static(value, "__qualname__") or _static(value, "__name__")
        if not isinstance(name, str) or not callable(value) or callable(_static(value, "pyfunc")):
            return None
        if type(value) is types.FunctionType:
            return None
        home = _home(value)
        if self.installed(home):
            return f"named {home.partition('.')[0]}:{name}"
        file = getattr(sys.modules.get(home), "__file__", None) or ""
        if not file.endswith((".so", ".pyd")):
            return None
        return f"named {home}:{name} {_file_digest(file)}"

    def function(self, part: int, function: types.FunctionType) -> str:
        code, home = function.__code__, function.__globals__.get("__name__", "")
        name, inside = self.names[part], "" if part == self.root else f" of {self.names[part]}"
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        read = _Code("", frozenset(), frozenset())
        text = f"named {home.partition('.')[0]}:{code.co_qualname}"
        if self.installed(home):
            if "<locals>" not in code.co_qualname or (
                self.installed(function.__module__ or "") and "__wrapped__" in vars(function)
            ):
                return f"named {home.partition('.')[0]}:{function.__qualname__}"
        else:
            read = _read(code)
            self.sources[name] = _source(code, read.digest, function.__globals__)
            text = f"function {read.digest}"
            for argument, value in _defaults(function):
                told = f"default {argument}"
                self.use(part, told, value, told + inside, "default")
        closure = {}
        for variable, cell in cells.items():
            try:
                closure[variable] = cell.cell_contents
            except ValueError:  # not assigned yet
                self.unresolved.append(f"closure {variable}{inside}")
        for kind, *chain in sorted(read.used | {("closure", variable) for variable in closure}):
            if kind == "global":
                self.follow(part, function.__globals__, chain, home)
            elif chain[0] in closure:
                value = closure[chain[0]]
                if issubclass(type(value), types.ModuleType):
                    self.follow(part, closure, chain, home)
                    continue
                label = f"closure {chain[0]}{inside}"
                if type(value) is types.FunctionType or chain[0] == "__class__":
                    label = self.qualified(_home(value), _root_name(value))
                self.use(part, f"closure {chain[0]}", value, label, "closure variable")
        for level, module, taken in sorted(read.imports):
            self.imported(part, function.__globals__, level, module, taken)
        return text

    def follow(self, part: int, scope: Mapping[str, Any], chain: Sequence[str], home: str) -> None:
        """Use what a name, or a chain of attributes on the user's modules, stands for."""
        for length, attribute in enumerate(chain, 1):
            name = self.qualified(home, attribute)
            if attribute not in scope:
                if attribute not in _BUILT_IN or length > 1:
                    self.unresolved.append(name)
                return
            value, edge = scope[attribute], f"global {'.'.join(chain[:length])}"
            is_module = issubclass(type(value), types.ModuleType)
            if not is_module or length == len(chain):
                break
            home = _static(value, "__name__")
            if self.installed(home):
                break
            scope = _static(value, "__dict__")
        self.use(part, edge, value, name)
        if type(value) is types.FunctionType and length < len(chain):
            noted = vars(value).get(chain[length], value)
            if noted is not value and not self.installed(value.__module__ or ""):
                full = f"{name}.{chain[length]}"
                self.use(part, f"{edge}.{chain[length]}", noted, full, "attribute")

    def imported(
        self,
        part: int,
        scope: Mapping[str, Any],
        level: int,
        module: str,
        taken: Iterable[str],
    ) -> None:
        """Use the code of a module of the user's own that is imported inside a function.

        Read from its file whether it is loaded or not, so that it does not matter which.
        """
        if level:
            package = str(scope.get("__package__") or "").split(".")
            module = ".".join([*package[: len(package) - level + 1], *filter(None, [module])])
        names = module.split(".")
        for target in [
            *(".".join(names[:n]) for n in range(1, len(names) + 1)),
            *(f"{module}.{name}" for name in taken),
        ]:
            if self.installed(target):
                continue
            if _spec(target) is not None:
                self.use(part, f"import {target}", _Module(target), target)
            elif target == module:
                self.unresolved.append(target)

    def module(self, part: int, module: str) -> str:
        spec = _spec(module)
        code = getattr(spec.loader, "get_code", lambda name: None)(spec.name) if spec else None
        if spec is None or code is None:
            return f"compiled {_file_digest(spec.origin)}" if spec and spec.origin else "module"
        read = _read(code)
        text = "".join(linecache.getlines(code.co_filename))
        self.sources[self.names[part]] = _hash(_dump(ast.parse(text))) if text else ""
        package = spec.name if spec.submodule_search_locations else spec.parent
        for level, name, taken in sorted(read.imports):
            self.imported(part, {"__package__": package}, level, name, taken)
        return f"module {read.digest}"

    def of_class(self, part: int, kind: type) -> str:
        if (known := self.named(kind)) is not None:
            return known
        name, members = self.names[part], dict(kind.__dict__)
        told: list[object] = ["class"]
        for i, base in enumerate([*kind.__bases__, type(kind)]):
            told.append(known := self.named(base))
            if known is None:
                full = self.qualified(base.__module__, base.__qualname__)
                self.use(part, f"base {i}", base, full)
        if "__dataclass_fields__" in members:  # told by its fields: generated methods vary
            for f in members["__dataclass_fields__"].values():
                told.append((f.name, f.init, f.kw_only, f.compare, f._field_type.name))
                for role in ("default", "default_factory"):
                    if (value := getattr(f, role)) is not MISSING:
                        self.use(part, f"{role} {f.name}", value, f"{name}.{f.name}", "default")
            made = members["__dataclass_params__"]
            told.append((made.init, made.repr, made.eq, made.order, made.frozen))
        if issubclass(type(kind), enum.EnumMeta):
            values = {n: _static(m, "_value_") for n, m in members["_member_map_"].items()}
            told.append(_Plain(self.reference(part))(values, " values"))
        for attribute, value in sorted(members.items()):
            if not self.written(kind, members, attribute, value):
                continue
            told.append((attribute, type(value).__name__ if type(value) in _DESCRIPTORS else ""))
            for role, inner in _behind(value):
                full = f"{name}.{attribute}{role}"
                self.use(part, f"member {attribute}{role}", inner, full, "attribute")
        return ascii(told)

    def written(self, kind: type, members: Mapping[str, Any], attribute: str, value: Any) -> bool:
        """Whether an attribute of a class was written by its author, and not made by Python."""
        is_function = type(value) is types.FunctionType
        is_dunder = attribute.startswith("__") and attribute.endswith("__")
        if is_dunder and is_function and "__dataclass_fields__" in members:
            return not value.__code__.co_qualname.startswith(("__create_fn__", "_recursive_repr"))
        if issubclass(type(kind), enum.EnumMeta):
            if attribute in members["_member_map_"]:
                return False
            if _ENUM_OWN.match(attribute):
                return is_function and not self.installed(_home(value))
        if is_dunder:
            return is_function or type(value) in _DESCRIPTORS
        return attribute != "_abc_impl"

    def instance(self, part: int, value: Any) -> str:
        """Content of an instance of a class of the user's: its class and its attributes."""
        kind, name = type(value), self.names[part]
        self.use(part, "class", kind, self.qualified(kind.__module__, kind.__qualname__))
        for key, item in sorted(_held(value, self.installed).items()):
            if type(inspect.getattr_static(kind, key, None)) is not functools.cached_property:
                self.use(part, f"attribute {key}", item, f"{name}.{key}", "value")
        plain = _Plain(lambda inner, path: self.reference(part)(inner, path) if path else "")
        for base, copy in (
            (int, int.__int__),
            (float, float.__float__),
            (str, str.__str__),
            (bytes, bytes.__bytes__),
            (np.ndarray, lambda array: np.ndarray.view(array, np.ndarray)),
        ):
            if issubclass(kind, base):
                return f"instance {plain(copy(value))}"
        return f"instance {plain.container(kind, value, '') or ''}"


class _Module(str):
    """Name of a module whose code counts as a whole."""

    __slots__ = ()


def _unwrapped(value: Any) -> Any:
    """What a method, a partial or a wrapper stands around; None for anything else."""
    if type(value) is functools.partial:
        return value.func
    if type(value) is types.MethodType:
        return value.__func__
    inner = next(filter(callable, (_static(value, name) for name in _WRAPPED)), None)
    return None if inner is value else inner


def _root_name(value: Any) -> str:
    if type(value) is types.FunctionType:
        if "__wrapped__" in vars(value):
            return f"{value.__code__.co_qualname.partition('.')[0]} of {value.__name__}"
        return value.__name__ if "<locals>" in value.__qualname__ else value.__qualname__
    if type(value) is functools.partial:
        return f"partial of {_root_name(value.func)}"
    if type(value) is types.MethodType:
        return _root_name(value.__func__)
    name = _static(value, "__qualname__") or _static(value, "__name__")
    if issubclass(type(value), type):
        name = value.__qualname__
    return name if isinstance(name, str) else "self"


def _behind(value: Any) -> Iterator[tuple[str, object]]:
    """What an attribute of a class stands for, by role."""
    kind = type(value)
    if kind in (staticmethod, classmethod):
        yield "", value.__func__
    elif kind is property:
        accessors = {"": value.fget, " setter": value.fset, " deleter": value.fdel}
        yield from ((role, each) for role, each in accessors.items() if each is not None)
    elif kind is functools.cached_property:
        yield "", value.func
    elif kind is functools.partialmethod:
        yield "", value.func
        yield " arguments", (value.args, value.keywords)
    elif kind not in _SLOTS:
        yield "", value


def _home(value: Any) -> str:
    """Name of the module that a function or class was defined in."""
    if type(value) is types.FunctionType:
        return str(value.__globals__.get("__name__", ""))
    home = value.__module__ if issubclass(type(value), type) else _static(value, "__module__")
    if home is None and type(value) is types.BuiltinFunctionType:
        home = type(value.__self__).__module__
    return home if isinstance(home, str) else type(value).__module__


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _held(
    value: object, skipped: Callable[[str], bool] = lambda module: False
) -> dict[str, object]:
    """Attributes an instance holds, in its ``__dict__`` or in slots."""
    held = dict(_static(value, "__dict__") or {})
    for base in type(value).__mro__:
        for key, slot in base.__dict__.items():
            if type(slot) is types.MemberDescriptorType and not skipped(base.__module__):
                with contextlib.suppress(AttributeError):  # never assigned
                    held[key] = slot.__get__(value)
    return held


def _static(value: Any, name: str) -> Any:
    """Attribute read without calling anything of the user's; None where there is none."""
    found = inspect.getattr_static(value, name, None)
    if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):
        try:
            return found.__get__(value)
        except AttributeError:
            return None
    return found


def _type_name(value: object) -> str:
    kind = type(value)
    home = kind.__module__
    return kind.__qualname__ if home == "builtins" else f"{home}.{kind.__qualname__}"


def _file_digest(file: str) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def _spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module is found; imports nothing."""
    names = module.split(".")
    try:
        spec = importlib.util.find_spec(names[0])
    except ValueError:  # __main__, and modules made by hand
        return None
    for n in range(2, len(names) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        where = list(spec.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec(".".join(names[:n]), where)
    return spec


def _installed(module: str) -> bool:
    top = module.partition(".")[0]
    if top in ("", "__main__", "__mp_main__"):
        return False
    if top == __name__.partition(".")[0] or top in sys.builtin_module_names:
        return True
    loaded = sys.modules.get(module) or sys.modules.get(top)
    file = _static(loaded, "__file__") if loaded else None
    if not isinstance(file, str) and (spec := _spec(top)) is not None:
        file = next(iter(spec.submodule_search_locations or [spec.origin or ""]))
    if not file or file in ("built-in", "frozen"):
        return top in sys.stdlib_module_names
    real, standard = os.path.realpath(file), os.path.realpath(os.path.dirname(os.__file__))
    folders = {"site-packages", "dist-packages"}
    return not folders.isdisjoint(real.split(os.sep)) or real.startswith(standard + os.sep)


def _package_version(module: str) -> str:
    top = module.partition(".")[0]
    found = _static(sys.modules.get(top), "__version__")
    if isinstance(found, str):
        return found
    try:
        return importlib.metadata.version(top)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


# Source, to compare what two Pythons compiled.


def _source(code: types.CodeType, digest: str, scope: dict[str, Any]) -> str:
    """Digest of the normalised source; "" unless it compiles to this very code.

    The file may have been edited since, and a line may hold several lambdas.
    """
    lines = linecache.getlines(code.co_filename, scope)
    owner = code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    arguments = ", ".join(name for name in code.co_freevars if name != "__class__")
    texts = ["".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))] if lines else []
    if code.co_name == "<lambda>":  # the lines it stands on need not be a statement
        texts.append("".join(lines))
    for text in texts:
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(textwrap.dedent(text))):
                if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                    continue
                if getattr(node, "name", "<lambda>") != code.co_name:
                    continue
                frame = ast.parse(f"def _({arguments}):\n class _: pass")
                outer: Any = frame.body[0]
                if owner.isidentifier():  # for __class__ and the private names
                    outer.body[0].name = owner
                    outer = outer.body[0]
                outer.body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node]
                ast.fix_missing_locations(frame)
                flags = code.co_flags & annotations.compiler_flag
                made = compile(frame, "", "exec", flags=flags, dont_inherit=True)
                if any(
                    _read(c).digest == digest for c in _codes(made) if c.co_name == code.co_name
                ):
                    arguments_only = ast.arguments(
                        **(vars(node.args) | {"defaults": [], "kw_defaults": []})
                    )
                    return _hash(_dump([arguments_only, node.body]))
    return ""


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return inner + [c for outer in inner for c in _codes(outer)]


_UNSAID = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores"}


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _dump(node: object) -> str:
    """Text of a syntax tree without docstrings and annotations; the same in every Python."""
    if isinstance(node, ast.Constant):
        return _Plain(_no_other)(node.value)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return f"Assign({_dump([node.target])},{_dump(node.value)})"
    if isinstance(node, ast.Assign):
        return f"Assign({_dump(node.targets)},{_dump(node.value)})"
    if isinstance(node, ast.AST):
        told = [
            (k, v) for k, v in ast.iter_fields(node) if k not in _UNSAID and v not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(f'{k}={_dump(v)}' for k, v in told)})"
    if isinstance(node, list):
        said = [n for n in node if not isinstance(n, ast.Pass) and not _is_text(n)]
        return f"[{','.join(map(_dump, said))}]"
    return ascii(node)


# What cannot be pickled.


def pickling_culprit(value: object) -> str | None:
    """Name of what keeps `value` from being pickled by cloudpickle; None if it pickles.

    Follows what cloudpickle takes along: globals, closures and defaults of functions that are not
    importable, attributes of instances, items of containers.

    Examples
    --------
    >>> import threading
    >>> pickling_culprit({"lock": threading.Lock()})
    "item 'lock' (a _thread.lock)"
    """
    named = type(value) is types.FunctionType
    return _culprit(value, f"function {_static(value, '__qualname__')!r}" if named else "", "", [])


def _culprit(value: object, what: str, tail: str, seen: list[object]) -> str | None:
    try:
        cloudpickle.dumps(value)
    except Exception:  # pickling runs what the user's classes define, which may raise anything
        seen.append(value)
    else:
        return None
    for inner_what, inner_tail, inner in _taken_along(value, f" of {what}{tail}" if what else ""):
        if not any(inner is known for known in seen):
            found = _culprit(inner, inner_what, inner_tail, seen)
            if found is not None:
                return found
    name = "open file" if isinstance(value, io.IOBase) else _type_name(value)
    kind = f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    return f"{what} ({kind}){tail}" if what else kind


def _taken_along(value: Any, tail: str) -> Iterator[tuple[str, str, object]]:
    """What is pickled with `value`: how it is called, whose it is, and the object."""
    kind = type(value)
    if kind is types.FunctionType:
        owner = value.__qualname__
        for use, name, *_ in sorted(_read(value.__code__).used):
            if use == "global" and name in value.__globals__:
                yield f"global {name!r}", f", used by function {owner!r}", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield f"closure variable {name!r}", f" of {owner!r}", cell.cell_contents
        for name, default in _defaults(value):
            yield f"default {name!r}", f" of {owner!r}", default
    elif kind is types.MethodType:
        yield "'self'", f" of method {value.__qualname__!r}", value.__self__
    elif kind is functools.partial:
        yield f"function {_root_name(value.func)!r}", tail, value.func
        for key, item in [*enumerate(value.args), *value.keywords.items()]:
            yield f"argument {key!r}", f" of a partial{tail}", item
    elif issubclass(kind, (dict, list, tuple, set, frozenset)):
        for key, item in value.items() if issubclass(kind, dict) else enumerate(value):
            yield f"item {key!r}", tail, item
    elif issubclass(kind, type):
        for name, item in vars(value).items():
            for _, inner in _behind(item):
                yield f"attribute {name!r}", f" of class {value.__qualname__!r}", inner
    elif not _installed(kind.__module__):
        for name, item in _held(value).items():
            yield f"attribute {name!r}", tail or f" of a {kind.__qualname__}", item
        yield f"class {kind.__qualname__!r}", tail, kind

"""What a function reaches: its own code, and all it uses of the user's code and globals."""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import inspect
import linecache
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any

import numpy as np

from sweepkit.bytecode import Code, read_code
from sweepkit.digest import digest_of, reduced
from sweepkit.objects import (
    behind,
    defaults_of,
    file_digest,
    held_by,
    home_of,
    installed,
    name_of,
    package_version,
    spec_of,
    static,
    type_name,
    unwrapped,
)
from sweepkit.source import normal_form, source_digest
from sweepkit.spelling import Spelling, TooLargeError

__all__ = ["Reach"]

_ENUM_OWN = re.compile("_.*_$")
_BUILT_IN = frozenset(vars(builtins))
_METHODS = (staticmethod, classmethod, property)
_QUIET = {"typing", "typing_extensions", "types", "dataclasses", "abc"}  # say nothing about values


class Reach:
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
        while (wrapped := unwrapped(inner)) is not None:
            inner = wrapped
        self.home = home_of(inner if callable(static(inner, "__get__")) else type(inner))
        bound = "method " if type(root) is types.MethodType else ""
        self.root = self.add(root, bound + name_of(root), "method" if bound else "function")
        for part, value in enumerate(self.objects):  # grows while it is read
            try:
                self.own[part] = self.fill(part, value)
            except TooLargeError:
                self.own[part] = self.hidden(part, f"{type_name(value)}, too large")
        for name in self.unresolved:
            self.labels.setdefault(name, f"global {name!r}")
        if self.own[0].startswith("named "):
            self.own[0] += f" {package_version(home_of(root))}"

    def parts(self) -> dict[str, str]:
        """Digest of each part by name; "unresolved" for a global that does not exist."""
        digests = {name: digest_of(own) for name, own in zip(self.names, self.own, strict=True)}
        return dict.fromkeys(self.labels, "unresolved") | digests

    def digest(self) -> str:
        """Digest of all parts and how they use each other."""
        return reduced(self.own, self.edges)

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
            self.library[module] = installed(module)
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
            home = static(value, "__name__")
            if self.installed(home) or home == "__main__":
                return f"package {home}"
            return self.module(part, home)
        if kind is types.MethodType:
            bound, inside = value.__self__, "" if part == self.root else f" of {name}"
            bound_name = bound.__qualname__ if issubclass(type(bound), type) else f"self{inside}"
            self.use(part, "function", value.__func__, name_of(value.__func__), "method")
            self.use(part, "self", bound, bound_name, "value")
            return "method"
        if kind is functools.partial:
            self.use(part, "function", value.func, name_of(value.func), "function")
            for key, argument in [*enumerate(value.args), *value.keywords.items()]:
                self.use(part, f"argument {key}", argument, f"argument {key}", "argument")
            return f"partial {len(value.args)}"
        if issubclass(type(kind), enum.EnumMeta):
            if not self.installed(kind.__module__):
                self.use(part, "class", kind, self.qualified(kind.__module__, kind.__qualname__))
            inside = Spelling(self.reference(part))(static(value, "_value_"), "value")
            return f"member {static(value, '_name_')}={inside}"
        if not self.installed(kind.__module__):
            return self.instance(part, value)
        if (known := self.named(value)) is not None:
            return known
        if (inner := unwrapped(value)) is not None:
            self.use(part, "wrapped", inner, name_of(inner), "function")
            return f"wrapper {type_name(value)}"
        return Spelling(self.reference(part))(value)

    def reference(self, part: int) -> Callable[[object, str], str]:
        """What to do with a value, somewhere inside the part, that is not plain data."""

        def other(value: object, path: str) -> str:
            if (known := self.named(value)) is not None:
                return known
            kind = type(value)
            if not path:
                if kind.__module__ in _QUIET:
                    return type_name(value)
                return self.hidden(part, type_name(value))
            self.use(part, path, value, self.names[part] + path, "value")
            return "*"

        return other

    def named(self, value: Any) -> str | None:
        """Text of an installed or compiled function or class, which counts by its name."""
        if issubclass(type(value), type):
            if not self.installed(value.__module__):
                return None
            return f"named {value.__module__.partition('.')[0]}:{value.__qualname__}"
        name = static(value, "__qualname__") or static(value, "__name__")
        if not isinstance(name, str) or not callable(value) or callable(static(value, "pyfunc")):
            return None
        if type(value) is types.FunctionType:
            return None
        home = home_of(value)
        if self.installed(home):
            return f"named {home.partition('.')[0]}:{name}"
        file = getattr(sys.modules.get(home), "__file__", None) or ""
        if not file.endswith((".so", ".pyd")):
            return None
        return f"named {home}:{name} {file_digest(file)}"

    def function(self, part: int, function: types.FunctionType) -> str:
        code, home = function.__code__, function.__globals__.get("__name__", "")
        name, inside = self.names[part], "" if part == self.root else f" of {self.names[part]}"
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        read = Code("", frozenset(), frozenset())
        text = f"named {home.partition('.')[0]}:{code.co_qualname}"
        if self.installed(home):
            if "<locals>" not in code.co_qualname or (
                self.installed(function.__module__ or "") and "__wrapped__" in vars(function)
            ):
                return f"named {home.partition('.')[0]}:{function.__qualname__}"
        else:
            read = read_code(code)
            self.sources[name] = source_digest(code, read.digest, function.__globals__)
            text = f"function {read.digest}"
            for argument, value in defaults_of(function):
                told = f"default {argument}"
                self.use(part, told, value, told + inside, "default")
        closure = {}
        for variable, cell in cells.items():
            try:
                closure[variable] = cell.cell_contents
            except ValueError:  # not assigned yet
                self.unresolved.append(f"closure {variable}{inside}")
        loaded = {name for kind, name, *_ in read.used if kind == "closure"}
        whole = {("closure", variable) for variable in closure if variable not in loaded}
        for kind, *chain in sorted(read.used | whole):
            if kind == "global":
                self.follow(part, function.__globals__, chain, home)
            elif chain[0] in closure:
                value = closure[chain[0]]
                if issubclass(type(value), types.ModuleType):
                    self.follow(part, closure, chain, home)
                    continue
                label = f"closure {chain[0]}{inside}"
                if type(value) is types.FunctionType or chain[0] == "__class__":
                    label = self.qualified(home_of(value), name_of(value))
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
            home = static(value, "__name__")
            if self.installed(home):
                break
            scope = static(value, "__dict__")
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
            if spec_of(target) is not None:
                self.use(part, f"import {target}", _Module(target), target)
            elif target == module:
                self.unresolved.append(target)

    def module(self, part: int, module: str) -> str:
        spec = spec_of(module)
        code = getattr(spec.loader, "get_code", lambda name: None)(spec.name) if spec else None
        if spec is None or code is None:
            return f"compiled {file_digest(spec.origin)}" if spec and spec.origin else "module"
        read = read_code(code)
        text = "".join(linecache.getlines(code.co_filename))
        self.sources[self.names[part]] = digest_of(normal_form(ast.parse(text))) if text else ""
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
            values = {n: static(m, "_value_") for n, m in members["_member_map_"].items()}
            told.append(Spelling(self.reference(part))(values, " values"))
        for attribute, value in sorted(members.items()):
            if not self.written(kind, members, attribute, value):
                continue
            told.append((attribute, type(value).__name__ if type(value) in _METHODS else ""))
            for role, inner in behind(value):
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
                return is_function and not self.installed(home_of(value))
        if is_dunder:
            return is_function or type(value) in _METHODS
        return attribute != "_abc_impl"

    def instance(self, part: int, value: Any) -> str:
        """Content of an instance of a class of the user's: its class and its attributes."""
        kind, name = type(value), self.names[part]
        self.use(part, "class", kind, self.qualified(kind.__module__, kind.__qualname__))
        for key, item in sorted(held_by(value, self.installed).items()):
            if type(inspect.getattr_static(kind, key, None)) is not functools.cached_property:
                self.use(part, f"attribute {key}", item, f"{name}.{key}", "value")
        plain = Spelling(lambda inner, path: self.reference(part)(inner, path) if path else "")
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

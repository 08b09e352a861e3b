"""Which installed packages a simulator's own code uses, in which versions."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sweepkit.command import Command
from sweepkit.objects import home_of, installed, package_version
from sweepkit.reach import Reach
from sweepkit.sweep import Sweep
from sweepkit.vectorized import Vectorized

__all__ = ["packages_of", "used"]


def used(sweep: Sweep) -> dict[str, str]:
    """Versions of the installed packages that a sweep's simulator and set-up use."""
    simulator = sweep.simulator
    own = simulator.function if isinstance(simulator, Vectorized) else simulator
    functions = [] if isinstance(own, Command) else [own]
    return packages_of([*functions, *sweep.setup.values()])


def packages_of(functions: Iterable[Callable[..., Any]]) -> dict[str, str]:
    """Versions of the installed packages that functions use, directly or in the user's own code.

    Parameters
    ----------
    functions : iterable of callable
        Simulator, functions of the set-up. Read, never called.

    Returns
    -------
    dict of str to str
        By the name under which a package is imported; without Python's own modules, and without
        those that have no version.

    Examples
    --------
    >>> import numpy
    >>> packages_of([lambda x: numpy.sin(x)]) == {"numpy": numpy.__version__}
    True
    """
    tops = set()
    for function in functions:
        for one in Reach(function).objects:
            if isinstance(one, types.ModuleType):
                home = one.__name__
            else:
                home = str(one) if isinstance(one, str) else home_of(one)
            tops.add(home.partition(".")[0])
            if isinstance(one, types.FunctionType):
                tops |= {name.partition(".")[0] for name in _imported(one.__code__)}
    ours = __name__.partition(".")[0]
    used = [one for one in sorted(tops - {ours, ""}) if one.isidentifier()]
    used = [one for one in used if one not in sys.stdlib_module_names and installed(one)]
    versions = {one: package_version(one) for one in used}
    return {name: version for name, version in versions.items() if version}


def _imported(code: types.CodeType) -> Iterator[str]:
    """Modules that code imports while it runs."""
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            yield str(one.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _imported(inner)

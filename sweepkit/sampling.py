"""Sampled sets of points: parameters drawn together along one dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import Grid
from sweepkit.parameters import Values, check_name, parameter

__all__ = ["latin_hypercube", "sobol"]


def latin_hypercube(
    domains: Mapping[str, Any] | None = None,
    /,
    *,
    size: int,
    seed: int = 0,
    dim: str = "sample",
    batches: int = 1,
    **more: Any,
) -> Grid:
    """A Latin hypercube: every parameter's range is cut into ``size`` strata, each hit once.

    Parameters
    ----------
    domains : mapping, optional
        What each parameter is drawn from; others by keyword. ``(low, high)`` is a continuous
        range, a ``range`` a set of integers, a list, array or mapping of labels a set of
        categories, and a frozen scipy distribution (anything with ``ppf``) itself. Wrap it in
        :func:`scenario` or :func:`design` for a role and units.
    size : int
        Points of one hypercube.
    seed : int
        Same seed, same points.
    dim : str
        Dim along which the points lie.
    batches : int
        Hypercubes one after the other. A set with more batches begins with the points of a set
        with fewer, so a sweep is extended by raising it; each batch is stratified by itself.

    Returns
    -------
    Grid
        Of ``size * batches`` points along ``dim``, to be run as it is or crossed with others.

    Raises
    ------
    TypeError, ValueError
        If a domain cannot be drawn from, or points repeat because the domains are too small.

    References
    ----------
    M. D. McKay, R. J. Beckman, W. J. Conover, Technometrics 21 (1979), 239-245;
    drawn by ``scipy.stats.qmc.LatinHypercube``.

    Examples
    --------
    >>> import sweepkit as sk
    >>> points = sk.latin_hypercube({"a": (0, 1), "n": range(1, 9)}, size=256, seed=0)
    >>> sk.grid(points, gain=[1.0, 2.0]).size
    512
    """
    from scipy.stats import qmc

    space = {**(domains or {}), **more}
    _check_size(size, "size")
    _check_size(batches, "batches")
    draws = [
        qmc.LatinHypercube(d=max(len(space), 1), rng=np.random.default_rng([seed, batch])).random(
            size
        )
        for batch in range(batches)
    ]
    return _sampled(space, np.concatenate(draws), dim)


def sobol(
    domains: Mapping[str, Any] | None = None,
    /,
    *,
    size: int,
    seed: int = 0,
    dim: str = "sample",
    **more: Any,
) -> Grid:
    """A scrambled Sobol sequence, which covers the space evenly at any length.

    Parameters
    ----------
    domains : mapping, optional
        As :func:`latin_hypercube`; others by keyword.
    size : int
        Points; powers of two are balanced best. A longer sequence begins with the points of a
        shorter one, so a sweep is extended by raising it.
    seed : int
        Same seed, same points.
    dim : str
        Dim along which the points lie.

    Returns
    -------
    Grid
        Of ``size`` points along ``dim``, to be run as it is or crossed with others.

    Raises
    ------
    TypeError, ValueError
        If a domain cannot be drawn from, or points repeat because the domains are too small.

    References
    ----------
    A. B. Owen, J. Complexity 14 (1998), 466-489; drawn by ``scipy.stats.qmc.Sobol``.
    """
    from scipy.stats import qmc

    space = {**(domains or {}), **more}
    _check_size(size, "size")
    engine = qmc.Sobol(d=max(len(space), 1), scramble=True, rng=np.random.default_rng(seed))
    exponent = max(int(size) - 1, 0).bit_length()  # whole powers of two draw without a warning
    return _sampled(space, engine.random_base2(exponent)[:size], dim)


def _check_size(size: object, word: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(f"{word} is {size!r}; give a whole number of at least 1")


def _sampled(space: Mapping[str, Any], unit: NDArray[np.float64], dim: str) -> Grid:
    check_name(dim, "dim")
    if not space:
        raise ValueError("no parameters are given to be sampled; give each its range")
    if dim in space:
        raise ValueError(f"dim {dim!r} has the name of a parameter; give the dim another name")
    made = []
    for name, column in zip(space, unit.T, strict=True):
        said = space[name] if isinstance(space[name], Values) else Values(space[name])
        if said.dims is not None:
            raise ValueError(f"parameter {name!r} is sampled and cannot have dims of its own")
        draw, objects = _domain(name, said.data)
        data: Any = draw(column)
        one = parameter(name, replace(said, data=data, dims=(dim,)))
        if objects is not None:
            one = replace(one, objects=tuple(objects[label] for label in one.values))
        made.append(one)
    return Grid(tuple(made))


def _domain(
    name: str, domain: Any
) -> tuple[Callable[[NDArray[np.float64]], Any], Mapping[str, Any] | None]:
    """How uniform numbers in [0, 1) become values, and the objects behind labels."""
    if hasattr(domain, "ppf"):
        return lambda u: np.asarray(domain.ppf(u)), None
    if isinstance(domain, Mapping):
        labels = np.array([*parameter(name, Values(domain)).values], dtype=object)
        return lambda u: labels[_level(u, len(labels))], domain
    if isinstance(domain, tuple) and len(domain) == 2 and all(map(_is_number, domain)):
        low, high = float(domain[0]), float(domain[1])
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(
                f"range ({domain[0]!r}, {domain[1]!r}) of parameter {name!r} is empty or "
                "unbounded; give (low, high) with low < high"
            )
        return lambda u: low + (high - low) * u, None
    if isinstance(domain, str) or not hasattr(domain, "__len__"):
        raise TypeError(
            f"domain {domain!r} of parameter {name!r} cannot be drawn from; give (low, high), "
            "a range of integers, a list of categories or a scipy distribution"
        )
    categories = parameter(name, Values(domain)).values
    return lambda u: categories[_level(u, len(categories))], None


def _is_number(item: object) -> bool:
    return isinstance(item, int | float | np.integer | np.floating) and not isinstance(item, bool)


def _level(u: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    return np.minimum((u * count).astype(np.intp), count - 1)

"""Sampled sets of points: parameters drawn together along one dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import Grid
from sweepkit.parameters import Values, check_name, named, parameter

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

    space = named(domains, more)
    _check_whole("size", size, 1)
    _check_whole("batches", batches, 1)
    _check_whole("seed", seed, 0)
    draws = [
        qmc.LatinHypercube(d=max(len(space), 1), rng=np.random.default_rng([seed, batch])).random(
            size
        )
        for batch in range(batches)
    ]
    return _sampled(space, np.concatenate(draws), dim, "latin hypercube")


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

    space = named(domains, more)
    _check_whole("size", size, 1)
    _check_whole("seed", seed, 0)
    engine = qmc.Sobol(d=max(len(space), 1), scramble=True, rng=np.random.default_rng(seed))
    exponent = max(int(size) - 1, 0).bit_length()  # whole powers of two draw without a warning
    return _sampled(space, engine.random_base2(exponent)[:size], dim, "sobol")


def _check_whole(word: str, number: object, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
        raise ValueError(
            f"{word} is {number!r}; give a whole number of at least {least} (parameters of the "
            f"name {word!r} go into a mapping)"
        )


def _sampled(space: Mapping[str, Any], unit: NDArray[np.float64], dim: str, how: str) -> Grid:
    check_name(dim, "dim")
    if not space:
        raise ValueError("no parameters are given to be sampled; give each its range")
    if dim in space:
        raise ValueError(f"dim {dim!r} has the name of a parameter; give the dim another name")
    made = []
    points = 1.0
    for name, column in zip(space, unit.T, strict=True):
        said = space[name] if isinstance(space[name], Values) else Values(space[name])
        if said.dims is not None:
            raise ValueError(f"parameter {name!r} is sampled and cannot have dims of its own")
        domain = _domain(name, said.data)
        points *= domain.size
        drawn = replace(said, data=domain.draw(column), dims=(dim,), sampled=how)
        one = parameter(name, drawn)
        if isinstance(said.data, Mapping):
            one = replace(one, objects=tuple(said.data[label] for label in one.values))
        made.append(one)
    if points < len(unit):
        raise ValueError(
            f"the domains of {', '.join(map(repr, space))} hold {int(points):,} points in all, but "
            f"{len(unit):,} are to be drawn; draw fewer, or cross them all with sk.grid"
        )
    try:
        return Grid(tuple(made))
    except ValueError as fault:
        raise ValueError(
            f"{fault}; of the domains' {points:,.0f} points some were drawn twice: draw fewer, or "
            "cross them all with sk.grid"
        ) from None


@dataclass(frozen=True)
class _Domain:
    """What a parameter is drawn from: uniform numbers in [0, 1) to values, and how many values."""

    draw: Callable[[NDArray[np.float64]], Any]
    size: float = np.inf


def _domain(name: str, domain: Any) -> _Domain:
    quantile = getattr(domain, "ppf", None) or getattr(domain, "icdf", None)
    if quantile is not None:
        whole = hasattr(domain, "pmf")
        return _Domain(lambda u: _quantiles(quantile, u, whole))
    if isinstance(domain, tuple) and len(domain) == 2 and all(map(_is_number, domain)):
        low, high = float(domain[0]), float(domain[1])
        if not (np.isfinite(high - low) and low < high):
            raise ValueError(
                f"range ({domain[0]!r}, {domain[1]!r}) of parameter {name!r} is empty or "
                "unbounded; give (low, high) with low < high"
            )
        return _Domain(lambda u: low + (high - low) * u)
    if isinstance(domain, range) and len(domain):  # may be much too long to be listed
        return _Domain(lambda u: domain.start + domain.step * _level(u, len(domain)), len(domain))
    if isinstance(domain, str) or not hasattr(domain, "__len__"):
        raise TypeError(
            f"domain {domain!r} of parameter {name!r} cannot be drawn from; give (low, high), "
            "a range of integers, a list of categories or a scipy distribution"
        )
    categories = parameter(name, Values(domain, dims=(name,)))
    Grid((categories,))  # refuses what is given twice
    return _Domain(lambda u: categories.values[_level(u, categories.size)], categories.size)


def _quantiles(quantile: Callable[..., Any], u: NDArray[np.float64], whole: bool) -> NDArray[Any]:
    drawn = np.asarray(quantile(np.maximum(u, 2.0**-64)))  # the quantile of 0 may be infinite
    integral = whole and np.isfinite(drawn).all() and (drawn == np.rint(drawn)).all()
    return drawn.astype(np.int64) if integral else drawn


def _is_number(item: object) -> bool:
    return isinstance(item, int | float | np.integer | np.floating) and not isinstance(item, bool)


def _level(u: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    return np.minimum((u * count).astype(np.intp), count - 1)

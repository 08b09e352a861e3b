"""Seed and random generator of a run, from its point alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import axis, was_from_json
from sweepkit.grid import REPLICATE, Grid
from sweepkit.parameters import Parameter

__all__ = ["STREAMS", "generators", "run_keys", "seed_of", "seeds"]

STREAMS = ("independent", "common")
"""Whether each run draws its own numbers, or designs are compared on the same ones."""


def run_keys(
    grid: Grid,
    index: Mapping[str, NDArray[np.intp]],
    *,
    streams: str = "independent",
    was: Mapping[str, Parameter] | None = None,
) -> NDArray[np.uint64]:
    """Key of each run: a digest of its values, whatever the order of parameters or the axes.

    Parameters
    ----------
    grid : Grid
        What varies.
    index : mapping of dim to array of int, shape (n,)
        Positions of the runs.
    streams : {"independent", "common"}
        With "common" the design parameters take no part, so that designs share draws.
    was : mapping, optional
        Parameters that joined a finished sweep, with the one value its runs had: at that value
        they take no part. Neither does replicate 0, so that replicates may be added later.

    Returns
    -------
    array of uint64, shape (n, 2)
    """
    count = len(next(iter(index.values()), ()))
    total = np.zeros((count, 2), dtype=np.uint64)
    for one in grid.parameters:
        if streams == "common" and one.role == "design":
            continue
        positions = index[one.dim]
        keys = one.keys()[positions] if one.size <= count else one.keys(positions)
        neutral = _neutral(one, was)
        if neutral is not None:
            keys = np.where((keys == neutral).all(axis=1, keepdims=True), np.uint64(0), keys)
        total += keys
    return total


def _neutral(one: Parameter, was: Mapping[str, Parameter] | None) -> NDArray[np.uint64] | None:
    if was is not None and one.name in was:
        return was[one.name].keys()
    if one.name == REPLICATE and one.role == "replicate":
        return replace(one, values=np.array([0])).keys()
    return None


def _materials(keys: NDArray[np.uint64], entropy: int, purpose: bytes) -> Iterator[bytes]:
    salt = hashlib.blake2b(purpose + b"%d" % entropy, digest_size=16).digest()
    packed = np.ascontiguousarray(keys, dtype="<u8").tobytes()
    for at in range(0, len(packed), 16):
        yield hashlib.blake2b(packed[at : at + 16], digest_size=16, key=salt).digest()


def seeds(keys: NDArray[np.uint64], entropy: int) -> Iterator[int]:
    """Seed of each run: 32 bits, which every simulator takes; 128 bits are in the generator."""
    for material in _materials(keys, entropy, b"seed"):
        yield int.from_bytes(material[:4], "little")


def generators(keys: NDArray[np.uint64], entropy: int) -> Iterator[np.random.Generator]:
    """Random generator of each run (PCG64, seeded with 128 bits)."""
    for material in _materials(keys, entropy, b"rng"):
        yield np.random.Generator(np.random.PCG64(int.from_bytes(material, "little")))


def seed_of(declaration: Mapping[str, Any], point: Mapping[str, Any]) -> int | None:
    """Seed of one run, from what its store declares and the values of its parameters.

    None where the declaration or the point does not tell.
    """
    said = declaration.get("parameters", ())
    if not said or "entropy" not in declaration or any(one["name"] not in point for one in said):
        return None
    grid = Grid(tuple(axis(one, np.asarray(point[one["name"]])[np.newaxis]) for one in said))
    index = {dim: np.zeros(1, dtype=np.intp) for dim in grid.sizes}
    streams = declaration.get("streams", "independent")
    keys = run_keys(grid, index, streams=streams, was=was_from_json(declaration))
    return next(seeds(keys, declaration["entropy"]))

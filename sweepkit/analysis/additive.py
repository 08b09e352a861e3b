"""Variance shares of scattered runs from an additive model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, Codes, Floats
from sweepkit.analysis.table import Table

__all__ = ["Indices", "N_CELLS", "N_PAIR_WAVES", "N_WAVES", "fitted", "noise_alone"]

N_WAVES = 12
N_PAIR_WAVES = 4
"""Functions of each parameter whose products an interaction is made of, at least; of many runs more
are, up to `N_WAVES`: four leave out a tenth of the interaction of Ishigami's function."""
RUNS_PER_PRODUCT = 20
N_CELLS = 60


class Indices:
    """The shares being filled in, and why some stay NaN."""

    def __init__(self, s1: Floats, st: Floats, s2: Floats) -> None:
        self.s1, self.st, self.s2 = s1, st, s2
        self.noise = np.nan
        self.variance = np.nan
        self.notes: list[str] = []

    @classmethod
    def empty(cls, n: int) -> Indices:
        return cls(np.full(n, np.nan), np.full(n, np.nan), np.full((n, n), np.nan))


def noise_alone(t: Table, y: Floats, known: NDArray[np.bool_], result: Indices) -> None:
    values = y[known]
    result.variance = float(values.var())
    repeats = t.points
    result.noise = 0.0 if repeats is None else _noise(values, repeats.of[known]) / result.variance


def fitted(t: Table, y: Floats, known: NDArray[np.bool_], result: Indices) -> None:
    """Fill in S1 and S2 of scattered runs from an additive model, by counting pairs of bins."""
    n = int(known.sum())
    values = y[known]
    mean, variance = float(values.mean()), float(values.var())
    result.variance = variance
    repeats = t.points
    result.noise = _noise(values, repeats.of[known]) / variance if repeats is not None else 0.0
    varied = [i for i, p in enumerate(t.parameters) if p.role != "replicate"]
    binned = [t.parameters[i].coarser(N_CELLS) for i in varied]
    codes = [p.codes[known] for p in binned]
    waves = max(1, min(N_WAVES, n // (20 * max(len(binned), 1))))
    bases = [_basis(p, c, waves) for p, c in zip(binned, codes, strict=True)]
    at = np.cumsum([0, *(b.shape[1] for b in bases)])
    size = int(at[-1])
    if n < 4 * size or size == 0:
        result.notes.append(
            f"S1 and S2 need more scattered runs: {n} have finished, about {4 * size} are needed "
            f"for {len(binned)} parameters"
        )
        return
    normal, right = np.zeros((size, size)), np.zeros(size)
    deviation = values - mean
    joint: dict[tuple[int, int], NDArray[np.int64]] = {}
    for i, (p, c, basis) in enumerate(zip(binned, codes, bases, strict=True)):
        rows = slice(at[i], at[i + 1])
        number = np.bincount(c, minlength=p.n)
        normal[rows, rows] = basis.T @ (number[:, None] * basis)
        right[rows] = basis.T @ np.bincount(c, weights=deviation, minlength=p.n)
        for j in range(i):
            joint[i, j] = c.astype(np.int64) * binned[j].n + codes[j]
            pair = np.bincount(joint[i, j], minlength=p.n * binned[j].n)
            block = basis.T @ pair.reshape(p.n, binned[j].n) @ bases[j]
            columns = slice(at[j], at[j + 1])
            normal[rows, columns], normal[columns, rows] = block, block.T
    found = np.linalg.lstsq(normal, right, rcond=1e-10)[0]
    effects = [basis @ found[at[i] : at[i + 1]] for i, basis in enumerate(bases)]
    residual = deviation.copy()
    for effect, c in zip(effects, codes, strict=True):
        residual -= effect[c]
    noise = float((residual**2).sum() / (n - size - 1))
    for i, (effect, c) in enumerate(zip(effects, codes, strict=True)):
        number = np.bincount(c, minlength=binned[i].n)
        centred = effect - (number @ effect) / n
        explained = (number @ centred**2) / n - noise * bases[i].shape[1] / n
        result.s1[varied[i]] = max(explained / variance, 0.0)
    for (i, j), code in joint.items():
        share = _pair_share(binned[i], binned[j], bases[i], bases[j], code, residual, noise)
        result.s2[varied[i], varied[j]] = result.s2[varied[j], varied[i]] = share / variance
    if len(varied) < len(t.parameters):
        result.notes.append("replicate parameters have no S1 or S2; their share is 'noise'")


def _basis(p: Coded, codes: Codes, waves: int) -> Floats:
    """Orthogonal functions of a parameter's code, shape (n codes, functions)."""
    number = np.bincount(codes, minlength=p.n).astype(np.float64)
    n = number.sum()
    used = int((number > 0).sum())
    if used < 2:
        return np.zeros((p.n, 0))
    rank = (np.cumsum(number) - number / 2) / n
    if p.ordered and used > waves:
        functions = np.sqrt(2) * np.cos(np.pi * np.outer(rank, np.arange(1, waves + 1)))
    else:
        # Few or unordered values: one contrast each, by Gram and Schmidt on indicators.
        functions = np.eye(p.n)[:, number > 0][:, 1:]
    functions = functions - (number @ functions) / n
    q, _ = np.linalg.qr(np.sqrt(number / n)[:, None] * functions)
    with np.errstate(divide="ignore", invalid="ignore"):
        basis: Floats = np.where(number[:, None] > 0, q / np.sqrt(number / n)[:, None], 0.0)
    return basis


def _pair_share(
    p: Coded, o: Coded, a: Floats, b: Floats, code: Codes, residual: Floats, noise: float
) -> float:
    """Variance explained by products of the first functions of two parameters, noise removed."""
    n = len(residual)
    most = max(N_PAIR_WAVES, int((n / RUNS_PER_PRODUCT) ** 0.5))
    a, b = a[:, :most], b[:, :most]
    total = np.bincount(code, weights=residual, minlength=p.n * o.n).reshape(p.n, o.n)
    coefficients = a.T @ total @ b / n
    return max(float((coefficients**2).sum() - noise * coefficients.size / n), 0.0)


def _noise(values: Floats, point: Codes) -> float:
    """Mean variance between the replicates of a point, without bias for few of them."""
    _, inverse = np.unique(point, return_inverse=True)
    number = np.bincount(inverse)
    mean = np.bincount(inverse, weights=values) / number
    square = np.bincount(inverse, weights=(values - mean[inverse]) ** 2)
    repeated = number > 1
    if not repeated.any():
        return float("nan")
    return float(square[repeated].sum() / (number[repeated] - 1).sum())

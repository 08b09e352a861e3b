"""Variance shares of scattered runs from an additive model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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
N_PASSES = 4
"""Times that parameters alone and pairs are fitted to what the others leave over."""
MOST_REFITTED = 50_000
"""Runs beyond which one pass is sure enough."""
SURELY = 4.0
"""Standard errors from which a product counts: of hundreds, chance makes none so large."""


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
    size = sum(b.shape[1] for b in bases)
    if n < 4 * size or size == 0:
        result.notes.append(
            f"S1 and S2 need more scattered runs: {n} have finished, about {4 * size} are needed "
            f"for {len(binned)} parameters"
        )
        return
    alone = _Alone(binned, codes, bases)
    deviation = values - mean
    fit = alone.fit(deviation)
    residual = deviation - fit
    noise = float((residual**2).sum() / (n - size - 1))
    products = {
        (i, j): _Product(binned[i], binned[j], bases[i], bases[j], code, n)
        for (i, j), code in alone.joint.items()
    }
    for _ in range(N_PASSES if n <= MOST_REFITTED else 0):
        # What pairs surely explain would be noise to the parameters alone, and the other way.
        for product in products.values():
            residual -= product.learn(residual, noise)
        rest = residual + fit
        fit = alone.fit(rest)
        residual = rest - fit
        kept = sum(product.n_kept for product in products.values())
        noise = float((residual**2).sum() / max(n - size - 1 - kept, 1))
    explained = alone.explained(noise)
    shared = {pair: product.share(residual, noise) for pair, product in products.items()}
    # The variance that the parts make up: the sample's own is as chancy as the sample.
    surely = sum(product.explained for product in products.values())
    total = float(explained.sum() + surely + noise) if surely else variance
    for i, k in enumerate(varied):
        result.s1[k] = explained[i] / total
    for (i, j), share in shared.items():
        result.s2[varied[i], varied[j]] = result.s2[varied[j], varied[i]] = share / total
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


class _Alone:
    """What each parameter explains alone: least squares by counting pairs of codes."""

    def __init__(
        self, parameters: Sequence[Coded], codes: Sequence[Codes], bases: Sequence[Floats]
    ) -> None:
        self._codes, self._bases = codes, bases
        self._n = len(codes[0])
        at = np.cumsum([0, *(b.shape[1] for b in bases)])
        self._rows = [slice(*ends) for ends in pairwise(at.tolist())]
        self._number = [
            np.bincount(c, minlength=p.n) for p, c in zip(parameters, codes, strict=True)
        ]
        self._normal = np.zeros((at[-1], at[-1]))
        self.joint: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._effects: list[Floats] = []
        for i, (p, basis, rows) in enumerate(zip(parameters, bases, self._rows, strict=True)):
            self._normal[rows, rows] = basis.T @ (self._number[i][:, None] * basis)
            for j in range(i):
                other = parameters[j].n
                self.joint[i, j] = codes[i].astype(np.int64) * other + codes[j]
                pair = np.bincount(self.joint[i, j], minlength=p.n * other)
                block = basis.T @ pair.reshape(p.n, other) @ bases[j]
                columns = self._rows[j]
                self._normal[rows, columns], self._normal[columns, rows] = block, block.T

    def fit(self, deviation: Floats) -> Floats:
        """What all of them together explain of each run."""
        right = [
            basis.T @ np.bincount(c, weights=deviation, minlength=len(basis))
            for basis, c in zip(self._bases, self._codes, strict=True)
        ]
        found = np.linalg.lstsq(self._normal, np.concatenate(right), rcond=1e-10)[0]
        self._effects = [b @ found[rows] for b, rows in zip(self._bases, self._rows, strict=True)]
        whole = np.zeros(self._n)
        for effect, c in zip(self._effects, self._codes, strict=True):
            whole += effect[c]
        return whole

    def explained(self, noise: float) -> Floats:
        """Variance that each explains, what noise would explain removed."""
        found = []
        for effect, number, basis in zip(self._effects, self._number, self._bases, strict=True):
            centred = effect - (number @ effect) / self._n
            found.append((number @ centred**2) / self._n - noise * basis.shape[1] / self._n)
        return np.array(found).clip(0)


class _Product:
    """What products of the first functions of two parameters explain."""

    def __init__(self, p: Coded, o: Coded, a: Floats, b: Floats, code: Codes, n: int) -> None:
        most = max(N_PAIR_WAVES, int((n / RUNS_PER_PRODUCT) ** 0.5))
        self._a, self._b, self._code, self._n = a[:, :most], b[:, :most], code, n
        self._shape = p.n, o.n
        self._found = np.zeros((self._a.shape[1], self._b.shape[1]))

    def _seen(self, residual: Floats) -> Floats:
        size = self._shape[0] * self._shape[1]
        total = np.bincount(self._code, weights=residual, minlength=size).reshape(self._shape)
        seen: Floats = self._a.T @ total @ self._b / self._n
        return seen

    def learn(self, residual: Floats, noise: float) -> Floats:
        """What the products that surely count explain of each run beyond what they did before."""
        found = self._found + self._seen(residual)
        found = np.where(np.abs(found) > SURELY * (noise / self._n) ** 0.5, found, 0.0)
        more: Floats = (self._a @ (found - self._found) @ self._b.T).reshape(-1)[self._code]
        self._found = found
        return more

    @property
    def n_kept(self) -> int:
        """How many products surely count."""
        return int(np.count_nonzero(self._found))

    @property
    def explained(self) -> float:
        """Variance that these explain."""
        return float((self._found**2).sum())

    def share(self, residual: Floats, noise: float) -> float:
        """Variance that all products explain, noise removed."""
        coefficients = self._found + self._seen(residual)
        return max(float((coefficients**2).sum() - noise * coefficients.size / self._n), 0.0)


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

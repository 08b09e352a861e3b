"""Points to choose from where runs are scattered, and how unsure their outcome is."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, Floats
from sweepkit.analysis.lattice import own_parameters
from sweepkit.analysis.outcomes import FAILED, Errors
from sweepkit.analysis.table import Table

__all__ = ["Asked", "Wanted", "as_run", "boundary_of_sample", "candidates", "key_of"]

GP_RUNS = 1_000
N_CANDIDATES = 4_000
N_TREES = 200


@dataclass(frozen=True)
class Wanted:
    """Values by parameter, the reason, and how much it is wanted."""

    at: dict[str, Any]
    reason: str
    score: float


@dataclass(frozen=True, eq=False)
class Asked:
    """What a way of suggesting is handed."""

    t: Table
    outcome: NDArray[np.int8]
    n: int
    explore: float
    rng: np.random.Generator
    errors: Errors

    @property
    def n_explore(self) -> int:
        return min(round(self.explore * self.n), self.n)


def key_of(at: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(at.values())


def boundary_of_sample(asked: Asked) -> tuple[list[Wanted], str]:
    t = asked.t
    own = own_parameters(t)
    known = asked.outcome <= FAILED
    choice = candidates(asked, own, N_CANDIDATES)
    margin = _margin_of(t, known) if all(p.kind == "number" for p in own) else None
    if margin is not None and int(known.sum()) <= GP_RUNS:
        unsure = _straddle(asked, own, known, margin, choice)
        if unsure is not None:
            points = spaced(asked, own, choice, unsure, "the sign of the margin is unsure")
            return points, "Gaussian process of the margin, straddle"
    chance = _forest(asked, own, known, choice)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nan_to_num(chance * np.log2(chance))
        entropy -= np.nan_to_num((1 - chance) * np.log2(1 - chance))
    points = spaced(asked, own, choice, entropy, "the outcome is unsure", chance)
    return points, f"Extra-Trees of {int(known.sum())} runs, entropy of the outcome"


def candidates(asked: Asked, own: tuple[Coded, ...], n: int) -> dict[str, NDArray[Any]]:
    """Points to choose from: each parameter spread as it was run, drawn apart from the others."""
    drawn: dict[str, NDArray[Any]] = {}
    for p in own:
        array = asked.t.ds.coords[p.name].values
        if p.kind == "number" and array.dtype.kind == "f":
            some = np.sort(np.unique(asked.t.raw(p.name)))
            drawn[p.name] = np.asarray(np.quantile(some, asked.rng.random(n)))
        else:
            drawn[p.name] = asked.rng.choice(array.reshape(-1), n)
    return drawn


def features(own: tuple[Coded, ...], columns: dict[str, NDArray[Any]], t: Table) -> Floats:
    """Parameters as numbers for a model: ordered ones in shares of their range, others one-hot."""
    features = []
    for p in own:
        values_ = np.asarray(columns[p.name])
        if p.kind == "number":
            low, high = float(p.lower[0]), float(p.upper[-1])
            features.append((values_.astype(np.float64) - low) / ((high - low) or 1.0))
        elif p.kind == "time":
            numbers = values_.astype(p.values.dtype).astype(np.int64).astype(np.float64)
            ends = p.values.astype(np.int64)
            features.append((numbers - ends[0]) / (float(ends[-1] - ends[0]) or 1.0))
        else:
            features += [(values_ == value).astype(np.float64) for value in p.values.tolist()]
    return np.stack(features, axis=1)


def as_run(t: Table, own: tuple[Coded, ...]) -> dict[str, NDArray[Any]]:
    """The parameters' own values, one per run."""
    shape = dict(zip(t.dims, t.shape, strict=True))
    return {
        p.name: t.ds.coords[p.name].expand_dims(
            {d: shape[d] for d in t.dims if d not in t.ds.coords[p.name].dims}
        ).transpose(*t.dims).values.reshape(-1)
        for p in own
    }  # fmt: skip


def _margin_of(t: Table, known: NDArray[np.bool_]) -> Floats | None:
    """The smallest margin per run, each in its own standard deviations; None without one."""
    if not t.requirements:
        return None
    from sweepkit.verdicts import margin

    margins = margin(t.ds, t.requirements).transpose(*t.dims, "requirement").values
    margins = margins.reshape(t.n, -1).astype(np.float64)
    if not np.isfinite(margins[known]).all():
        return None
    scale = margins[known].std(axis=0)
    if not (scale > 0).any():
        return None
    smallest: Floats = (margins / np.where(scale > 0, scale, 1.0)).min(axis=1)
    return smallest


def _sklearn(module: str) -> Any:
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as error:
        raise ImportError(
            "suggesting from scattered runs needs scikit-learn, which the extra 'analysis' "
            f"brings: pip install 'sweepkit[analysis]' ({error})"
        ) from error


def _straddle(
    asked: Asked,
    own: tuple[Coded, ...],
    known: NDArray[np.bool_],
    margin: Floats,
    candidates: dict[str, NDArray[Any]],
) -> Floats | None:
    """1.96 standard deviations less the distance of the margin from 0; None if a GP fits badly."""
    import warnings

    gaussian, kernels = _sklearn("gaussian_process"), _sklearn("gaussian_process.kernels")
    x = features(own, {k: v[known] for k, v in as_run(asked.t, own).items()}, asked.t)
    y = margin[known].clip(*np.quantile(margin[known], [0.02, 0.98]))
    kernel = kernels.ConstantKernel(1.0) * kernels.RBF(np.full(x.shape[1], 0.3))
    kernel += kernels.WhiteKernel(1e-2)
    model = gaussian.GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    fold = asked.rng.random(len(x)) < 0.25
    with warnings.catch_warnings():
        # A length scale at its end says that a parameter does not matter, which is no fault.
        warnings.simplefilter("ignore")
        if fold.any() and not fold.all() and len(x) >= 20:
            guess = model.fit(x[~fold], y[~fold]).predict(x[fold])
            error = float(np.mean((guess - y[fold]) ** 2))
            if not error < 0.5 * float(np.var(y)):
                return None
        mean, deviation = model.fit(x, y).predict(
            features(own, candidates, asked.t), return_std=True
        )
    unsure: Floats = 1.96 * deviation - np.abs(mean)
    return unsure


def _forest(
    asked: Asked,
    own: tuple[Coded, ...],
    known: NDArray[np.bool_],
    candidates: dict[str, NDArray[Any]],
) -> Floats:
    """Chance of failure at each candidate."""
    ensemble = _sklearn("ensemble")
    runs = np.flatnonzero(known)
    if len(runs) > 50_000:
        runs = asked.rng.choice(runs, 50_000, replace=False)
    x = features(own, {k: v[runs] for k, v in as_run(asked.t, own).items()}, asked.t)
    fails = asked.outcome[runs] == FAILED
    model = ensemble.ExtraTreesClassifier(N_TREES, min_samples_leaf=2, random_state=0)
    model.fit(x, fails)
    chances = model.predict_proba(features(own, candidates, asked.t))
    classes = [bool(c) for c in model.classes_]
    if True not in classes:
        return np.zeros(len(chances))
    chance: Floats = chances[:, classes.index(True)]
    return chance


def spaced(
    asked: Asked,
    own: tuple[Coded, ...],
    candidates: dict[str, NDArray[Any]],
    score: Floats,
    why: str,
    chance: Floats | None = None,
) -> list[Wanted]:
    """The best candidates, apart from each other and from runs, and some far from everything."""
    from scipy.spatial import cKDTree

    x = features(own, candidates, asked.t)
    runs = features(own, as_run(asked.t, own), asked.t)
    far: Floats = np.asarray(cKDTree(runs).query(x)[0])
    n_best = asked.n - asked.n_explore
    points: list[Wanted] = []
    free = np.ones(len(x), dtype=bool)
    value = score - score.min() + 1e-9
    nearest: Floats = np.array(far, dtype=np.float64)
    for k in range(min(asked.n, len(x))):
        # What lies close to a point already chosen tells little more.
        worth = value * np.minimum(nearest, np.median(far)) if k < n_best else nearest
        best = int(np.argmax(np.where(free, worth, -np.inf)))
        free[best] = False
        nearest = np.minimum(nearest, np.linalg.norm(x - x[best], axis=1))
        at = {p.name: candidates[p.name][best] for p in own}
        reason = "unexplored: far from every run"
        if k < n_best:
            reason = why
            if chance is not None:
                reason = f"{why}: {100 * chance[best]:.0f} % chance of failing"
        points.append(Wanted(at, reason, float(worth[best])))
    return points

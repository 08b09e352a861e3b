"""What changed between two sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import sweepkit.html as html
from sweepkit.places import KeyPath, where
from sweepkit.reading import declaration_of, open, run_dims_of, runs
from sweepkit.stages import numbers
from sweepkit.verdicts import requirements_of

__all__ = ["Comparison", "compare", "frame"]

Given = xr.Dataset | str | os.PathLike[str] | KeyPath
STAGED = {"stage", "volume"}
"""What refined runs have beside their parameters."""

KEPT = {"status", "failed", "duration", "attempts", "code", "log_size", "error", "log"}
OUTCOMES = ("pass", "fail", "unknown", "error", "skipped", "pending", "not there")

OUTCOME = " outcome"
"""Column of a table of runs; no output is called so, as names begin with no space."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from one sweep to another.

    Attributes
    ----------
    declared : DataFrame
        What was declared otherwise: ``what``, ``before``, ``after``; parameters' values, outputs,
        requirements, code, packages, entropy.
    outcomes : DataFrame
        Runs at the same parameter values by outcome: rows before, columns after; "not there"
        where only one sweep has the point, "unknown" where a run is done and no requirement could
        say whether it fails.
    flipped : DataFrame
        One row a run whose outcome changed: its parameters, then ``before`` and ``after``
        (``outcome before`` and ``outcome after`` where a parameter has such a name).
    outputs : DataFrame
        One row an output that both have, traces left out: ``output``, ``runs`` (with a value in
        both), ``changed``, ``largest`` (absolute change, in the output's units; NaN where no
        number).
    """

    declared: pd.DataFrame
    outcomes: pd.DataFrame
    flipped: pd.DataFrame
    outputs: pd.DataFrame
    names: tuple[str, str] = field(default=("before", "after"))

    @property
    def now_failing(self) -> pd.DataFrame:
        """The runs that passed before and fail now."""
        return self.flipped[self._turned("pass", "fail")].reset_index(drop=True)

    def _turned(self, before: str, after: str) -> pd.Series[bool]:
        return (self.flipped.iloc[:, -2] == before) & (self.flipped.iloc[:, -1] == after)

    def __repr__(self) -> str:
        return f"<sweepkit.Comparison {self.names[0]!r} -> {self.names[1]!r}: {self._words()}>"

    def _words(self) -> str:
        fixed = self._turned("fail", "pass").sum()
        return (
            f"{len(self.now_failing):,} runs from pass to fail, {fixed:,} from fail to pass, "
            f"{len(self.declared)} declarations differ"
        )

    def _repr_html_(self) -> str:
        outcomes = self.outcomes.rename_axis(index=None, columns=None).reset_index(names="before")
        changed = int((self.outputs["changed"] > 0).sum()) if len(self.outputs) else 0
        return html.box(
            "sweepkit.Comparison",
            html.section(
                "Outcomes", frame(outcomes), about="rows before, columns after", unfolded=True
            ),
            html.section(
                "Runs whose outcome changed",
                frame(self.flipped, 20) if len(self.flipped) else html.note("none"),
                about=f"({len(self.flipped):,})",
                unfolded=0 < len(self.flipped) <= 20,
            ),
            html.section(
                "Declared otherwise",
                frame(self.declared) if len(self.declared) else html.note("nothing"),
                about=f"({len(self.declared)})",
                unfolded=0 < len(self.declared) <= 20,
            ),
            html.section("Outputs", frame(self.outputs), about=f"({changed} changed)"),
            about=f"{self.names[0]} to {self.names[1]}",
            aside=self._words(),
            text=repr(self),
        )


def compare(before: Given, after: Given, *, requirements: Any = None) -> Comparison:
    """What changed between two sweeps: parameters, code, outputs, and where pass became fail.

    Runs are matched by the values of the parameters that both sweeps have.

    Parameters
    ----------
    before, after : path or Dataset
        Stores, of which all stages are compared, or what :func:`sweepkit.open` gave.
    requirements : optional
        Judge both by these; by default each by its own.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If the sweeps share no parameter, one is text here and numbers there, or their runs are
        not told apart by those they share.
    """
    pair = [_opened(one) for one in (before, after)]
    said = [declaration_of(one) for one in (before, after)]
    tables = [_table(ds, requirements) for ds in pair]
    shared = [n for n in _parameters(pair[0]) if n in _parameters(pair[1])]
    if not shared:
        own = [", ".join(map(repr, _parameters(ds))) or "none at all" for ds in pair]
        raise ValueError(f"the sweeps share no parameter: {own[0]} and {own[1]}")
    for name in shared:
        kinds = [_kind(ds[name].dtype) for ds in pair]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"parameter {name!r} is {kinds[0]} in the first sweep and {kinds[1]} in the "
                "second, so no run of one is a run of the other"
            )
    for which, rows in zip(("first", "second"), tables, strict=True):
        twice = int(rows.duplicated(shared).sum())
        if twice:
            raise ValueError(
                f"{twice:,} runs of the {which} sweep have the same {', '.join(shared)} as "
                "another; select one value of what only one sweep varies, as in ds.sel(...)"
            )
    both = tables[0].merge(tables[1], on=shared, how="outer", suffixes=(" before", " after"))
    for when in ("before", "after"):
        both[f"{OUTCOME} {when}"] = both[f"{OUTCOME} {when}"].astype(object).fillna("not there")
    old, new = both[f"{OUTCOME} before"], both[f"{OUTCOME} after"]
    outcomes = pd.crosstab(old.rename("outcome before"), new.rename("outcome after"))
    there = [o for o in OUTCOMES if o in {*outcomes.index, *outcomes.columns}]
    outcomes = outcomes.reindex(index=there, columns=there, fill_value=0)
    known = (old != "not there") & (new != "not there")
    turned = both[known & (old != new)]
    flipped = turned[[*shared, old.name, new.name]]
    taken = {"before", "after"} & set(shared)
    ends = ("outcome before", "outcome after") if taken else ("before", "after")
    flipped.columns = pd.Index([*shared, *ends])
    return Comparison(
        _declared(pair, said),
        outcomes,
        flipped.reset_index(drop=True),
        _outputs(both[known], tables, shared),
        (_name(before, said[0]), _name(after, said[1])),
    )


def _name(given: Given, said: Mapping[str, Any]) -> str:
    if isinstance(given, xr.Dataset):
        return PurePosixPath(given.encoding.get("source", said.get("name", "a Dataset"))).name
    return PurePosixPath(str(given)).name


def _opened(given: Given) -> xr.Dataset:
    if isinstance(given, xr.Dataset):
        return given
    here = where(given)
    return open(here, stages=bool(numbers(here)))


def _kind(dtype: np.dtype[Any]) -> str:
    kinds = {"b": "true or false", "M": "times", "m": "durations"}
    kinds |= dict.fromkeys("iufc", "numbers") | dict.fromkeys("OUT", "text")
    return kinds.get(dtype.kind, str(dtype))


def _parameters(ds: xr.Dataset) -> list[str]:
    dims = set(run_dims_of(ds))
    of_runs = {str(n) for n, c in ds.coords.items() if c.dims and set(map(str, c.dims)) <= dims}
    return [str(n) for n in ds.coords if n in of_runs and n not in STAGED]


def _table(ds: xr.Dataset, requirements: Any) -> pd.DataFrame:
    """Runs with their outcome in a word; text left out."""
    rows = runs(ds, requirements).drop(columns=["log", "error", "log_size"], errors="ignore")
    status = rows["status"].astype(str) if "status" in rows else pd.Series("done", rows.index)
    outcome = np.where(status.isin(["pending", "skipped"]), status, "error").astype(object)
    done = (status == "done").to_numpy()
    failed = rows["failed"].to_numpy() if "failed" in rows else np.zeros(len(rows))
    judged = np.where(failed == 1, "fail", np.where(failed == 0, "pass", "unknown"))
    outcome[done] = judged[done]
    return rows.assign(**{OUTCOME: outcome})


def _declared(pair: Sequence[xr.Dataset], said: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    rows: list[tuple[str, ...]] = []
    names = list(dict.fromkeys([*_parameters(pair[0]), *_parameters(pair[1])]))
    for name in names:
        values = [
            {_value(one) for one in np.unique(ds[name].values)} if name in ds.coords else None
            for ds in pair
        ]
        if values[0] == values[1]:
            continue
        texts = [_values(mine, other) for mine, other in (values, values[::-1])]
        rows.append((f"parameter {name}", *texts))
    for name in sorted({*map(str, pair[0].data_vars), *map(str, pair[1].data_vars)} - KEPT):
        texts = [
            str(ds[name].attrs.get("units", "there")) if name in ds else "not there" for ds in pair
        ]
        if texts[0] != texts[1]:
            rows.append((f"output {name}", *texts))
    judged = [_requirements(ds) for ds in pair]
    if judged[0] != judged[1]:
        rows.append(("requirements", *(", ".join(one) or "none" for one in judged)))
    rows += _code(said)
    for key in ("name", "entropy", "streams", "threads", "version", "masks"):
        texts = [str(one.get(key)) for one in said]
        if texts[0] != texts[1]:
            rows.append((key, *texts))
    packages = [dict(one.get("environment", {})) for one in said]
    for key in sorted({*packages[0], *packages[1]}):
        texts = [str(one.get(key, "not there")) for one in packages]
        if texts[0] != texts[1]:
            rows.append((f"package {key}" if key != "platform" else key, *texts))
    return pd.DataFrame(rows, columns=["what", "before", "after"])


def _value(value: Any) -> str:
    """A value as text: equal numbers alike, whatever their types."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _values(mine: set[str] | None, other: set[str] | None) -> str:
    """How many values, and which the other sweep has not."""
    if mine is None:
        return "not there"
    own = sorted(mine - (other or set()))
    alone = f", alone {html.sentence(own, 4)}" if own and other is not None else ""
    return f"{len(mine)} values{alone}"


def _requirements(ds: xr.Dataset) -> list[str]:
    try:
        return [one.text for one in requirements_of(ds)]
    except ValueError:
        return []


def _code(said: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Parts of the code that differ, of the newest version of each."""
    newest = [dict(one["codes"][-1]["identity"]) for one in said if one.get("codes")]
    if len(newest) < 2 or newest[0]["digest"] == newest[1]["digest"]:
        return []
    parts = [dict(one.get("parts", {})) for one in newest]
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*parts[0], *parts[1]]):
        texts = [one.get(name, "not used")[:12] for one in parts]
        if texts[0] != texts[1]:
            rows.append((f"code {name}", *texts))
    return rows or [("code", newest[0]["digest"][:12], newest[1]["digest"][:12])]


def _outputs(
    both: pd.DataFrame, tables: Sequence[pd.DataFrame], shared: Sequence[str]
) -> pd.DataFrame:
    """How far each output moved, over the runs that have a value in both sweeps."""
    rows = []
    for name in tables[0].columns:
        if name in KEPT or name in shared or name == OUTCOME or name not in tables[1]:
            continue
        old, new = both[f"{name} before"], both[f"{name} after"]
        there = old.notna() & new.notna()
        old, new = old[there], new[there]
        largest = np.nan
        if old.dtype.kind in "biufc" and new.dtype.kind in "biufc":
            wide = complex if "c" in (old.dtype.kind, new.dtype.kind) else float
            moved = np.abs(new.to_numpy(wide) - old.to_numpy(wide))
            largest = float(moved.max()) if len(moved) else np.nan
        changed = int((old.astype(object) != new.astype(object)).sum())
        rows.append((name, len(old), changed, largest))
    return pd.DataFrame(rows, columns=["output", "runs", "changed", "largest"])


def frame(table: pd.DataFrame, limit: int = 100) -> html.Markup:
    """A table as HTML, numbers to the right."""
    right = {k for k, name in enumerate(table.columns) if table[name].dtype.kind in "iuf"}
    rows = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return html.table([str(name) for name in table.columns], rows, numbers=right, limit=limit)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{int(value):,}" if abs(int(value)) >= 10_000 else str(value)
    return str(value)

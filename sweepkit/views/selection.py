"""Filters of an explorer: as a mask over the runs, and as xarray code that gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis import UnanswerableError, islands, kinds
from sweepkit.analysis.coding import Coded, split_component
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED, PENDING
from sweepkit.analysis.table import Table
from sweepkit.views.source import Source, judged

__all__ = ["OUTCOMES", "check_axes", "checked", "code_of", "kind_labels", "mask_of", "remapped"]

OUTCOMES = {"pass": PASSED, "fail": FAILED, "pending": PENDING, "error": ERRORED}

Bools = NDArray[np.bool_]


def checked(of: Source, filters: Sequence[Mapping[str, Any]]) -> None:
    """Refuse filters that name what is not there.

    Raises
    ------
    ValueError
        Naming the test and what it may be.
    """
    names = {p.name for p in of.parameters}
    values = {*of.outputs, *(one.what for one in of.levers)}
    for each in filters:
        for test in each.get("tests", ()):
            if "of" in test and test["of"] not in names:
                raise ValueError(
                    f"the filter {each.get('text')!r} names {test['of']!r}, which "
                    f"is no parameter; there are {', '.join(sorted(names))}"
                )
            if "output" in test and test["output"] not in values:
                raise ValueError(
                    f"the filter {each.get('text')!r} names {test['output']!r}, "
                    f"which is no output; there are {', '.join(sorted(values))}"
                )
            if not {"of", "output", "outcome", "kind", "island"} & set(test):
                raise ValueError(
                    f"the filter {each.get('text')!r} has a test without 'of', "
                    "'output', 'outcome', 'kind' or 'island'"
                )


def check_axes(of: Source, axes: Mapping[str, str]) -> None:
    """Refuse axes of a map that name what is not there, or the same twice.

    Raises
    ------
    ValueError
        Naming the axis and what it may be.
    """
    names = [p.name for p in of.parameters]
    for word, name in axes.items():
        if name not in names and (name or word == "x"):
            raise ValueError(
                f"{word}={name!r} is no parameter; there are {', '.join(map(repr, names))}"
            )
    used = [name for name in axes.values() if name]
    for name in used:
        if used.count(name) > 1:
            words = " and ".join(word for word, one in axes.items() if one == name)
            raise ValueError(f"{words} are both {name!r}; a parameter has one axis of a map")


def mask_of(
    of: Source, t: Table, filters: Sequence[Mapping[str, Any]], *, but: str = ""
) -> Bools | None:
    """Which runs satisfy all filters but those of one source; None where there are none."""
    mask: Bools | None = None
    for each in filters:
        if but and each.get("src") == but:
            continue
        for test in each["tests"]:
            one = _test_mask(of, t, test)
            mask = one if mask is None else mask & one
    return mask


def _test_mask(of: Source, t: Table, test: Mapping[str, Any]) -> Bools:
    if "of" in test and "codes" in test:
        p = of[test["of"]]
        wanted = np.zeros(p.n, dtype=bool)
        wanted[[c for c in test["codes"] if 0 <= c < p.n]] = True
        return np.asarray(wanted[p.codes])
    if "of" in test:
        raw = of.table.raw(test["of"])
        return np.asarray((raw >= test["low"]) & (raw <= test["high"]))
    if "output" in test:
        values = of.output(test["output"])
        return np.asarray((values >= test["low"]) & (values <= test["high"]))
    if "outcome" in test:
        return np.asarray(t.outcome == OUTCOMES[test["outcome"]])
    if "kind" in test:
        label = kind_labels(t).get(tuple(test["kind"]))
        return np.zeros(t.n, bool) if label is None else kinds_of(t) == label
    return np.asarray(islands_of(t) == int(test["island"]))


def kinds_of(t: Table) -> NDArray[np.int64]:
    """The kind of each run, 0 for none."""
    found = _kinds(t)
    if found is None:
        return np.zeros(t.n, np.int64)
    labels: NDArray[np.int64] = np.asarray(found["label"].values).reshape(-1)
    return labels


def kind_labels(t: Table) -> dict[tuple[str, str, str], int]:
    """Label of each kind by what it is: family, template and frame."""
    found = _kinds(t)
    if found is None:
        return {}
    columns = [found[name].values.tolist() for name in ("family", "template", "frame")]
    return {key: k + 1 for k, key in enumerate(zip(*columns, strict=True))}


def islands_of(t: Table) -> NDArray[np.int64]:
    """The island of each run, 0 for none."""
    found = _islands(t)
    if found is None:
        return np.zeros(t.n, np.int64)
    labels: NDArray[np.int64] = np.asarray(found["label"].values).reshape(-1)
    return labels


def _islands(t: Table) -> Any:
    if "_islands" not in t.__dict__:
        try:
            t.__dict__["_islands"] = islands(t)
        except UnanswerableError:
            t.__dict__["_islands"] = None
    return t.__dict__["_islands"]


def _kinds(t: Table) -> Any:
    if "_kinds" not in t.__dict__:  # kept with the table, as its own cached properties are
        try:
            t.__dict__["_kinds"] = kinds(t)
        except UnanswerableError:
            t.__dict__["_kinds"] = None
    return t.__dict__["_kinds"]


def remapped(old: Source, new: Source, filters: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The filters of a source that has grown: the same values under their new codes.

    A filter none of whose values is left is dropped.
    """
    if all(
        a.name == b.name and a.n == b.n and np.array_equal(a.values, b.values)
        for a, b in zip(old.parameters, new.parameters, strict=False)
    ):
        return list(filters)
    there = {p.name: p for p in new.parameters}
    moved = []
    for each in filters:
        tests = []
        for test in each["tests"]:
            if "codes" not in test:
                tests.append(test)
            elif test["of"] in there:
                codes = _codes_in(old[test["of"]], there[test["of"]], test["codes"])
                tests.append({**test, "codes": codes})
        if all(test.get("codes", [0]) for test in tests) and tests:
            moved.append({**each, "tests": tests})
    return moved


def _codes_in(old: Coded, new: Coded, codes: Sequence[int]) -> list[int]:
    values = old.values[[c for c in codes if c < old.n]]
    if new.binned:
        at = np.searchsorted(new.upper, values).clip(0, new.n - 1)
        return sorted(set(at.tolist()))
    return np.flatnonzero(np.isin(new.values, values)).tolist()


# --- as code -------------------------------------------------------------------------------------


def code_of(of: Source, stops: Sequence[int], filters: Sequence[Mapping[str, Any]]) -> str:
    """An expression over ``ds``, ``sk`` and ``np`` for the mask; all runs where nothing filters."""
    parts = [
        part for each in filters for test in each["tests"] for part in _test_code(of, stops, test)
    ]
    if parts:
        return " & ".join(f"({part})" for part in parts)
    name = "status" if "status" in of.ds else str(next(iter(of.ds.data_vars)))
    return f"xr.ones_like(ds[{name!r}], dtype=bool)"


def _test_code(of: Source, stops: Sequence[int], test: Mapping[str, Any]) -> list[str]:
    if "of" in test and "codes" in test:
        return _codes_code(of, of[test["of"]], sorted(set(test["codes"])))
    if "of" in test:
        where = _coordinate(of, of[test["of"]])
        low, high = (_literal(test[end], of, test["of"]) for end in ("low", "high"))
        return [f"{where} >= {low}", f"{where} <= {high}"]
    if "output" in test:
        return _output_code(of, test)
    if "outcome" in test:
        return [_outcome_code(of, stops, test["outcome"])]
    analysis = "kinds" if "kind" in test else "islands"
    t = judged(of, stops)
    found = _kinds(t) if analysis == "kinds" else _islands(t)
    number = test.get("island", None)
    if number is None:
        number = kind_labels(t).get(tuple(test["kind"]), -1)
    own = {} if found is None else dict(zip(found["label"].dims, t.dims, strict=True))
    own = {a: b for a, b in own.items() if a != b}  # of a parameter called as a part of the result
    back = f".rename({own!r})" if own else ""
    return [f"sk.{analysis}(ds{_given(of, stops)})['label']{back} == {number}"]


def _given(of: Source, stops: Sequence[int]) -> str:
    """How the limits in force are handed to an analysis."""
    if not of.levers or of.levers[0].requirement is None:
        return ""
    moved = [one.moved(stop) for one, stop in zip(of.levers, stops, strict=True)]
    if all(one is not None and not one.needs_code for one in moved):
        return f", requirements={[one.text for one in moved if one is not None]!r}"
    fails = " | ".join(
        f"({one.code(stop)} == 1)" for one, stop in zip(of.levers, stops, strict=True)
    )
    return f", failed={fails}"


def _outcome_code(of: Source, stops: Sequence[int], outcome: str) -> str:
    has_status = "status" in of.ds
    if outcome == "error":
        return "ds['status'].isin([2, 3, 4, 5])"
    if outcome == "pending":
        return "(ds['status'] == 0)"
    done = "(ds['status'] == 1)" if has_status else ""
    if not of.levers:
        name = str(next(iter(of.ds.data_vars)))
        every = done or f"xr.ones_like(ds[{name!r}], dtype=bool)"
        return every if outcome == "pass" else f"~{every}"
    wanted = 0 if outcome == "pass" else 1
    joint = " & " if outcome == "pass" else " | "
    parts = [f"({one.code(stop)} == {wanted})" for one, stop in zip(of.levers, stops, strict=True)]
    text = parts[0] if len(parts) == 1 else f"({joint.join(parts)})"
    return text if not done else f"{text} & {done}"


def _output_code(of: Source, test: Mapping[str, Any]) -> list[str]:
    name, low, high = test["output"], float(test["low"]), float(test["high"])
    if name in of.outputs:
        return [f"ds[{name!r}] >= {low!r}", f"ds[{name!r}] <= {high!r}"]
    for one in of.levers:
        if one.what == name and one.requirement is not None:
            if one.of_margin:
                away = f"sk.margin(ds, [{one.requirement.text!r}])"
            else:
                zero = one.requirement.with_limit(0.0)
                sign = "" if one.rising else "-"
                text = one.requirement.text if zero is None else zero.text
                away = f"{sign}sk.margin(ds, [{text!r}])"
            value = f"({away}.isel(requirement=0, drop=True))"
            return [f"{value} >= {low!r}", f"{value} <= {high!r}"]
    raise ValueError(f"no output {name!r}")


def _codes_code(of: Source, p: Coded, codes: list[int]) -> list[str]:
    where = _coordinate(of, p)
    codes = [c for c in codes if c < p.n]
    if p.binned:
        spans = []
        for c in codes:
            last = "<=" if c == p.n - 1 else "<"
            low, high = _shown(p.lower[c]), _shown(p.upper[c])
            spans.append(f"({where} >= {low}) & ({where} {last} {high})")
        return [" | ".join(f"({one})" for one in spans) or f"{where} != {where}"]
    run = codes == list(range(codes[0], codes[-1] + 1)) if codes else False
    if run and len(codes) > 2 and p.ordered:
        ends = _shown(p.values[codes[0]]), _shown(p.values[codes[-1]])
        return [f"{where} >= {ends[0]}", f"{where} <= {ends[1]}"]
    return [f"{where}.isin([{', '.join(_shown(p.values[c]) for c in codes)}])"]


def _coordinate(of: Source, p: Coded) -> str:
    name, component = split_component(p.name, of.ds)
    if name == p.name:
        return f"ds[{name!r}]"
    own = [str(d) for d in of.ds[name].dims if d not in of.table.dims]
    sizes = [of.ds.sizes[d] for d in own]
    at = dict(zip(own, map(int, np.unravel_index(component, sizes)), strict=True))
    return f"ds[{name!r}].isel({at!r}, drop=True)"


def _literal(value: float, of: Source, name: str) -> str:
    p = of[name]
    if p.kind != "time":
        return repr(float(value))
    unit = "timedelta64" if p.values.dtype.kind == "m" else "datetime64"
    return f"np.{unit}({round(value * 1e9)}, 'ns')"


def _shown(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return f"np.datetime64({str(value)!r})"
    if isinstance(value, np.timedelta64):
        return f"np.timedelta64({int(value.astype('timedelta64[ns]').astype(np.int64))}, 'ns')"
    if isinstance(value, np.generic):
        return repr(value.item())
    return repr(value)

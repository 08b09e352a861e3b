"""The first questions one has of a sweep, each answered in a sentence with its certainty.

An answer is a mapping of plain values: ``question``, ``sentence``, ``basis`` (what it rests on),
``note``, ``why`` (the reason where the runs cannot answer; empty where they do) and ``rows``, the
figures behind it. Where an analysis refuses, its reason is the sentence. ``found`` is the
analysis' own result where views draw from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from sweepkit.analysis import (
    UnanswerableError,
    convergence,
    held_up,
    importance,
    islands,
    kinds,
    pairs,
    rate,
    regions,
    robustness,
)
from sweepkit.analysis.cells import cells
from sweepkit.analysis.outcomes import ERRORED, FAILED, PENDING
from sweepkit.views.source import Source
from sweepkit.views.wording import (
    counted,
    interval,
    label,
    listed,
    percent,
    shortened,
    stretches,
    value,
)

__all__ = ["ANSWERS", "Answer", "answer"]

Answer: TypeAlias = dict[str, Any]

MAX_ROWS = 200
MAX_DESIGNS = 20_000
MAX_CONNECTED = 200_000
"""Scattered runs whose neighbours are looked for: of more it would take minutes."""
MAX_TEXT = 6_000
"""Letters of a traceback, at most."""

OWN_DIMS = {"kinds": {"kind"}, "islands": {"island", "parameter"}, "designs": {"quantile"}}
"""Dims of what analyses return over the runs' own, which may not be called the same."""

NO_REQUIREMENT = (
    "nothing says which runs fail, as there is no requirement; give some, as in "
    "sk.report(ds, requirements=['steps >= 500'])"
)


def answer(of: Source, key: str) -> Answer:
    """One answer; where the runs cannot give it, why."""
    question, asks_failing, told = ANSWERS[key]
    empty: Answer = {"question": question, "basis": "", "note": "", "why": "", "rows": []}
    if asks_failing and not of.levers:
        return {**empty, "sentence": _capital(NO_REQUIREMENT), "why": NO_REQUIREMENT}
    for name in sorted(OWN_DIMS.get(key, set()) & set(of.table.dims)):
        why = f"a dim is called {name!r}, as in the answer's own table; see ds.rename({name}=...)"
        return {**empty, "sentence": _capital(why), "why": why}
    try:
        return {**empty, **told(of)}
    except UnanswerableError as refused:
        return {**empty, "sentence": _capital(str(refused)), "why": str(refused)}


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _records(frame: pd.DataFrame, most: int = MAX_ROWS) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.head(most).to_dict("records")]


# --- answers -------------------------------------------------------------------------------------


def _rate(of: Source) -> Answer:
    found = rate(of.table)
    row = _records(found)[0]
    n, failed, errors = (int(row[name]) for name in ("n_run", "n_failed", "n_error"))
    pending = int(row["n_unknown"]) - errors
    if not n:
        ended = f"{counted(errors)} errored, none gave outputs" if errors else "no run is done"
        raise UnanswerableError(f"{ended}, so no failure rate is known yet")
    text = f"{failed:,} of {n:,} finished runs fail: {_share(row, failed / n)} {interval(row)}."
    unknown = [
        f"{errors:,} errored" if errors else "",
        f"{pending:,} are pending" if pending else "",
    ]
    if any(unknown):
        text += f" {' and '.join(filter(None, unknown))}; these are unknown, and in no rate."
    needed = float(row["n_needed"])
    if needed > 0 and not pending and row["basis"] != "refined":
        text += f" About {needed:,.0f} more runs would tell it to ±2.5 % points."
    return {"sentence": text, "rows": [row], **_said(found)}


def _share(row: Any, of_finished: float) -> str:
    """The rate that an interval is of, beside the share of finished runs where that is another."""
    if row["basis"] != "in progress" or abs(row["rate"] - of_finished) < 1e-9:
        return percent(row["rate"])
    return f"{percent(of_finished)}, and of all runs about {percent(row['rate'])}"


def _said(found: Any) -> dict[str, str]:
    return {
        "basis": str(found.attrs.get("basis", "")),
        "note": str(found.attrs.get("note", "")),
    }


def _held(of: Source) -> Answer:
    frame = held_up(of.table)
    rows = _records(frame, 2_000)
    ran = frame[frame["n_run"] > 0]
    if not len(ran):
        raise UnanswerableError("no run has finished yet, so nothing has held up or failed")
    several = [name for name in ran["parameter"].unique() if of[str(name)].n > 1]
    parts = []
    for name in several:
        mine = ran[ran["parameter"] == name]
        held = mine[mine["held"]]
        if len(held):
            words = stretches(mine, of[str(name)].ordered)
            all_ = " (all of its values)" if len(held) == len(mine) else ""
            parts.append(f"{value(of, str(name), listed(words))}{all_}")
    failing = ran[(ran["n_failed"] > 0) & ran["parameter"].isin(several)]
    if not len(failing):
        if not ran["n_failed"].any():
            text = "No finished run fails, at any value of any parameter."
        else:
            text = "No parameter has several values, so none can hold up better than another."
        return {"sentence": text, "rows": rows, **_said(frame)}
    if parts:
        text = f"No run failed at {'; '.join(parts)}."
    else:
        text = "Every value of every parameter has runs that fail."
    worst = _records(failing.sort_values(["low", "rate"], ascending=False), 1)[0]
    there = value(of, str(worst["parameter"]), label(worst["value"]))
    text += f" The worst is {there}: {percent(worst['rate'])} fail {interval(worst)}."
    return {"sentence": text, "rows": rows, **_said(frame)}


MEASURES = {"ST": "of the variance of failing involves it", "S1": "comes from it alone"}


def _importance(of: Source) -> Answer:
    found = importance(of.table)
    names = [str(name) for name in found["parameter"].values]
    by = str(found.attrs.get("ranked_by", "KS"))
    columns = [name for name in ("S1", "ST", "KS", "lift", "rank") if name in found]
    rows: list[dict[str, Any]] = [
        {"parameter": name, **{c: float(found[c].values[k]) for c in columns}}
        for k, name in enumerate(names)
    ]
    rows.sort(key=lambda row: row["rank"])
    shares = {row["parameter"]: row.get(by, math.nan) for row in rows if of[row["parameter"]].n > 1}
    top = [name for name, share in shares.items() if share == share][:3]
    if not top:
        raise UnanswerableError("no parameter has several values, so none matters more")
    if by in ("S1", "ST"):
        text = f"{top[0]} matters most: {percent(shares[top[0]], 0)} {MEASURES[by]} ({by})"
        rest = [f"{name} ({percent(shares[name], 0)})" for name in top[1:]]
    else:
        text = (
            f"{top[0]} matters most: its values are distributed apart by {shares[top[0]]:.2f} "
            f"between passed and failed runs (KS, of at most 1)"
        )
        rest = [f"{name} ({shares[name]:.2f})" for name in top[1:]]
    text += f"; then {listed(rest)}." if rest else "."
    return {"sentence": text, "rows": rows, "ranked_by": by, **_said(found)}


def _pairs(of: Source) -> Answer:
    frame = pairs(of.table)
    top = frame.drop_duplicates("rank").head(45)
    rows = []
    for one in top.itertuples():
        mine = frame[frame["rank"] == one.rank]
        worst = _records(mine.sort_values(["low", "rate"], ascending=False), 1)[0]
        rows.append(
            {
                "parameter": str(one.parameter),
                "other": str(one.other),
                "joint": float(one.joint),  # type: ignore[arg-type]
                "worst_value": label(worst["value"]),
                "worst_other_value": label(worst["other_value"]),
                **{k: worst[k] for k in ("n_run", "n_failed", "rate", "low", "high", "basis")},
            }
        )
    first = rows[0]
    a, b = first["parameter"], first["other"]
    worst_at = (
        f"{value(of, a, first['worst_value'])} with {value(of, b, first['worst_other_value'])}"
    )
    fails = "fails" if int(first["n_run"]) == 1 else "fail"
    there = f"{worst_at}: {int(first['n_failed']):,} of {counted(first['n_run'])} {fails} there"
    if first["joint"] >= 0.005:
        text = (
            f"{a} and {b} fail jointly: together they explain {percent(first['joint'], 0)} of the "
            f"variance of failing beyond what each explains alone. Worst is {there}."
        )
    else:
        text = (
            "No pair of parameters explains failing beyond what its two parameters explain alone. "
            f"The worst cell is {there}."
        )
    return {"sentence": text, "rows": rows, **_said(frame)}


def _regions(of: Source) -> Answer:
    found = regions(of.table)
    names = ("coverage", "density", "low", "high", "mass", "held_out_density", "n_run", "n_failed")
    kept = ["text", *names, "confirmed", "basis"]
    rows = _records(found.boxes[kept])
    if not rows:
        text = "No box of limits surely fails more often than the rest."
        return {"sentence": text, "found": found, **_said(found.boxes)}
    first = rows[0]
    if len(rows) == 1 and first["text"] == "everywhere":
        text = "No box of limits holds failing runs apart from the rest: they are everywhere."
        return {"sentence": text, "rows": rows, "found": found, **_said(found.boxes)}
    text = (
        f"{percent(first['coverage'], 0)} of all failing runs lie in {shortened(first['text'])}; "
        f"{int(first['n_failed']):,} of the {counted(first['n_run'])} there fail {interval(first)}"
    )
    text += "." if first["confirmed"] else ", which held-out runs did not confirm."
    if len(rows) > 1:
        text += f" {len(rows) - 1} more {'box' if len(rows) == 2 else 'boxes'} below."
    return {"sentence": text, "rows": rows, "found": found, **_said(found.boxes)}


def _islands(of: Source) -> Answer:
    if not of.table.grid and of.table.n > MAX_CONNECTED:
        raise UnanswerableError(
            f"of {of.table.n:,} scattered runs a report does not look for neighbours; "
            "sk.islands(ds) does"
        )
    found = islands(of.table)
    n = int(found.sizes.get("island", 0))
    rows = [
        {
            "bounds": str(found["bounds"].values[k]),
            "points": int(found["size"].values[k]),
            "share_of_failures": float(found["share_of_failures"].values[k]),
            "touches": str(found["touches"].values[k]),
        }
        for k in range(min(n, 20))
    ]
    if not n:
        return {"sentence": "No connected region fails.", **_said(found)}
    first = rows[0]
    where = "one connected region" if n == 1 else f"{n:,} connected regions"
    text = (
        f"Failing points form {where}; the largest has {counted(first['points'], 'point')} and "
        f"{percent(first['share_of_failures'], 0)} of all failures: {first['bounds']}."
    )
    if first["touches"]:
        text += " It reaches the edge of what was run, so it may go on beyond."
    return {"sentence": text, "rows": rows, **_said(found)}


def _kinds(of: Source) -> Answer:
    t = of.table
    bad = (t.outcome == FAILED) | (t.outcome == ERRORED)
    if not bad.any():
        ended = bool((t.outcome < PENDING).any())
        return {"sentence": "No run failed or errored." if ended else "No run has ended yet."}
    found = kinds(t)
    rows = []
    for k in range(min(int(found.sizes["kind"]), 50)):
        run = int(found["first_run"].values[k])
        family = str(found["family"].values[k])
        rows.append(
            {
                "family": family,
                "template": str(found["template"].values[k]),
                "frame": str(found["frame"].values[k]),
                "count": int(found["count"].values[k]),
                "share": float(found["share"].values[k]),
                "where": str(found["where"].values[k]),
                "lift": float(found["lift"].values[k]),
                "first_run": run,
                "first_point": str(found["first_point"].values[k]),
                "example": _cut(str(found["example"].values[k])),
                "traceback": "" if family == "requirement" else _traceback(of, run),
            }
        )
    n = int(found.attrs.get("n_kinds", len(rows)))
    first = rows[0]
    what = first["template"] or first["family"]
    frame = f" in {first['frame']}" if first["frame"] else ""
    ways = "one way" if n == 1 else f"{n:,} ways"
    text = (
        f"{counted(bad.sum())} failed or errored, in {ways}. Most often: {what}{frame}, "
        f"{counted(first['count'])} ({percent(first['share'], 0)})"
    )
    if first["where"]:
        text += f", {first['lift']:.1f} times over-represented where {first['where']}"
    return {"sentence": f"{text}.", "rows": rows, "total": n, **_said(found)}


def _traceback(of: Source, run: int) -> str:
    """The end of what a run left in its log, from its last traceback on."""
    if "log" not in of.ds:
        return ""
    index = dict(zip(of.table.dims, np.unravel_index(run, of.table.shape), strict=True))
    text = str(of.ds["log"].isel(index).values)
    start = text.rfind("Traceback (most recent call last)")
    return _cut(text[max(start, 0) :].strip())


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} letters left out …\n{text[-half:]}"


def _sure(of: Source) -> Answer:
    frame = convergence(of.table, points=40)
    last = _records(frame)[-1]
    rows = _records(frame)
    if not int(last["n_run"]):
        raise UnanswerableError("no run has finished yet, so nothing says how sure a rate is")
    text = (
        f"After {counted(last['n_run'], 'finished run')} the failure rate is "
        f"{_share(last, last['n_failed'] / last['n_run'])} {interval(last)}."
    )
    half = next((row for row in rows if row["n_run"] * 2 >= last["n_run"]), rows[0])
    if len(rows) > 2 and half["n_run"] < last["n_run"]:
        text += f" At half of the runs it was {percent(half['rate'])} {interval(half)}."
    order = str(frame.attrs.get("order", ""))
    return {"sentence": text, "rows": rows, "order": order, **_said(frame)}


def _designs(of: Source) -> Answer:
    n = cells(of.table, None).n
    if n > 1 and n >= of.table.n:
        raise UnanswerableError(
            "each run is a design of its own, so none was tried under several scenarios; what the "
            "world does is declared by sk.scenario(...)"
        )
    if n > MAX_DESIGNS:
        raise UnanswerableError(
            f"{n:,} designs are more than a report weighs; sk.robustness(ds) weighs them all"
        )
    found = robustness(of.table)
    columns = [
        name
        for name in ("pass_share", "low", "high", "worst", "cvar", "mean", "regret", "pareto")
        if name in found
    ]
    frame = found[[*columns, "n_run", "n_unknown"]].to_dataframe().reset_index()
    ran = frame[frame["n_run"] > 0].sort_values(["pass_share", "low"], ascending=False)
    known = {p.name for p in of.parameters}
    names = [str(c) for c in frame.columns if str(c) in known]
    if len(ran) < 2:
        raise UnanswerableError("only one design has finished runs, so there is none to choose")
    shown_ = {name: [label(v) for v in ran[name]] for name in names}
    rows = _records(ran.assign(**shown_))
    best = rows[0]
    design = ", ".join(value(of, name, best[name]) for name in names)
    shares = {"low": best["low"], "high": best["high"], "basis": found.attrs["basis"].split(" ")[0]}
    front = int(ran["pareto"].sum())
    alike = int((ran["pass_share"] == ran["pass_share"].iloc[0]).sum())
    text = (
        f"Of {counted(len(ran), 'design')}, {design} passes most often: "
        f"{percent(best['pass_share'])} of its runs {interval(shares)}"
    )
    if alike > 1:
        text += ", as does one other" if alike == 2 else f", as do {alike - 1:,} others"
    text += ". "
    text += (
        f"{counted(front, 'design')} {'is' if front == 1 else 'are'} worth choosing: no other is "
        f"at least as good in {found.attrs['criteria'].replace('_', ' ')} and better in one."
    )
    return {
        "sentence": text,
        "rows": rows,
        "designs": names,
        "of": str(found.attrs.get("of", "")),
        "criteria": str(found.attrs.get("criteria", "")),
        **_said(found),
    }


ANSWERS: dict[str, tuple[str, bool, Callable[[Source], Answer]]] = {
    "rate": ("How often does it fail?", True, _rate),
    "held_up": ("What held up?", True, _held),
    "importance": ("What matters?", True, _importance),
    "pairs": ("What fails jointly?", True, _pairs),
    "regions": ("Where do failures cluster?", True, _regions),
    "islands": ("Do failures connect?", True, _islands),
    "kinds": ("In which ways does it fail?", False, _kinds),
    "designs": ("Which design to choose?", True, _designs),
    "sure": ("How sure is that?", True, _sure),
}
"""By key: the question, whether it asks which runs fail, and how it is answered."""

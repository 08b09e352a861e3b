"""Everything a report says, as plain values: the same facts for HTML, Markdown and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sweepkit import __version__
from sweepkit.analysis import UnanswerableError, refined_rate
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED, PENDING, SKIPPED
from sweepkit.places import Given, Where, place
from sweepkit.provenance import provenance
from sweepkit.quantities import core_text
from sweepkit.reading import open as open_store
from sweepkit.reading import status_counts
from sweepkit.views.answers import ANSWERS, Answer, answer
from sweepkit.views.levers import Lever
from sweepkit.views.packing import number
from sweepkit.views.source import Filling, Source, source
from sweepkit.views.wording import percent

__all__ = [
    "BADGES",
    "SCHEMA",
    "VERSION",
    "Findings",
    "as_json",
    "findings",
    "in_words",
    "plain_values",
]

SCHEMA = "sweepkit.report"
VERSION = 1
"""Of the JSON report; it rises when a key goes or changes its meaning."""

BADGES = {
    "census": "exact on this grid",
    "sample": "sampled runs",
    "replicates": "sampled replicates",
    "clusters": "sampled points",
    "bounds": "bounds only",
    "refined": "by volume",
    "nothing has run": "nothing has run",
}
MAX_OUTPUTS = 24


@dataclass(frozen=True, eq=False)
class Findings:
    """A sweep's runs, and what they say.

    Attributes
    ----------
    of : Source
    facts : mapping
        Plain values, as the JSON report has them.
    found : mapping
        Results of analyses by key of their answer, where views draw from them.
    """

    of: Source
    facts: Mapping[str, Any]
    found: Mapping[str, Any]


def findings(data: xr.Dataset | Given | Filling, requirements: Any = None) -> Findings:
    """Ask a sweep all first questions.

    Raises
    ------
    ValueError
        If there are no runs, or a requirement does not fit the Dataset.
    """
    of = source(data, requirements)
    answers = {key: answer(of, key) for key in ANSWERS}
    found = {key: one.pop("found") for key, one in answers.items() if "found" in one}
    path: Where = of.path or str(of.ds.encoding.get("source", ""))
    refined = _refined(of, path, requirements)
    if refined is not None:
        answers["refined"] = refined
    runs = _runs(of)
    facts = {
        "schema": SCHEMA,
        "version": VERSION,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "made_by": f"sweepkit {__version__}",
        "name": of.name,
        "store": PurePosixPath(str(path)).name if path else "",
        "runs": runs,
        "badge": _badge(answers["rate"], runs, bool(of.levers)),
        "notes": _notes(of, runs),
        "parameters": [_parameter(of, k) for k in range(len(of.parameters))],
        "requirements": [_requirement(of, one) for one in of.levers],
        "answers": answers,
        "outputs": _outputs(of),
        **_origin(of, path),
    }
    plain: Any = plain_values(facts)
    return Findings(of, plain, found)


def in_words(answers: Mapping[str, Any]) -> list[tuple[list[str], Mapping[str, Any]]]:
    """Answers in their order; those that refuse for one reason together, keys first."""
    found: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for key, one in answers.items():
        found.setdefault(one["why"] or key, ([], one))[0].append(key)
    return list(found.values())


def as_json(facts: Mapping[str, Any]) -> str:
    """The JSON report."""
    return json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plain_values(value: Any) -> Any:
    """Mappings, lists, text, numbers and None: what is NaN or infinite is None."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(one) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return number(value)
    return str(value)


# --- runs, parameters, requirements --------------------------------------------------------------


def _runs(of: Source) -> dict[str, Any]:
    tally = np.bincount(of.table.outcome, minlength=5)
    judged = bool(of.levers)
    return {
        "total": int(tally.sum() - tally[SKIPPED]),
        "finished": int(tally[PASSED] + tally[FAILED]),
        "passed": int(tally[PASSED]) if judged else None,
        "failed": int(tally[FAILED]) if judged else None,
        "errored": int(tally[ERRORED]),
        "pending": int(tally[PENDING]),
        "skipped": int(tally[SKIPPED]),
        "status": status_counts(of.ds),
    }


def _badge(rate: Answer, runs: Mapping[str, Any], judged: bool) -> str:
    if not judged:
        return "no requirements"
    if runs["pending"]:
        ended = runs["total"] - runs["pending"]
        return f"in progress {100 * ended // max(1, runs['total'])} %"
    basis = rate["rows"][0]["basis"] if rate["rows"] else "nothing has run"
    return BADGES.get(str(basis), str(basis))


def _notes(of: Source, runs: Mapping[str, Any]) -> list[str]:
    notes = []
    if not runs["total"]:
        notes.append("There are no runs.")
    elif runs["pending"] == runs["total"]:
        notes.append("No run has ended yet: figures come with the first results.")
    elif runs["pending"]:
        notes.append(
            f"{runs['pending']:,} of {runs['total']:,} runs are pending; what is said here is of "
            "the others."
        )
    if runs["errored"] and not runs["finished"]:
        notes.append("All runs that ended errored, so no requirement could be judged.")
    for one in of.levers:
        if of.ended.any() and not np.isfinite(one.values[of.ended]).any() and one.movable:
            notes.append(f"{one.what} is NaN in every run, and NaN satisfies no requirement.")
    single = [p for p in of.parameters if p.n == 1]
    if single and len(single) < len(of.parameters):
        said = ", ".join(f"{p.name} {p.label(0)} {p.units}".strip() for p in single[:12])
        notes.append(f"Not varied: {said}.")
    return notes


def _parameter(of: Source, k: int) -> dict[str, Any]:
    p = of.table.parameters[k]
    base = p.name if p.name in of.ds.coords else p.name.rpartition("[")[0]
    ends = [p.lower[0], p.upper[-1]] if p.n else []
    first, last = [p.label(0), p.label(p.n - 1)] if p.n else ["", ""]
    if p.binned and p.n:
        first, last = first.split(" to ")[0], last.split(" to ")[-1]
    return {
        "name": p.name,
        "role": p.role,
        "units": p.units,
        "about": str(of.ds[base].attrs.get("long_name", "")) if base in of.ds.coords else "",
        "kind": p.kind,
        "n_values": len(np.unique(of.table.raw(p.name))) if p.binned else p.n,
        "first": first if len(ends) else "",
        "last": last if len(ends) else "",
        "labels": [] if p.binned or p.n > 12 else [p.label(c) for c in range(p.n)],
        "dims": list(p.dims),
    }


def _requirement(of: Source, one: Lever) -> dict[str, Any]:
    """How many of the finished runs do not hold one requirement, and how close the others are."""
    holds = one.holds(one.declared)[of.ended]
    n, bad = len(holds), int((~holds).sum())
    return {
        "name": one.name,
        "text": one.requirement.text if one.requirement is not None else one.name,
        "output": one.what,
        "op": one.op if one.movable else "",
        "limit": float(one.stops[one.declared]) if one.movable and not one.of_margin else None,
        "units": one.units,
        "n_run": n,
        "n_violated": bad,
        "share_violated": bad / n if n else None,
        "sentence": (
            f"{bad:,} of {n:,} finished runs do not satisfy it ({percent(bad / n)})."
            if n
            else "No run has finished, so none could be judged by it."
        ),
    }


# --- outputs -------------------------------------------------------------------------------------


def _outputs(of: Source) -> list[dict[str, Any]]:
    names = [*of.outputs, *(one.what for one in of.levers if one.movable)]
    return [_output(of, name) for name in list(dict.fromkeys(names))[:MAX_OUTPUTS]]


def _output(of: Source, name: str) -> dict[str, Any]:
    values = of.output(name)[of.ended]
    known = values[np.isfinite(values)]
    levers = [one for one in of.levers if one.what == name and one.movable]
    units = levers[0].units if levers else str(of.ds[name].attrs.get("units", ""))
    told = np.quantile(known, [0, 0.05, 0.5, 0.95, 1]) if len(known) else np.full(5, np.nan)
    limits = [] if not levers else [f"{o.op} {o.stops[o.declared]:g}" for o in levers]
    return {
        "output": name,
        "units": units,
        "n": len(known),
        "n_no_number": int(len(values) - len(known)),
        **dict(zip(("min", "q05", "median", "q95", "max"), told.tolist(), strict=True)),
        "limits": limits,
    }


# --- stages, receipt, origin ---------------------------------------------------------------------


def _refined(of: Source, path: Where, requirements: Any) -> Answer | None:
    """What refinements of the same sweep say of the space, if there are any."""
    question = "And with the refined runs?"
    empty: Answer = {"question": question, "basis": "", "note": "", "why": "", "rows": []}
    if of.table.stage is not None:
        ds: Any = of.table
    elif not path or not (place(path) / "stages").is_dir():
        return None
    else:
        ds = open_store(path, stages=True)
    try:
        frame = refined_rate(ds) if ds is of.table else refined_rate(ds, requirements=requirements)
    except UnanswerableError as refused:
        return {**empty, "sentence": f"{refused}.", "why": str(refused)}
    row = {str(k): v for k, v in frame.iloc[0].to_dict().items()}
    text = (
        f"Of the parameter space {percent(row['rate'])} fails, between {percent(row['low'])} and "
        f"{percent(row['high'])} by volume; {int(row['n_run']):,} runs, the refined ones among "
        f"them. Their plain share, {percent(row['plain_rate'])}, is biased to where was refined."
    )
    if ds is not of.table:
        text += " All other figures here are of the grid alone."
    return {**empty, "sentence": text, "rows": [row], "basis": str(row.get("basis", ""))}


def _origin(of: Source, path: Where) -> dict[str, Any]:
    """Receipt and environment; where nothing is known, a sentence."""
    unknown = "The Dataset does not say what made it, so there is no receipt."
    try:
        told = provenance(of.path or of.ds)
    except ValueError:
        return {
            "receipt": {
                "sentence": unknown,
                "used_hours": None,
                "held_hours": None,
                "sessions": [],
            },
            "environment": {"packages": {}, "codes": [], "declaration": {}},
        }
    sessions = _records(told.sessions)
    used = sum(float(one.get("used", 0.0)) for one in sessions)
    held = sum(float(one.get("held", 0.0)) for one in sessions)
    return {
        "receipt": {
            "sentence": _receipt(sessions, used, held),
            "used_hours": used / 3600 if sessions else None,
            "held_hours": held / 3600 if sessions else None,
            "sessions": sessions,
        },
        "environment": {
            "packages": dict(told.packages),
            "codes": _records(told.codes),
            "declaration": {k: v for k, v in told.declaration.items() if v is not None},
        },
    }


def _receipt(sessions: Sequence[Mapping[str, Any]], used: float, held: float) -> str:
    if not sessions:
        return "No session left a receipt beside the store, so what it cost is not known."
    who = sorted({str(one["user"]) for one in sessions if one.get("user")})
    where = sorted({str(one["host"]) for one in sessions if one.get("host")})
    first, last = sessions[0]["began"], sessions[-1].get("ended") or sessions[-1]["began"]
    n = len(sessions)
    text = f"{n:,} session{'' if n == 1 else 's'}"
    text += f" by {', '.join(who)}" if who else ""
    text += f" on {', '.join(where[:4])}{' and more' if len(where) > 4 else ''}" if where else ""
    text += f", {first} to {last} UTC, took {core_text(used)} of compute"
    text += f"; workers were held for {core_text(held)}" if held else ""
    return f"{text}."


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]

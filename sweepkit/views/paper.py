"""A report as one HTML page: words and tables as text, figures drawn by the explorer's views."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sweepkit.html import escape
from sweepkit.views import captions, deeper, figures
from sweepkit.views.asked import Asked
from sweepkit.views.bundle import STATIC, joined
from sweepkit.views.columns import BUDGET, Columns, columns
from sweepkit.views.findings import Findings
from sweepkit.views.prose import sections
from sweepkit.views.wording import shortened

__all__ = ["page"]

MODULES = (
    "draw.js",
    "moved.js",
    "app.js",
    "chips.js",
    "requirements.js",
    "cells.js",
    "choices.js",
    "map.js",
    "held.js",
    "pairs.js",
    "sure.js",
    "distribution.js",
    "regions.js",
    "counting.js",
    "answers.js",
    "report.js",
)
MAX_FIGURES = 6
"""Outputs whose distribution is drawn."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'none'; base-uri 'none'; form-action 'none'"
)
"""What the page may load: nothing but itself."""


def page(said: Findings, *, title: str, budget: int = BUDGET) -> str:
    """The whole page.

    Parameters
    ----------
    said : Findings
    title : str
    budget : int
        Letters that the runs may take, at most.
    """
    carried = columns(said.of, budget)
    views = _views(said)
    told = _told(said, carried)
    x, y = captions.defaults(said.of)
    levers = carried.meta["levers"]
    outputs = carried.meta["outputs"]
    data = {
        "meta": {**carried.meta, "theme": "auto", "local": True},
        "state": {
            "x": x,
            "y": y,
            "by": "",
            "by2": "",
            "at": {},
            "stops": [one["declared"] for one in levers],
            "filters": [],
            "show": "rate" if levers or not outputs else f"output:{outputs[0][0]}",
            "run": None,
            "output": "",
        },
        "columns": carried.packed,
        "told": told,
        "views": views,
    }
    style = "\n".join((STATIC / name).read_text("utf-8") for name in ("explorer.css", "report.css"))
    body = "".join(sections(said, carried, title, views))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}\n</style>\n</head>\n<body>\n"
        '<div class="sk-explorer sk-report" data-theme="light">\n'
        "<script>if(matchMedia('(prefers-color-scheme: dark)').matches)"
        "document.currentScript.parentNode.dataset.theme='dark'</script>\n"
        f"{body}</div>\n"
        f'<script type="application/json" id="sk-data">{_json(data)}</script>\n'
        f'<script type="module">\n{_script(joined(MODULES))}</script>\n</body>\n</html>\n'
    )


def _json(data: Any) -> str:
    """JSON that ends no script, whatever names and errors hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _script(text: str) -> str:
    if "</script" in text.lower():
        raise ValueError("a module of the report holds a closing script tag")
    return text


# --- what the views draw -------------------------------------------------------------------------


def _views(said: Findings) -> list[str]:
    """The views that have something to draw; the others' places tell why in words."""
    views = ["map"]
    if said.of.levers:
        views += ["requirements", "held", "pairs"]
        if said.facts["answers"]["sure"]["rows"]:
            views.append("sure")
        if not said.facts["answers"]["regions"]["why"]:
            views.append("regions")
    if said.facts["outputs"]:
        views.append("distribution")
    return views


def _told(said: Findings, carried: Columns) -> dict[str, Any]:
    """What Python tells at the declared limits, for the views to draw at once."""
    of, answers = said.of, said.facts["answers"]
    x, y = captions.defaults(of)
    stops = [one.declared for one in of.levers]
    asked = Asked.make(of, of.table, stops, [], [n for n in (y, x) if n], [], {}, "rate")
    strips = figures.held(asked)
    overview = figures.overview(asked)
    ranked = answers["pairs"]["rows"]
    regions_ = answers["regions"]
    return {
        "all": overview["all"],
        "basis": overview["all"]["basis"],
        "progress": overview["progress"],
        "sampled": bool(carried.packed["sampled"]),
        "order": [one["name"] for one in strips["strips"]],
        "strips": {
            one["name"]: {key: one[key] for key in ("rate", "low", "high")}
            for one in strips["strips"]
        },
        "shares": {
            one["name"]: {key: one[key] for key in ("S1", "ST", "KS")} for one in strips["strips"]
        },
        "pairs": _in_order(of, ranked),
        "why": {"held": strips["why"], "pairs": answers["pairs"]["why"]},
        "sure": _sure(answers["sure"], overview["all"]),
        "regions": _boxes(said, asked)
        if "regions" in said.found
        else {"boxes": [], "front": [], "why": regions_["sentence"]},
        "distributions": _distributions(said, asked, x),
    }


def _in_order(of: Any, ranked: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Pairs with their parameters in the order of the Dataset, by rank."""
    order = {p.name: k for k, p in enumerate(of.parameters)}
    found = []
    for row in ranked:
        a, b = sorted((row["parameter"], row["other"]), key=lambda name: order[name])
        found.append([a, b, row["joint"]])
    return found


def _sure(answer: Mapping[str, Any], all_: Mapping[str, Any]) -> dict[str, Any]:
    rows = answer["rows"]
    if not rows:
        return {"why": answer["sentence"]}
    columns_ = {key: [row[key] for row in rows] for key in ("n_run", "rate", "low", "high")}
    total = sum(int(all_[key]) for key in ("pass", "fail", "error", "pending"))
    return {**columns_, "order": answer["order"], "total": total, "why": ""}


def _boxes(said: Findings, asked: Asked) -> dict[str, Any]:
    """Boxes to snap to; those with limits inside a bin are told and not snapped to."""
    found = deeper.boxes(asked, said.found["regions"])
    for box in found["boxes"]:
        box["text"] = shortened(box["text"])
    for box in (*found["boxes"], *found["front"]):
        if any("codes" not in test for test in box["limits"]):
            box["limits"] = []
    return found


def _distributions(said: Findings, asked: Asked, by: str) -> dict[str, Any]:
    names = [one["output"] for one in said.facts["outputs"]][:MAX_FIGURES]
    found: dict[str, Any] = {}
    fan = None
    for k, name in enumerate(names):
        one = deeper.distributions(asked, name, by, fan=k == 0)
        fan = one.get("fan") if k == 0 else fan
        found[name] = {key: v for key, v in one.items() if key != "choices"} | {"fan": fan}
    why = "" if names else "There is no output with one number a run, so nothing is distributed."
    return {"of": found, "why": why}

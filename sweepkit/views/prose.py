"""The words and tables of a report's page, as HTML in which everything said is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweepkit.html import Markup, escape, mark
from sweepkit.views.columns import Columns
from sweepkit.views.findings import Findings, in_words
from sweepkit.views.wording import counted

__all__ = ["NOTHING", "sections"]

NOTHING = "\N{EN DASH}"

QUIET = {"rate", "held_up", "sure", "kinds"}
"""Answers whose notes speak of columns that the report does not show."""


def sections(said: Findings, carried: Columns, title: str, views: Sequence[str]) -> Iterable[str]:
    facts = said.facts
    yield _header(facts, title)
    yield '<div class="wrap"><main>'
    yield _card("First answers", _answers(facts), name="answers", breaks=True)
    yield _play(said, carried, views)
    answers = facts["answers"]
    if "regions" in views:
        yield f'<div class="slot" data-slot="regions">{_boxes_table(answers["regions"])}</div>'
    yield _card("Kinds", _kinds(answers["kinds"]), name="kinds", breaks=True)
    nothing = "" if facts["outputs"] else "There is no output with one number a run."
    yield _slot("distribution", "Distributions", nothing, views)
    yield _card("Outputs against their limits", _outputs(facts), name="outputs")
    yield '<div class="two-up">'
    yield _slot("sure", "How sure", answers["sure"]["sentence"], views)
    yield _card("What a rate rests on", _basis(facts), name="basis")
    yield "</div>"
    if not answers["designs"]["why"]:
        yield _card("Designs", _designs(answers["designs"]), name="designs", breaks=True)
    yield _card("Parameters", _parameters(facts["parameters"]), name="parameters", breaks=True)
    yield _card("Receipt", _receipt(facts["receipt"]), name="receipt", breaks=True)
    yield _card("Made with", _environment(facts), name="environment", breaks=True)
    yield f'<p class="foot">{escape(_foot(facts))}</p></main></div>'


def _card(title: str, body: str, *, name: str, breaks: bool = False) -> str:
    kind = "card breaks" if breaks else "card"
    return (
        f'<section class="{kind}" data-part="{name}"><div class="head"><h2>{escape(title)}</h2>'
        f"</div>{body}</section>"
    )


def _slot(name: str, title: str, sentence: str, views: Sequence[str]) -> str:
    """Where a view is drawn; until then, and without scripts, what it would show."""
    if name not in views:
        text = sentence or "There is nothing to draw here."
        return _card(title, f'<p class="empty">{escape(text)}</p>', name=name)
    waits = "This figure is drawn by a script in this file, which has not run."
    body = f'<p class="said">{_words(sentence)}</p>' if sentence else ""
    card = _card(title, f'{body}<p class="waits">{waits}</p>', name=name)
    return f'<div class="slot" data-slot="{name}">{card}</div>'


def _header(facts: Mapping[str, Any], title: str) -> str:
    runs, row = facts["runs"], _row(facts["answers"]["rate"])
    ended = runs["total"] - runs["pending"]
    sizes = ", ".join(
        (
            counted(runs["total"]),
            counted(len(facts["parameters"]), "parameter"),
            counted(len(facts["requirements"]), "requirement"),
        )
    )
    stored = f"{facts['store']}  " if facts["store"] else ""
    rate = f"{100 * row['rate']:.1f} %" if row else NOTHING
    low, high = (row.get("low"), row.get("high")) if row else (None, None)
    if row is None or low is None or high is None:
        ends = "no requirements" if not facts["requirements"] else "not known yet"
    elif high - low < 1e-9:
        ends = "exact"
    else:
        ends = f"{100 * low:.1f} to {100 * high:.1f} %"
    bars = "".join(
        f'<i style="width:{100 * (runs[key] or 0) / max(1, runs["total"]):.3f}%;'
        f'background:var(--sk-{colour})"></i>'
        for key, colour in (
            ("passed" if facts["requirements"] else "finished", "pass"),
            ("failed", "fail"),
            ("errored", "error"),
            ("pending", "pending"),
        )
        if runs[key]
    )
    notes = "".join(f'<div class="s note-line">{escape(note)}</div>' for note in facts["notes"])
    outcomes = [("pass", runs["passed"]), ("fail", runs["failed"]), ("error", runs["errored"])]
    marks = "".join(
        f"<div>{mark(kind, f'{n:,} {kind}')}</div>" for kind, n in outcomes if n is not None
    )
    return (
        f'<header class="top"><div class="wrap"><div><h1 class="h1">{escape(title)}'
        f'<span class="badge">{escape(facts["badge"])}</span></h1>'
        f'<div class="s muted"><span class="mono">{escape(stored)}</span>{escape(sizes)}</div>'
        f'{notes}</div><div class="stat"><div class="lab">Runs</div>'
        f'<div class="big">{ended:,}<small>of {runs["total"]:,} ended</small></div>'
        f'<div class="bar" aria-hidden="true">{bars}</div></div>'
        f'<div class="stat"><div class="lab">Failure rate at the declared limits</div>'
        f'<div class="big">{rate}<small>{escape(ends)}</small></div></div>'
        f'<div class="stat"><div class="lab">Outcomes</div><div class="marks">{marks}</div></div>'
        "</div></header>"
    )


def _row(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return answer["rows"][0] if answer["rows"] else None


def _answers(facts: Mapping[str, Any]) -> str:
    parts = []
    answers = facts["answers"]
    for keys, one in in_words(answers):
        key = keys[0]
        asked = "<br>".join(escape(answers[k]["question"]) for k in keys)
        refused = ' class="refused"' if one["why"] else ""
        note = "" if key in QUIET else _note(one["note"])
        small = f"<small>{escape(note)}</small>" if note else ""
        parts.append(
            f'<div data-answer="{" ".join(keys)}"><dt>{asked}</dt>'
            f"<dd><span{refused}>{_words(one['sentence'])}</span>{small}</dd></div>"
        )
        if key == "rate":
            parts += [_requirement(one) for one in facts["requirements"]]
    cost = facts["receipt"]["sentence"]
    parts.append(f"<div><dt>What did it cost?</dt><dd>{_words(cost)}</dd></div>")
    return f'<dl class="answers">{"".join(parts)}</dl>'


def _requirement(one: Mapping[str, Any]) -> str:
    units = f" {one['units']}" if one["units"] and one["limit"] is not None else ""
    named = f"{one['name']}: " if one["name"] != one["text"] else ""
    said = f"{named}{one['text']}{units}. {one['sentence']}"
    return f"<div><dt>Requirement</dt><dd>{_words(said)}</dd></div>"


def _words(sentence: str) -> Markup:
    """A sentence whose signs stay with their numbers."""
    return escape(sentence.replace(" %", "\N{NO-BREAK SPACE}%"))


def _note(note: str) -> str:
    """What of a note speaks of the sentence: not of columns that are not shown."""
    return "; ".join(part for part in note.split("; ") if " is NaN" not in part)


def _play(said: Findings, carried: Columns, views: Sequence[str]) -> str:
    """Limits that move and slices that change, with what follows them."""
    answers = said.facts["answers"]
    notes = "".join(f'<p class="note-line">{escape(note)}</p>' for note in carried.notes)
    parts = ['<div class="play">']
    if "requirements" in views:
        parts.append(_slot("requirements", "Requirements", "", views))
    parts.append('<div class="sticky" data-slot="now"></div>')
    if "held" in views:
        parts.append('<div class="pairline">')
        parts.append(_slot("map", "Failure map", "", views))
        parts.append(_slot("held", "Held up", answers["held_up"]["sentence"], views))
        parts.append(f"</div>{_slot('pairs', 'Pairs', answers['pairs']['sentence'], views)}")
    else:
        parts.append(_slot("map", "Map", "", views))
    return "".join([*parts, notes, "</div>"])


def _table(
    columns_: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()
) -> str:
    side = ["r" if k in numbers else "" for k in range(len(columns_))]
    head = "".join(f'<th class="{s}">{escape(c)}</th>' for s, c in zip(side, columns_, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{s}">{escape(c)}</td>' for s, c in zip(side, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _figure(value: Any, digits: int = 4) -> str:
    return NOTHING if value is None else f"{value:.{digits}g}"


def _percent(value: Any, digits: int = 1) -> str:
    return NOTHING if value is None else f"{100 * value:.{digits}f} %"


def _boxes_table(answer: Mapping[str, Any]) -> str:
    rows = [
        (one["text"], _percent(one["coverage"]), _percent(one["density"]), f"{one['n_run']:,}")
        for one in answer["rows"]
    ]
    table = _table(("Box", "Covers", "Fail", "Runs"), rows, (1, 2, 3))
    return _card(
        "Regions", f'<p class="said">{escape(answer["sentence"])}</p>{table}', name="boxes"
    )


def _kinds(answer: Mapping[str, Any]) -> str:
    if not answer["rows"]:
        return f'<p class="empty">{escape(answer["sentence"])}</p>'
    parts = []
    for one in answer["rows"]:
        bad = "fail" if one["family"] == "requirement" else "error"
        glyph = mark(bad, " ")
        where = (
            f"Over-represented where {one['where']}, {one['lift']:.1f} times. "
            if one["where"] and one["lift"] is not None
            else ""
        )
        frame = f'<p class="mono">{escape(one["frame"])}</p>' if one["frame"] else ""
        example = one["example"] if one["example"] not in ("", one["template"]) else ""
        text = f"<p>{escape(where)}First at {escape(one['first_point'])}.</p>"
        text += f'<p class="mono">{escape(example)}</p>' if example else ""
        fold = ""
        if one["traceback"]:
            what = "First traceback" if "Traceback" in one["traceback"] else "First log"
            fold = (
                f"<details><summary>{what}</summary>"
                f'<pre tabindex="0">{escape(one["traceback"])}</pre></details>'
            )
        parts.append(
            f'<div class="kind"><span>{glyph}</span><span class="what">'
            f"{escape(one['template'] or one['family'])}</span>"
            f'<span class="n"><b>{one["count"]:,}</b> {_percent(one["share"], 0)}</span>'
            f"{frame}{text}{fold}</div>"
        )
    left = answer.get("total", len(parts)) - len(parts)
    more = f'<p class="note-line">{left:,} rarer kinds are left out.</p>' if left > 0 else ""
    return f'<p class="said">{_words(answer["sentence"])}</p>{"".join(parts)}{more}'


def _outputs(facts: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{one['output']}{', ' + one['units'] if one['units'] else ''}",
            f"{one['n']:,}",
            f"{one['n_no_number']:,}",
            *(_figure(one[key]) for key in ("min", "q05", "median", "q95", "max")),
            "; ".join(one["limits"]) or NOTHING,
        )
        for one in facts["outputs"]
    ]
    if not rows:
        return '<p class="empty">There is no output with one number a run.</p>'
    heads = ("Output", "Runs", "No number", "Least", "5 %", "Median", "95 %", "Most", "Limit")
    return _table(heads, rows, range(1, 8))


def _basis(facts: Mapping[str, Any]) -> str:
    sure, rate = facts["answers"]["sure"], facts["answers"]["rate"]
    parts = [f'<p class="said">{_words(sure["sentence"])}</p>']
    if rate["basis"]:
        parts.append(f'<p class="said">The failure rate rests on: {escape(rate["basis"])}.</p>')
    if facts["runs"]["errored"] or facts["runs"]["pending"]:
        parts.append(
            '<p class="said">Runs that errored or are pending are unknown, not failures: an '
            "interval takes each to its worst.</p>"
        )
    return "".join(parts)


def _designs(answer: Mapping[str, Any]) -> str:
    rows = []
    for one in answer["rows"][:40]:
        share = one["pass_share"]
        bar = Markup(
            f'<span class="share"><i style="width:{100 * (share or 0):.1f}%"></i></span>'
            f"{_percent(share)}"
        )
        ends = f"{_percent(one['low'])} to {_percent(one['high'])}"
        rows.append(
            (
                *(one[name] for name in answer["designs"]),
                bar,
                ends,
                _figure(one["cvar"]),
                _figure(one["regret"]),
                "yes" if one["pareto"] else "",
                f"{one['n_run']:,}",
            )
        )
    n = len(answer["designs"])
    heads = (*answer["designs"], "Passes", "Between", "CVaR", "Regret", "Worth choosing", "Runs")
    left = len(answer["rows"]) - len(rows)
    more = f'<p class="note-line">{left:,} more designs are left out.</p>' if left > 0 else ""
    about = f"CVaR (mean of the worst tenth) and regret of: {answer['of']}. {_note(answer['note'])}"
    of = f'<p class="note-line">{escape(about)}</p>'
    said = f'<p class="said">{_words(answer["sentence"])}</p>'
    return said + _table(heads, rows, (n + 2, n + 3, n + 5)) + more + of


def _parameters(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        (
            one["name"],
            one["role"],
            one["units"],
            f"{one['n_values']:,}",
            ", ".join(one["labels"]) or f"{one['first']} to {one['last']}",
            one["about"],
        )
        for one in rows
    ]
    return _table(("Parameter", "Role", "Units", "Values", "Which", "About"), told, (3,))


def _receipt(receipt: Mapping[str, Any]) -> str:
    parts = [f'<p class="said">{_words(receipt["sentence"])}</p>']
    sessions = receipt["sessions"]
    if sessions:
        heads = [key for key in sessions[-1] if key not in SAID_BELOW]
        rows = [[_session_cell(key, one.get(key)) for key in heads] for one in sessions[-30:]]
        right = [k for k, key in enumerate(heads) if isinstance(sessions[-1][key], int | float)]
        parts.append(_table([_head(key) for key in heads], rows, right))
        if len(sessions) > 30:
            parts.append(f'<p class="note-line">The last 30 of {len(sessions):,} sessions.</p>')
    return "".join(parts)


SAID_BELOW = {"platform", "ended"}
"""What a session's row leaves to the sentence above it and the environment below."""


def _session_cell(key: str, value: Any) -> str:
    """A session's value; of its code the begin, as the whole stands below."""
    return str(value)[:8] if key == "code" else _cell(value)


def _head(key: str) -> str:
    return {"used": "used, s", "held": "held, s"}.get(key, key)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


def _environment(facts: Mapping[str, Any]) -> str:
    told = facts["environment"]
    items = [*told["packages"].items(), *told["declaration"].items()]
    items += [
        (f"code {one['code']}", f"{one['identity']}, {one['runs']:,} runs") for one in told["codes"]
    ]
    if not items:
        return '<p class="empty">The Dataset does not say with what it was made.</p>'
    rows = "".join(
        f'<div><dt>{escape(key)}</dt><dd class="mono">{escape(value)}</dd></div>'
        for key, value in items
    )
    return f'<dl class="facts2">{rows}</dl>'


def _foot(facts: Mapping[str, Any]) -> str:
    return (
        f"Report of {facts['made'].replace('T', ' ').rstrip('Z')} UTC by {facts['made_by']}. "
        "It holds everything it shows and asks for nothing else."
    )

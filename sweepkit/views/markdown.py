"""A report as Markdown, which a review or a job's summary shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweepkit.views.findings import in_words

__all__ = ["markdown"]

NOTHING = "\N{EN DASH}"
SIGNS = frozenset("\\`*_[]|~$#")
"""What Markdown would read as more than itself within a line."""

ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(facts: Mapping[str, Any], title: str) -> str:
    """The Markdown report: the same facts as in HTML, figures as tables."""
    answers, runs = facts["answers"], facts["runs"]
    lines = [f"# {text(title)}", "", f"**{text(facts['badge'])}**, {_counts(facts)}", ""]
    lines += [f"> {text(note)}\n" for note in facts["notes"]]
    lines += _table(
        ("Question", "Answer"),
        [
            (" ".join(answers[key]["question"] for key in keys), one["sentence"])
            for keys, one in in_words(answers)
        ]
        + [("What did it cost?", facts["receipt"]["sentence"])],
    )
    if facts["requirements"]:
        lines += ["## Requirements", ""]
        lines += _table(
            ("Requirement", "Not satisfied", "Of finished runs", "Share"),
            [
                (
                    code(one["text"]),
                    one["n_violated"],
                    one["n_run"],
                    _percent(one["share_violated"]),
                )
                for one in facts["requirements"]
            ],
            (1, 2, 3),
        )
    lines += _failures(answers)
    if not answers["designs"]["why"]:
        lines += _designs(answers["designs"])
    lines += _outputs(facts["outputs"])
    lines += ["## Parameters", ""]
    lines += _table(
        ("Parameter", "Role", "Units", "Values", "Which"),
        [
            (
                one["name"],
                one["role"],
                one["units"],
                one["n_values"],
                ", ".join(one["labels"]) or f"{one['first']} to {one['last']}",
            )
            for one in facts["parameters"]
        ],
        (3,),
    )
    lines += _made(facts)
    if runs["status"]:
        said = ", ".join(f"{n:,} {word}" for word, n in runs["status"].items())
        lines += [f"Statuses: {text(said)}.", ""]
    lines += [f"Report of {text(facts['made'])} by {text(facts['made_by'])}.", ""]
    return "\n".join(lines)


def text(said: Any) -> str:
    """One line that means nothing but itself, in Markdown and in HTML."""
    line = " ".join(str(said).split())
    return "".join(f"\\{sign}" if sign in SIGNS else ENTITIES.get(sign, sign) for sign in line)


def code(said: Any) -> _Code:
    """One line as code."""
    line = " ".join(str(said).split()).replace("|", "\\|")
    longest = max((len(run) for run in _ticks(line)), default=0)
    fence = "`" * (longest + 1)
    room = " " if line.startswith("`") or line.endswith("`") else ""
    return _Code(f"{fence}{room}{line}{room}{fence}")


class _Code(str):
    """Markdown already."""

    __slots__ = ()


def _ticks(line: str) -> Iterable[str]:
    run = ""
    for sign in f"{line} ":
        if sign == "`":
            run += sign
        elif run:
            yield run
            run = ""


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] = ()
) -> list[str]:
    lines = [f"| {' | '.join(map(text, heads))} |"]
    lines.append(
        "|" + "|".join(" ---: " if k in numbers else " --- " for k in range(len(heads))) + "|"
    )
    lines += [f"| {' | '.join(_cell(one) for one in row)} |" for row in rows]
    return [*lines, ""]


def _cell(value: Any) -> str:
    if isinstance(value, _Code):
        return value
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return text(f"{value:.4g}" if isinstance(value, float) else value)


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f} %"


def _counts(facts: Mapping[str, Any]) -> str:
    runs = facts["runs"]
    said = [f"{runs['total']:,} runs"]
    for key in ("passed", "failed", "errored", "pending", "skipped"):
        if runs[key]:
            said.append(f"{runs[key]:,} {key}")
    return ", ".join(said)


def _failures(answers: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if answers["regions"]["rows"]:
        lines += ["## Where failures cluster", ""]
        rows = [
            (code(one["text"]), _percent(one["coverage"]), _percent(one["density"]), one["n_run"])
            for one in answers["regions"]["rows"]
        ]
        lines += _table(("Box", "Covers of all failing", "Fail there", "Runs"), rows, (1, 2, 3))
    if answers["kinds"]["rows"]:
        lines += ["## Kinds", ""]
        rows = [
            (one["template"] or one["family"], one["frame"], one["count"], one["first_point"])
            for one in answers["kinds"]["rows"][:20]
        ]
        lines += _table(("What happened", "In", "Runs", "First at"), rows, (2,))
        for one in answers["kinds"]["rows"][:3]:
            if one["traceback"]:
                lines += _folded(f"First log of: {one['template'] or one['family']}", one)
    return lines


def _folded(summary: str, one: Mapping[str, Any]) -> list[str]:
    """A log folded away, in a fence longer than any in it."""
    body = str(one["traceback"]).replace("\r", "")
    fence = "`" * (max((len(run) for run in _ticks(body.replace("\n", " "))), default=2) + 1)
    fence = fence if len(fence) > 2 else "```"
    said = "".join(ENTITIES.get(sign, sign) for sign in " ".join(summary.split()))
    return [
        f"<details><summary>{said}</summary>",
        "",
        f"{fence}text",
        body,
        fence,
        "",
        "</details>",
        "",
    ]


def _designs(answer: Mapping[str, Any]) -> list[str]:
    names = answer["designs"]
    rows = [
        (
            *(one[name] for name in names),
            _percent(one["pass_share"]),
            f"{_percent(one['low'])} to {_percent(one['high'])}",
            one["cvar"],
            one["regret"],
            one["pareto"],
        )
        for one in answer["rows"][:20]
    ]
    heads = (*names, "Passes", "Between", "CVaR", "Regret", "Worth choosing")
    n = len(names)
    return ["## Designs", "", *_table(heads, rows, (n, n + 2, n + 3))]


def _outputs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    told = [
        (
            one["output"],
            one["units"],
            one["n"],
            *(one[key] for key in ("min", "q05", "median", "q95", "max")),
            "; ".join(one["limits"]),
        )
        for one in rows
    ]
    heads = ("Output", "Units", "Runs", "Least", "5 %", "Median", "95 %", "Most", "Limit")
    return ["## Outputs", "", *_table(heads, told, range(2, 8))]


def _made(facts: Mapping[str, Any]) -> list[str]:
    told = facts["environment"]
    rows: list[tuple[Any, ...]] = [*told["packages"].items(), *told["declaration"].items()]
    rows += [
        (f"code {one['code']}", f"{one['identity']}, {one['runs']:,} runs") for one in told["codes"]
    ]
    if not rows:
        return []
    return ["## Made with", "", *_table(("What", "Which"), [(a, str(b)) for a, b in rows])]

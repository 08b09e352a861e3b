"""A job as it is displayed: live in a notebook, and still or as text where nothing is live."""

from __future__ import annotations

import html
import importlib.util
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from sweepkit.status import ENDINGS, Progress
from sweepkit.views.progress import duration_text, headless, in_notebook, sentence

__all__ = ["Watched", "displayed", "still", "text"]

HERE = Path(__file__).parent
PAUSE = 0.2
"""Least seconds between two messages to the browser."""

UNSUCCESSFUL = ("error", "timeout", "crashed", "invalid")

_PATHS = {
    "pass": '<circle cx="7" cy="7" r="6.5" fill="var(--sk-pass,#0F7AC0)"/>'
    '<path d="M3.8 7.2 6.1 9.5 10.3 4.9" fill="none" stroke="#fff" stroke-width="1.7"/>',
    "fail": '<rect x=".8" y=".8" width="12.4" height="12.4" fill="var(--sk-fail,#E69F00)"/>'
    '<path d="M4 4 10 10M10 4 4 10" stroke="#18202B" stroke-width="1.8"/>',
    "error": '<path d="M7 1 13.4 12.8H.6Z" fill="var(--sk-error,#C2185B)"/><path d="M7 4.6V9" '
    'stroke="#fff" stroke-width="1.7"/><circle cx="7" cy="11" r="1" fill="#fff"/>',
    "pending": '<circle cx="7" cy="7" r="5.8" fill="none" stroke="var(--sk-edge,#7C8796)" '
    'stroke-width="1.4" stroke-dasharray="2.4 2"/>',
    "running": '<g fill="none" stroke="currentColor" stroke-width="1.4">'
    '<circle cx="7" cy="7" r="5.6"/><path d="M7 3.6V7l2.4 1.6"/></g>',
    "paused": '<path d="M4.5 2.5V11.5M9.5 2.5V11.5" stroke="currentColor" stroke-width="2.2"/>',
    "cancelled": '<rect x="2.5" y="2.5" width="9" height="9" fill="none" stroke="currentColor" '
    'stroke-width="1.6"/>',
    "skipped": '<path d="M2 7H12" stroke="var(--sk-edge,#7C8796)" stroke-width="2"/>',
}
_ALSO = {"done": "pass", "failed": "error", "declared": "pending", "queued": "pending"}


class Watched(Protocol):
    """A job, as far as it is looked at and steered here."""

    name: str
    store: str
    began: float

    @property
    def progress(self) -> Progress:
        """How far it is."""

    @property
    def error(self) -> str:
        """What ended it, in one line; "" if nothing did."""

    def news(self, seen: int, timeout: float) -> int:
        """Wait for more news than some seen; returns how much there is."""

    def pause(self) -> None:
        """Begin no more runs."""

    def resume(self) -> None:
        """Go on."""

    def cancel(self) -> None:
        """End soon."""


def displayed() -> Callable[[Watched], dict[str, Any]]:
    """What displays one job: gives its mimebundle, with one live widget however often shown.

    Without a notebook, without anywidget, or where a notebook is run with nobody at the screen,
    the bundle holds HTML and text of how the job is now.
    """
    widgets: list[Any] = []

    def bundle(job: Watched) -> dict[str, Any]:
        made: dict[str, Any] = {"text/plain": text(job), "text/html": still(job)}
        live = in_notebook() and not headless() and importlib.util.find_spec("anywidget")
        if live and not widgets:
            widgets.append(_widget(job))
        if live:
            made["application/vnd.jupyter.widget-view+json"] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": widgets[0].model_id,
            }
        return made

    return bundle


def _widget(job: Watched) -> Any:
    """A widget that follows a job until it ends."""
    import anywidget
    import traitlets

    class JobWidget(anywidget.AnyWidget):
        _esm = HERE / "job.js"
        _css = HERE / "job.css"
        shown = traitlets.Dict().tag(sync=True)
        examples = traitlets.Dict().tag(sync=True)

    acts = {"pause": job.pause, "resume": job.resume, "cancel": job.cancel}

    def hear(_: object, content: Mapping[str, Any], __: object) -> None:
        act = acts.get(str(content.get("act")))
        if act is not None:
            act()

    widget = JobWidget(shown=_shown(job), examples=_examples(job.progress))
    widget.on_msg(hear)

    def follow() -> None:
        seen = 0
        while True:
            seen = job.news(seen, 1.0)
            progress = job.progress
            if len(progress.examples) > len(widget.examples):
                widget.examples = _examples(progress)
            widget.shown = _shown(job)
            if progress.state in ENDINGS:
                return
            time.sleep(PAUSE)  # whatever comes meanwhile is in the next message

    threading.Thread(target=follow, name="sweepkit view", daemon=True).start()
    return widget


def text(job: Watched) -> str:
    """A job in one line, and what ended it in a second."""
    progress = job.progress
    said = "" if progress.state in ENDINGS and not job.error else f"{progress.state}, "
    line = f"{job.name} into {Path(job.store).name}: {said}{sentence(progress)}"
    return f"{line}\n{job.error}" if job.error else line


def still(job: Watched) -> str:
    """A job as HTML, as it is now: no script, and readable where styles are dropped."""
    shown = _shown(job)
    style = (HERE / "job.css").read_text()
    rows = "".join(
        f'<div class="sk-kind"><span>{shown["mark"]}</span>'
        f"<span>{html.escape(one.error)}</span>"
        f'<span class="sk-count">{_runs(job.progress.errors.get(one.kind, 0))}</span>'
        f"<span>{html.escape(one.where)}</span><span></span>"
        f"<pre>{html.escape(one.log)}</pre></div>"
        for one in job.progress.examples
    )
    errors = f"<details><summary>{shown['summary']}</summary>{rows}</details>" if rows else ""
    fault = f'<div class="sk-fault">{html.escape(shown["fault"])}</div>' if shown["fault"] else ""
    return (
        f'<style>{style}</style><div class="sk-job"><div class="sk-head">{shown["glyph"]} '
        f"<b>{html.escape(shown['state'])}</b> "
        f'<span class="sk-where">{html.escape(shown["where"])}</span></div>'
        f"{shown['main']}{fault}{errors}</div>"
    )


def _shown(job: Watched) -> dict[str, Any]:
    """All that is shown of a job but examples of errors; values that hold HTML are escaped."""
    progress = job.progress
    count = sum(progress.errors.values())
    kinds = f"{count:,} in {len(progress.errors)} kind{'s' * (len(progress.errors) != 1)}"
    goes_on = "" if progress.state in ENDINGS else "; the sweep goes on"
    return {
        "state": progress.state,
        "ended": progress.state in ENDINGS,
        "glyph": _glyph(progress.state),
        "mark": _glyph("error"),
        "where": _where(job),
        "main": _main(job),
        "fault": job.error,
        "summary": f"Errors <span>({kinds}{goes_on})</span>",
        "errors": [{"kind": kind, "count": _runs(n)} for kind, n in progress.errors.items()],
    }


def _where(job: Watched) -> str:
    workers = job.progress.workers
    held = f"{workers} worker{'s' * (workers != 1)}" if workers else ""
    busy = job.progress.state in ("held", "running", "collecting")
    return f"{Path(job.store).name}, {held} held" if busy and held else Path(job.store).name


def _examples(progress: Progress) -> dict[str, dict[str, Any]]:
    return {
        one.kind: {
            "kind": one.kind,
            "error": one.error,
            "where": one.where,
            "log": one.log,
            "traceback": "Traceback" in one.log,
        }
        for one in progress.examples
    }


def _glyph(word: str) -> str:
    path = _PATHS.get(_ALSO.get(word, word), _PATHS["running"])
    return f'<svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">{path}</svg>'


def _segments(progress: Progress) -> list[tuple[str, int]]:
    """Counts by what they mean for a person, in the order in which they are drawn."""
    counts = progress.counts
    done, failed = counts.get("done", 0), progress.failed
    good = [("pass", done - failed), ("fail", failed)] if progress.judged else [("done", done)]
    errors = sum(counts.get(one, 0) for one in UNSUCCESSFUL)
    other = [("error", errors), ("skipped", counts.get("skipped", 0))]
    pending = max(progress.total - progress.finished, 0)
    return [*good, *(one for one in other if one[1]), ("pending", pending)]


def _main(job: Watched) -> str:
    progress = job.progress
    segments = _segments(progress)
    whole = max(sum(count for _, count in segments), 1)
    bar = "".join(
        f'<i class="sk-{word}" style="width:{count / whole:.3%}"></i>'
        for word, count in segments
        if count and word != "pending"
    )
    legend = "".join(
        f'<span class="sk-text-{word}">{_glyph(word)} <b>{count:,}</b> {word}</span> '
        for word, count in segments
    )
    label = ", ".join(f"{count:,} {word}" for word, count in segments)
    started = time.strftime("%H:%M:%S", time.localtime(job.began))
    elapsed = "" if progress.state in ("declared", "queued") else _seconds(progress.elapsed)
    clock = f"elapsed {elapsed}, started {started}" if elapsed else f"started {started}"
    if progress.waiting:
        clock = f"{html.escape(progress.waiting)}; {clock}"
    facts = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{detail}</small></dd></div>"
        for name, value, detail in _facts(progress)
    )
    return (
        f'<div class="sk-body"><div class="sk-bar" role="img" aria-label="{label}">{bar}</div>'
        f'<div class="sk-legend">{legend}<span class="sk-clock">{clock}</span></div></div>'
        f'<dl class="sk-facts">{facts}</dl>'
    )


def _facts(progress: Progress) -> list[tuple[str, str, str]]:
    finished, total = progress.finished, progress.total
    share = finished / total if total else 1.0
    expected, low, high = progress.remaining
    ended = progress.state in ENDINGS
    going = not ended and finished > 0 and not math.isnan(expected)
    whole = progress.used + expected * max(progress.workers, 1)
    rate = "" if math.isnan(progress.rate) else f"{_number(progress.rate)} runs/s"
    ran = finished - progress.counts.get("skipped", 0)
    facts = [
        ("Done", f"{math.floor(100 * share)} %", f"{finished:,} of {total:,} runs"),
        ("Rate", rate or "not known yet", f"over {_seconds(progress.elapsed)}" if rate else ""),
        (
            "Left",
            duration_text(expected) if going else ("nothing" if finished >= total else "?"),
            _range(low, high) if going else "",
        ),
        (
            "Compute used",
            _seconds(progress.used),
            f"of about {_seconds(whole)}" if going else "worker time of runs",
        ),
    ]
    done = progress.counts.get("done", 0)
    if progress.judged and done:
        facts.append(("Failing", f"{progress.failed / done:.1%}", f"of {done:,} done, so far"))
    else:
        errors = sum(progress.counts.get(one, 0) for one in UNSUCCESSFUL)
        facts.append(("Errors", f"{errors / ran:.1%}" if ran else "none", f"of {ran:,} runs"))
    return facts


def _range(low: float, high: float) -> str:
    first, last = duration_text(low), duration_text(high)
    return f"about {last}" if first == last else f"{first} to {last}"


def _runs(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    """A duration that is measured and not estimated: to a tenth while it is short."""
    return f"{value:.1f} s" if value < 99.95 else duration_text(value)

"""Reprs in HTML: escaped, collapsible, in any theme, of nothing from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import xarray as xr

import sweepkit as sk
from sweepkit import html

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Tags, attributes and words of a piece of HTML; a tag left open is a failure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("circle", "path", "rect", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("circle", "path", "rect"):
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words += f" {data}"


def everything(evil: str) -> str:
    return html.box(
        evil,
        html.section(evil, evil, about=evil, unfolded=True),
        html.table((evil, "n"), [(evil, 1), (html.mark("fail", evil), 2)], numbers={1}),
        html.facts([(evil, evil, evil)]),
        html.bar([("pass", 3), ("error", 1)]),
        html.code(evil),
        html.note(evil),
        about=evil,
        aside=evil,
        text=evil,
    )


def test_every_part_escapes_what_it_is_given() -> None:
    found = Tags(everything(EVIL))
    assert not found.tags & {"script", "img"}
    assert "onerror" not in found.attributes
    assert found.words.count("<script>alert") == 15


def test_nothing_is_fetched_and_no_text_has_a_fixed_colour() -> None:
    shown = everything("x")
    assert not re.search(r"url\(|https?:|@import|src=", shown)
    fixed = re.findall(r"[;{]color:([^;}]+)", html.CSS)
    assert fixed
    assert all(value == "inherit" or "var(--sk-" in value for value in fixed)


def test_long_tables_say_how_much_is_left_out() -> None:
    assert "900 more rows" in html.table(("a",), ([k] for k in range(1000)))
    assert html.sentence(list("abcdefgh"), 6) == "a, b, c, d, e, f and 2 more"


def test_results_of_analysis_show_their_tables_escaped() -> None:
    failed = np.zeros((6, 5, 4), bool)
    failed[3:, 2:] = [True, True, False, True]
    ds = xr.Dataset(
        {"failed": (("gain", "law", "replicate"), failed)},
        coords={
            "gain": ("gain", np.arange(6.0), {"role": "design", "units": "<b>N</b>"}),
            "law": ("law", ["a", "b", "<script>1</script>", "d", "e"], {"role": "design"}),
            "replicate": ("replicate", range(4), {"role": "replicate"}),
        },
    )
    regions = Tags(sk.regions(ds)._repr_html_())
    suggested = Tags(sk.suggest(ds.isel(law=slice(3)), 3, goal="replicate")._repr_html_())
    for found in (regions, suggested):
        assert not found.tags & {"script", "b "}
        assert "<script>1</script>" in found.words
    assert "gain >= 3" in regions.words
    assert "gain, <b>N</b>" in suggested.words


def test_a_sweep_shows_requirements_parameters_and_outputs() -> None:
    def fall(height: float, gravity: float) -> dict[str, float]:
        return {"time": (2 * height / gravity) ** 0.5}

    sweep = sk.Sweep(
        fall,
        sk.grid(height=sk.design([1.0, 2.0, 4.0], units="m"), gravity=[1.62, 9.81]),
        outputs={"time": sk.output(units="s", long_name="time to fall")},
        requirements=["time < 1"],
    )
    words = Tags(sweep._repr_html_()).words
    for part in ("time < 1", "height", "1, 2, 4", "time to fall", "6 runs", "none drawn"):
        assert part in words

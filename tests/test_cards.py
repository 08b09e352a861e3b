"""Results as text and HTML."""

from __future__ import annotations

import re

from sweepkit.cards import Card, Fact, Table
from sweepkit.html import CSS

CARD = Card(
    "Plan",
    "<b>evil</b> & co",
    "3 of 4",
    (Fact("Cost", "3 ms", "<i>"),),
    (Table(("what", "runs"), [("coarse <x>", "12")]),),
    ("a note <script>alert(1)</script>",),
)


def test_everything_shown_as_html_is_escaped() -> None:
    shown = CARD.html()
    assert not re.search(r"<(b>evil|script|i>|x>)", shown)
    assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;evil&lt;/b&gt; &amp; co" in shown


def test_colours_follow_the_theme_and_nothing_is_fetched() -> None:
    shown = CARD.html()
    assert "var(--jp-ui-font-color1" in shown
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b|https?://|<script|url\(", shown)


def test_as_text_each_fact_and_row_has_its_line() -> None:
    assert CARD.text().splitlines() == [
        "<sweepkit.Plan <b>evil</b> & co: 3 of 4>",
        "  Cost  3 ms  (<i>)",
        "  what        runs",
        "  coarse <x>    12",
        "  a note <script>alert(1)</script>",
    ]


def test_names_of_facts_do_not_float_into_figures_on_a_notebooks_page() -> None:
    card = Card("Receipt", "s.zarr", "", (Fact("Queued", "52 ms", "not metered"),), (), [])
    shown = card.html()
    assert '<dt style="float:none;width:auto' in shown
    assert '<dd style="float:none;width:auto' in shown
    assert "dl.sk-facts dd{float:none;width:auto" in CSS

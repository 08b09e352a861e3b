"""A job as text and as HTML without script: what it says in each state, and nothing unescaped."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sweepkit.status import STATES, Example, Progress
from sweepkit.views import job as view


@dataclass
class Looked:
    """A job to be looked at."""

    progress: Progress
    error: str = ""
    name: str = "pendulum"
    store: str = "results/pendulum.zarr"
    began: float = 0.0
    said: list[str] = field(default_factory=list)

    def news(self, seen: int, timeout: float) -> int:
        return seen

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")

    def cancel(self) -> None:
        self.said.append("cancel")


RUNNING = Progress(
    1920,
    {"done": 701, "error": 7, "timeout": 2},
    failed=369,
    elapsed=2.2,
    rate=372.0,
    remaining=(3.3, 2.7, 4.4),
    errors={"LinAlgError": 7, "timeout": 2},
    used=3.8,
    workers=2,
    judged=True,
    examples=(Example("LinAlgError", "LinAlgError: <singular>", "length=2", "Traceback <here>"),),
)


def test_what_is_shown_is_what_is_known() -> None:
    html = view.still(Looked(RUNNING))
    for said in (
        "<b>332</b> pass",
        "<b>369</b> fail",
        "<b>9</b> error",
        "<b>1,210</b> pending",
        "710 of 1,920 runs",
        "372 runs/s",
        "3 s to 4 s",
        "3.8 s",
        "of about 10.4 s",
        "52.6%",
        "(9 in 2 kinds; the sweep goes on)",
        "pendulum.zarr, 2 workers held",
    ):
        assert said in html, said
    assert "710 of 1,920 runs" in view.text(Looked(RUNNING))


def test_without_requirements_runs_are_done_and_neither_pass_nor_fail() -> None:
    html = view.still(Looked(Progress(10, {"done": 4})))
    assert "<b>4</b> done" in html
    assert " pass" not in html.split("</style>")[1]


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_told_with_a_word_and_a_glyph(state: str) -> None:
    looked = Looked(Progress(10, {}, state=state), error="ValueError: no" * (state == "failed"))
    html = view.still(looked).split("</style>")[1]
    assert f"<b>{state}</b>" in html
    assert html.index("<svg") < html.index(f"<b>{state}</b>")
    if state == "failed":
        assert "ValueError: no" in html
        assert view.text(looked).endswith("\nValueError: no")


def test_nothing_that_a_person_wrote_is_html() -> None:
    looked = Looked(RUNNING, error="<script>", name="<i>", store="a/<b>.zarr")
    html = view.still(looked).split("</style>")[1]
    for raw in ("<script>", "<i>", "<b>.zarr", "<singular>", "<here>"):
        assert raw not in html


def test_without_a_notebook_the_bundle_is_html_and_text() -> None:
    assert set(view.displayed()(Looked(RUNNING))) == {"text/html", "text/plain"}

"""The README's cells run one after the other, as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PATTERNS = {
    "Simulators of every shape",
    "Past one machine",
    "Where many machines reach it",
    "Outputs of megabytes",
}
"""Sections whose cells hold names that the reader fills in; the README says which."""


def cells() -> list[str]:
    """The Python cells of all other sections, in their order."""
    parts = re.split(r"^## (.+)$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(sections) >= PATTERNS
    texts = [text for name, text in sections.items() if name not in PATTERNS]
    return [one for text in texts for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def test_the_readme_says_which_sections_are_patterns() -> None:
    (said,) = re.findall(r"patterns to fill in: (.*?)\.\n", README.read_text(encoding="utf-8"))
    assert set(re.findall(r"\*(.+?)\*", said)) == PATTERNS


@pytest.mark.slow
def test_the_cells_of_the_readme_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(README.parent))
    code = [nbformat.v4.new_code_cell(one) for one in cells()]
    made = nbformat.v4.new_notebook(cells=code)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(made, timeout=300, kernel_name="python3", resources=where).execute()
    told = {one.name for one in tmp_path.iterdir()}
    assert {"pendulum.zarr", "report.html", "runs.parquet", "pendulum-set", "big.zarr"} <= told

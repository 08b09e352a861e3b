"""The card of a training set: what its columns are, how much there is, and where it is from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.export import columns_of
from sweepkit.splits import SPLITS, Split
from sweepkit.status import NAMES

__all__ = ["MARK", "DataCard"]

MARK = "made_by: sweepkit.training_set"
"""By this line in its card a folder is known as a training set."""

WORDS = 8
"""Different texts of a column that are listed."""

ABOUT = {
    "run": "number of the run, in C order over the sweep's dims",
    "step": "which entry of the traces; -1: the run has none, as one that errored",
    "stage": "0: the grid; others refine it",
    "volume": "share of the parameter space that the run stands for: its weight",
}


class DataCard:
    """Columns, ranges and counts, remembered while rows are written, and told in Markdown.

    Parameters
    ----------
    ds : Dataset
        That the rows are of.
    features, targets : sequence of str
    steps : bool
        Whether a row is a step and not a run.
    """

    def __init__(
        self, ds: xr.Dataset, features: Sequence[str], targets: Sequence[str], steps: bool
    ) -> None:
        self.ds, self.features, self.targets, self.steps = ds, features, targets, steps
        self.columns: dict[str, dict[str, Any]] = {}
        self.ranges: dict[str, list[Any]] = {}
        self.texts: dict[str, set[str]] = {}
        self.rows: dict[str, int] = dict.fromkeys(SPLITS, 0)
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, split: str, part: xr.Dataset, columns: Mapping[str, NDArray[Any]]) -> None:
        """Count some runs, and the rows that they make."""
        told = self.counts.setdefault(
            split, dict.fromkeys(("runs", *NAMES, "passing", "failing"), 0)
        )
        told["runs"] += part.sizes["row"]
        for kind, number in zip(*np.unique(part["status"].values, return_counts=True), strict=True):
            told[NAMES[int(kind)]] += int(number)
        for word, code in (("passing", 0.0), ("failing", 1.0)):
            told[word] += int((part["failed"].values == code).sum())
        self.rows[split] += len(columns["run"])
        if not self.columns:
            self._describe(columns)
        for name, values in columns.items():
            self._widen(name, values)

    def _describe(self, columns: Mapping[str, NDArray[Any]]) -> None:
        empty = {n: pd.Series(dtype=object if v.ndim > 1 else v.dtype) for n, v in columns.items()}
        self.columns = columns_of(self.ds, pd.DataFrame(empty), None)
        for name, one in self.columns.items():
            values = columns[name]
            kind = "text" if values.dtype.kind in "OUT" else str(values.dtype)
            lists = f"list of {' x '.join(map(str, values.shape[1:]))} " if values.ndim > 1 else ""
            one["dtype"] = f"{lists}{kind}"
            taken = {"feature": self.features, "target": self.targets}
            one["use"] = next((use for use, names in taken.items() if name in names), "label")
            if name in ABOUT and name not in self.features:
                one |= {"description": ABOUT[name], "role": "run"}

    def _widen(self, name: str, values: NDArray[Any]) -> None:
        if values.dtype.kind in "OUT":
            seen = self.texts.setdefault(name, set())
            if len(seen) <= WORDS:
                seen |= set(pd.unique(pd.Series(values.reshape(-1)).dropna()))
            return
        if values.dtype.kind in "mM":
            known = values[~np.isnat(values)]
        else:
            known = values[np.isfinite(values.astype(np.float64))]
        if known.size:
            low, high = self.ranges.get(name, (known.min(), known.max()))
            self.ranges[name] = [min(low, known.min()), max(high, known.max())]

    def text(self, said: Mapping[str, Any], split: Split, requirements: Sequence[str]) -> str:
        """The card, in Markdown, with the front matter that dataset hubs read.

        Parameters
        ----------
        said : mapping
            What the store says of itself.
        split : Split
            How the runs were dealt.
        requirements : sequence of str
            That decide which runs fail.
        """
        there = [name for name in SPLITS if self.rows[name]]
        if "design" in self.columns:
            where = "none is in two splits" if split.apart else "the same are in several splits"
            number = f"number of the design; {where}"
            self.columns["design"] |= {"description": number, "role": "run"}
        files = "".join(f"  - split: {n}\n    path: data/{n}.parquet\n" for n in there)
        what = "one row a step of a run" if self.steps else "one row a run"
        out = int((split.of < 0).sum())
        lines = [
            "---", MARK, "configs:", "- config_name: default", "  data_files:", files.rstrip(),
            "---", f"# Runs of {said.get('name') or 'a simulation sweep'}", "",
            f"Simulated runs, {what}. How they were split: {split.words}. Runs of one point differ "
            "by their random numbers alone and are never in two splits.", "",
            *self._counted(there), "", *self._listed(), "", "## Where it comes from", "",
            *(f"- {one}" for one in _origin(said)),
        ]  # fmt: skip
        if requirements:
            codes = ", ".join(f"`{text}`" for text in requirements)
            lines.append(f"- `failed` is 1 where one of these does not hold: {codes}")
        lines += [
            "- failing and errored runs are in; of errored runs targets and `failed` are empty",
            f"- {out:,} of {len(split.of):,} runs are not in: pending, skipped, or "
            f"({split.left_out:,}) left out to keep designs apart",
            "", "## Reading it", "", "```python",
            "import datasets, pandas as pd, polars as pl, xarray as xr  # any of these", "",
            'train = pd.read_parquet("data/train.parquet")',
            'train = pl.read_parquet("data/train.parquet")',
            'train = xr.open_zarr("data.zarr", group="train", consolidated=False)  # one row a run',
            'train = datasets.load_dataset(".", split="train")  # .with_format("torch")',
            "```", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def _counted(self, there: Sequence[str]) -> list[str]:
        kinds = [k for k in self.counts[there[0]] if any(self.counts[n][k] for n in there)]
        rows = [("split", *(["rows"] if self.steps else []), *kinds)]
        for n in there:
            steps = [f"{self.rows[n]:,}"] if self.steps else []
            rows.append((n, *steps, *(f"{self.counts[n][k]:,}" for k in kinds)))
        return _table(rows)

    def _listed(self) -> list[str]:
        rows: list[tuple[str, ...]] = [("column", "use", "units", "type", "range", "what it is")]
        for name, one in self.columns.items():
            units, about = one.get("units", ""), one.get("description", "")
            rows.append((f"`{name}`", one["use"], units, one["dtype"], self._range(name), about))
        return _table(rows)

    def _range(self, name: str) -> str:
        if name in self.texts:
            seen = sorted(self.texts[name])
            return ", ".join(seen) if len(seen) <= WORDS else f"more than {WORDS} texts"
        if name not in self.ranges:
            return ""
        return " to ".join(map(_shown, self.ranges[name]))


def _shown(value: Any) -> str:
    if value.dtype.kind in "mM":
        return str(pd.Series([value]).iloc[0])
    return f"{int(value)}" if value.dtype.kind in "biu" else f"{float(value):.6g}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a Markdown table, the first of which is its head."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _origin(said: Mapping[str, Any]) -> list[str]:
    """Seeds, code identity and packages, as the store tells."""
    if not said:
        return ["the Dataset does not say what made it"]
    lines = []
    if "entropy" in said:
        drawn = "random numbers follow from each run's parameter values"
        lines.append(f"{drawn}, entropy {said['entropy']}, streams {said.get('streams')}")
    if said.get("streams") == "common":
        lines.append(
            "**streams are common**: replicate k of every point met the same random numbers, also "
            "across splits, so the noise of the test was seen in training; for a test with noise "
            "of its own run the sweep with streams='independent'"
        )
    for number, one in enumerate(said.get("codes", ())):
        lines.append(f"code {number}: identity `{one['identity']['digest']}`")
    if said.get("environment"):
        lines.append(", ".join(f"{k} {v}" for k, v in said["environment"].items()))
    return lines or [f"declaration: {json.dumps(dict(said))[:200]}"]

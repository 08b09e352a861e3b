"""A sweep as data to learn from: splits, labels, episodes, and a card that says what it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED
from sweepkit.analysis.table import Table, table
from sweepkit.export import arrow, columns_of, described
from sweepkit.reading import declaration_of, open, requirements_of
from sweepkit.splits import SPLITS, Split, split_runs
from sweepkit.status import NAMES, Status

__all__ = ["training_set"]

SLAB = 50_000
"""Runs read and written at once."""

EPISODES = ("padded", "steps")
GIVEN = ("run", "design", "failed", "status")
"""Columns that every table has beside features and targets."""


def training_set(
    ds: xr.Dataset | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    features: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    split: str | Mapping[str, Any] = "design",
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    designs: str = "apart",
    episodes: str = "padded",
    seed: int = 0,
    requirements: Any = None,
) -> str:
    """Write a dataset that a training job reads: Parquet, Zarr, and a data card.

    The folder holds ``data/train.parquet`` (also ``validation``, ``test``), which
    ``datasets.load_dataset(folder)``, pandas and polars read; ``data.zarr`` with a group for each
    split, which xarray reads; and ``README.md``, the card: columns, units, ranges, counts, how it
    was split, and which code, seeds and packages made the runs. Failing and errored runs are in,
    labelled by ``failed`` (1, 0, or empty where the run errored) and ``status``; pending and
    skipped runs are not.

    Parameters
    ----------
    ds : Dataset or path
        An opened store, or any Dataset of outputs over parameters.
    path : path
        Of the folder to make. It must not hold anything, except an earlier training set.
    features, targets : sequence of str, optional
        Parameters and outputs. By default all parameters that are no replicates, and all outputs.
        A trace is an episode.
    split : {"design", "block", "scenario"} or mapping
        What is held out: designs at random; blocks of neighbouring designs; scenarios; or a region,
        as in ``{"length": (1.5, None), "law": ["linear"]}``, which is the test. Replicates of one
        point always stay together.
    shares : sequence of 3 floats
        Of train, validation and test, in groups.
    designs : {"apart", "shared"}
        With "apart" no design is in two splits, also by scenario or region; runs that would break
        it are left out, and the card says how many. With "shared" all designs meet all splits.
    episodes : {"padded", "steps"}
        Traces as arrays of one length, padded with NaN, with their lengths in ``<name>_length``;
        or one row a step, features repeated, with the column ``step``.
    seed : int
        Of the split.
    requirements : optional
        As for :func:`failed`.

    Returns
    -------
    str
        The folder.

    Raises
    ------
    ValueError
        If a name is neither parameter nor output, nothing is finished, groups are too few for
        the splits, or the folder holds something else.
    ImportError
        If pyarrow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> ds = xr.Dataset({"peak": ("gain", np.arange(10.0))}, coords={"gain": np.arange(10)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = training_set(ds, f"{folder}/set", targets=["peak"])
    ...     len(pd.read_parquet(f"{made}/data/train.parquet"))
    8
    """
    arrow()
    if episodes not in EPISODES:
        raise ValueError(f"episodes={episodes!r} is neither 'padded' nor 'steps'")
    opened = ds if isinstance(ds, xr.Dataset) else open(ds)
    judged = _judged(opened, requirements)
    t = table(opened, requirements=requirements, errors="apart" if judged else "fail")
    used = np.isin(t.outcome, (PASSED, FAILED, ERRORED))
    if not used.any():
        raise ValueError(f"none of {t.n} runs is finished, so there is nothing to learn from")
    chosen = _Chosen.of(t, features, targets)
    dealt = split_runs(t, used, split, shares, designs, seed)
    folder = _emptied(Path(path))
    made = _Writer(t, chosen, dealt, folder, episodes, judged)
    made.write()
    (folder / "README.md").write_text(made.card(declaration_of(ds), requirements), "utf-8")
    return str(folder)


def _judged(ds: xr.Dataset, requirements: Any) -> bool:
    """Whether something says which runs fail."""
    if "failed" in ds.data_vars:
        return True
    try:
        requirements_of(ds, requirements)
    except ValueError:
        if requirements is not None:
            raise
        return False
    return True


class _Chosen:
    """The columns asked for: parameters, numbers per run, and traces."""

    def __init__(self, features: list[str], targets: list[str], t: Table) -> None:
        self.features, self.targets = features, targets
        names = [*features, *targets]
        self.coords = [n for n in names if n in t.ds.coords]
        self.traces = [n for n in names if n in t.ds.data_vars and set(t.ds[n].dims) != set(t.dims)]
        self.scalars = [n for n in names if n not in self.coords and n not in self.traces]

    @classmethod
    def of(cls, t: Table, features: Any, targets: Any) -> _Chosen:
        own = {"status", "attempts", "code", "log_size", "error", "log", "failed", "duration"}
        lengths = {one.attrs.get("length") for one in t.ds.data_vars.values()}
        parameters = [
            str(n) for n, c in t.ds.coords.items() if c.dims and set(c.dims) & set(t.dims)
        ]
        outputs = [str(n) for n in t.ds.data_vars if n not in own and n not in lengths]
        roles = {name: t.ds[name].attrs.get("role") for name in parameters}
        if features is None:
            inside = ("replicate",) if any(roles.values()) else ()
            features = [
                n for n in parameters if roles[n] not in inside and n not in (targets or ())
            ]
        if targets is None:
            targets = [n for n in outputs if n not in features and t.ds[n].dtype.kind in "biuf"]
        known = [*parameters, *(str(n) for n in t.ds.data_vars)]
        for word, names in (("features", features), ("targets", targets)):
            if isinstance(names, str):
                raise TypeError(f"{word} is {names!r}; give a list of names")
            for name in names:
                if name not in known and name not in GIVEN:
                    raise ValueError(
                        f"{word} name {name!r}, which is neither a parameter nor an output; there "
                        f"are {', '.join(map(repr, known))}"
                    )
        both = set(features) & set(targets)
        if both:
            raise ValueError(f"{sorted(both)} are features and targets; give each once")
        taken = [[n for n in names if n not in GIVEN] for names in (features, targets)]
        made = cls(taken[0], taken[1], t)
        for name in made.traces:
            extra = [d for d in t.ds[name].dims if d not in t.dims]
            if t.ds[name].dtype.kind not in "biuf" or not extra:
                raise ValueError(f"output {name!r} is no number and no trace of numbers")
        return made


def _emptied(folder: Path) -> Path:
    """The folder, made or emptied of an earlier training set."""
    if folder.exists():
        inside = {one.name for one in folder.iterdir()} if folder.is_dir() else {folder.name}
        if not inside <= {"data", "data.zarr", "README.md"}:
            raise ValueError(
                f"{str(folder)!r} holds {', '.join(sorted(inside)[:4])}, which is no training set; "
                "give another path"
            )
        shutil.rmtree(folder)
    (folder / "data").mkdir(parents=True)
    return folder


class _Writer:
    """Writes the runs of each split, some at a time, and remembers what it wrote."""

    def __init__(
        self, t: Table, chosen: _Chosen, split: Split, folder: Path, episodes: str, judged: bool
    ) -> None:
        self.t, self.chosen, self.split, self.folder = t, chosen, split, folder
        self.steps = episodes == "steps" and bool(chosen.traces)
        self.judged = judged
        self.columns: dict[str, Any] = {}
        self.ranges: dict[str, list[float]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.rows: dict[str, int] = dict.fromkeys(SPLITS, 0)

    def write(self) -> None:
        """All splits that have runs."""
        _, parquet = arrow()
        writers: dict[str, Any] = {}
        try:
            for slab in self._slabs():
                part = self._read(slab)
                for number, name in enumerate(SPLITS):
                    mine = np.flatnonzero(self.split.of[slab] == number)
                    if len(mine):
                        self._add(name, part.isel(row=mine), writers, parquet)
        finally:
            for writer in writers.values():
                writer.close()

    def _slabs(self) -> Iterator[NDArray[np.intp]]:
        """Flat positions of the runs, in stretches along the first run dim."""
        each = self.t.n // self.t.shape[0] if self.t.shape else 1
        step = max(SLAB // max(each, 1), 1) * each
        for first in range(0, self.t.n, step):
            slab = np.arange(first, min(first + step, self.t.n))
            if (self.split.of[slab] >= 0).any():
                yield slab

    def _read(self, slab: NDArray[np.intp]) -> xr.Dataset:
        """Columns of some runs along the dim ``row``; slabs are whole along all dims but one."""
        t, ds = self.t, self.t.ds
        names = [*self.chosen.coords, *self.chosen.scalars, *self.chosen.traces]
        said = [ds[n].attrs.get("length") for n in self.chosen.traces]
        lengths = [one for one in said if one in ds]
        taken = ds[list(dict.fromkeys([*names, *lengths]))]
        if t.shape:
            each = t.n // t.shape[0]
            taken = taken.isel({t.dims[0]: slice(slab[0] // each, slab[-1] // each + 1)})
        taken = taken.load()
        size = {d: taken.sizes[d] for d in t.dims}
        data: dict[str, Any] = {
            "run": ("row", slab),
            "design": ("row", self.split.design[slab]),
            "failed": ("row", _label(t.outcome[slab], self.judged)),
            "status": ("row", self._status(slab)),
        }
        for name in map(str, dict.fromkeys([*names, *lengths])):
            one = taken[name]
            own = [str(d) for d in one.dims if d not in t.dims]
            lacking = {d: n for d, n in size.items() if d not in one.dims}
            wide = one.reset_coords(drop=True).expand_dims(lacking)
            values = wide.transpose(*t.dims, *own).values
            data[name] = (("row", *own), values.reshape(len(slab), *values.shape[len(size) :]))
        return xr.Dataset({n: (d, v, self._attrs(n)) for n, (d, v) in data.items()})

    def _attrs(self, name: str) -> dict[str, Any]:
        kept = self.t.ds[name].attrs if name in self.t.ds.variables else {}
        return {k: v for k, v in kept.items() if k in ("units", "long_name", "role", "length")}

    def _status(self, slab: NDArray[np.intp]) -> NDArray[np.int8]:
        ds = self.t.ds
        if "status" not in ds:
            return np.full(len(slab), int(Status.DONE), dtype=np.int8)
        codes = ds["status"].transpose(*self.t.dims).values.reshape(-1)
        return codes[slab].astype(np.int8)

    def _add(self, name: str, part: xr.Dataset, writers: dict[str, Any], parquet: Any) -> None:
        pyarrow, _ = arrow()
        for kind in part["status"].values:
            told = self.counts.setdefault(name, {})
            told[NAMES[int(kind)]] = told.get(NAMES[int(kind)], 0) + 1
        for label, code in (("passing", 0.0), ("failing", 1.0)):
            number = int((part["failed"].values == code).sum())
            self.counts[name][label] = self.counts[name].get(label, 0) + number
        frame = self._by_step(part) if self.steps else self._by_run(part)
        self._remember(frame)
        rows = pyarrow.Table.from_pandas(frame, preserve_index=False)
        if name not in writers:
            schema = described(rows.schema, self.columns, {"split": name})
            writers[name] = parquet.ParquetWriter(
                self.folder / "data" / f"{name}.parquet", schema, compression="zstd"
            )
        writers[name].write_table(rows.cast(writers[name].schema))
        self._to_zarr(name, part)
        self.rows[name] += len(frame)

    def _by_run(self, part: xr.Dataset) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for name, one in part.items():
            values = one.values
            if name == "status":
                columns["status"] = np.array(NAMES, dtype=object)[values]
            elif values.ndim == 1:
                columns[str(name)] = values
            else:
                columns[str(name)] = list(values.reshape(len(values), -1))
        return pd.DataFrame(columns)

    def _by_step(self, part: xr.Dataset) -> pd.DataFrame:
        """One row a step: all traces share their own dim, as far as each run reaches."""
        traces = self.chosen.traces
        lengths = np.zeros(part.sizes["row"], dtype=np.int64)
        for name in traces:
            said = part[name].attrs.get("length")
            own = part[name].sizes[part[name].dims[1]]
            reach = part[said].values if said in part else np.full(len(lengths), own)
            lengths = np.maximum(lengths, np.nan_to_num(np.asarray(reach, float)).astype(np.int64))
        of = np.repeat(np.arange(len(lengths)), lengths)
        at = np.arange(len(of)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        frame = self._by_run(part.drop_vars(traces)).iloc[of].reset_index(drop=True)
        frame.insert(1, "step", at)
        for name in traces:
            values = part[name].values.reshape(part.sizes["row"], part[name].shape[1], -1)
            reaches = at < values.shape[1]
            column = np.full(len(of), np.nan)
            column[reaches] = values[of[reaches], at[reaches], 0]
            frame[name] = column
        return frame

    def _remember(self, frame: pd.DataFrame) -> None:
        """What columns there are, and their ranges."""
        if not self.columns:
            self.columns = columns_of(self.t.ds, frame, None)
            words = {
                "run": "number of the run, in C order over the sweep's dims",
                "design": "number of the design; none is in two splits"
                if self.split.left_out or "all designs" not in self.split.words
                else "number of the design",
                "step": "which entry of the traces",
            }
            for name, one in self.columns.items():
                one["use"] = (
                    "feature"
                    if name in self.chosen.features
                    else "target"
                    if name in self.chosen.targets
                    else "label"
                )
                if name in words:
                    one |= {"description": words[name], "role": "run"}
        for name in frame.columns:
            values = frame[name]
            if values.dtype.kind not in "biuf":
                if values.dtype != object or not isinstance(values.iloc[0], np.ndarray):
                    continue
                numbers = np.concatenate(values.tolist()).astype(float)
            else:
                numbers = values.to_numpy().astype(float)
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers):
                low, high = self.ranges.get(name, [np.inf, -np.inf])
                self.ranges[name] = [
                    min(low, float(numbers.min())),
                    max(high, float(numbers.max())),
                ]

    def _to_zarr(self, name: str, part: xr.Dataset) -> None:
        store, there = self.folder / "data.zarr", self.rows[name] > 0
        part = part.drop_encoding()
        for key, one in part.variables.items():
            if one.dtype.kind in "OU":
                part[key] = one.astype(np.dtypes.StringDType())
        codes = {"flag_values": list(range(len(NAMES))), "flag_meanings": " ".join(NAMES)}
        part["status"].attrs = codes
        if there:
            part.to_zarr(store, group=name, append_dim="row", consolidated=False)
            return
        chunks = {str(k): {"chunks": (4096, *one.shape[1:])} for k, one in part.variables.items()}
        part.to_zarr(store, group=name, mode="w", encoding=chunks, consolidated=False)

    def card(self, said: Mapping[str, Any], requirements: Any) -> str:
        """The data card, in Markdown, with the front matter that dataset hubs read."""
        there = [name for name in SPLITS if self.rows[name]]
        files = "".join(f"  - split: {n}\n    path: data/{n}.parquet\n" for n in there)
        lines = [
            "---",
            "configs:",
            "- config_name: default",
            "  data_files:",
            files.rstrip(),
            "---",
        ]
        title = said.get("name") or "simulation sweep"
        what = "one row a step of a run" if self.steps else "one row a run"
        lines += [
            f"# Runs of {title}",
            "",
            f"Simulated runs, {what}. How they were split: "
            f"{self.split.words}. Runs of one point differ by their random numbers alone and "
            "are never in two splits.",
            "",
            *self._counts(there),
            "",
            *self._columns(),
        ]
        lines += ["", "## Where it comes from", ""]
        lines += [f"- {one}" for one in _origin(said)]
        try:
            wanted = [one.text for one in requirements_of(self.t.ds, requirements)]
        except ValueError:
            wanted = []
        if wanted:
            lines.append(f"- `failed` is 1 where one of these does not hold: {_codes(wanted)}")
        lines += [
            "- failing and errored runs are in; of errored runs targets and `failed` are empty",
            f"- {int((self.split.of < 0).sum()):,} of {self.t.n:,} runs are not in: pending, "
            f"skipped, or ({self.split.left_out:,}) left out to keep designs apart",
            "", "## Reading it", "", "```python", "import pandas as pd, xarray as xr",
            'train = pd.read_parquet("data/train.parquet")',
            'train = xr.open_zarr("data.zarr", group="train", consolidated=False)',
            'datasets.load_dataset("parquet", data_files={"train": "data/train.parquet"})',
            "```", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def _counts(self, there: Sequence[str]) -> list[str]:
        kinds = list(dict.fromkeys(k for name in there for k in self.counts[name]))
        head = "| split | rows | " + " | ".join(kinds) + " |"
        rows = [
            f"| {n} | {self.rows[n]:,} | "
            + " | ".join(f"{self.counts[n].get(k, 0):,}" for k in kinds)
            + " |"
            for n in there
        ]
        return [head, "| --- " * (len(kinds) + 2) + "|", *rows]

    def _columns(self) -> list[str]:
        rows = []
        for name, one in self.columns.items():
            low, high = self.ranges.get(name, ("", ""))
            span = f"{low:.6g} to {high:.6g}" if name in self.ranges else ""
            cells = (f"`{name}`", one["use"], one.get("units", ""), one["dtype"], span)
            rows.append("| " + " | ".join(map(_cell, (*cells, one.get("description", "")))) + " |")
        return ["| column | use | units | type | range | what it is |", "| --- " * 6 + "|", *rows]


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _codes(texts: Sequence[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _label(outcome: NDArray[np.int8], judged: bool) -> NDArray[np.float64]:
    label = np.full(len(outcome), np.nan)
    if judged:
        label[outcome == PASSED], label[outcome == FAILED] = 0.0, 1.0
    return label


def _origin(said: Mapping[str, Any]) -> list[str]:
    """Seeds, code identity and packages, as the store tells."""
    if not said:
        return ["the Dataset does not say what made it"]
    lines = []
    if "entropy" in said:
        drawn = "random numbers follow from each run's parameter values"
        lines.append(f"{drawn}, entropy {said['entropy']}, streams {said.get('streams')}")
    for number, one in enumerate(said.get("codes", ())):
        lines.append(f"code {number}: identity `{one['identity']['digest']}`")
    if said.get("environment"):
        lines.append(", ".join(f"{k} {v}" for k, v in said["environment"].items()))
    return lines or [f"declaration: {json.dumps(dict(said))[:200]}"]

"""A sweep as data to learn from: splits, labels, episodes, and a card that says what it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED
from sweepkit.analysis.table import Table, table
from sweepkit.datacard import MARK, DataCard
from sweepkit.export import arrow, described, in_parts
from sweepkit.reading import declaration_of, open
from sweepkit.rows import boxes, by_step, schema_of, to_arrow
from sweepkit.splits import SPLITS, Split, split_runs
from sweepkit.stages import numbers
from sweepkit.status import NAMES, Status
from sweepkit.verdicts import requirements_of

__all__ = ["training_set"]

SLAB, BYTES = 50_000, 64e6
"""Runs, and bytes of their columns, that are read and written at once."""

EPISODES = ("padded", "steps")
GIVEN = ("run", "design", "failed", "status")
"""Columns that every table has beside features and targets."""

REFINED = ("stage", "volume")
"""Columns that runs of a refined sweep have too: labels, and no parameters."""


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
    skipped runs are not. Of a refined sweep ``stage`` and ``volume`` are in: refined runs crowd
    where designs fail, and ``volume`` weighs them. A sweep that has grown is split anew.

    Parameters
    ----------
    ds : Dataset or path
        An opened store, or any Dataset of outputs over parameters; of a path, all stages.
    path : path
        Of the folder to make. It must not hold anything, except an earlier training set, which
        is replaced once the new one is whole.
    features, targets : sequence of str, optional
        Parameters and outputs. By default all parameters that are no replicates, and all outputs.
        A trace is an episode. Complex numbers are in as ``<name>_real`` and ``<name>_imag``.
    split : {"design", "block", "scenario"}, name of a parameter, or mapping
        What is held out: designs at random; blocks of neighbouring designs; scenarios; the values
        of one parameter, as ``"road"``; or a region, as in ``{"length": (1.5, None), "law":
        ["linear"]}``, which is the test. Replicates of one point always stay together.
    shares : sequence of 3 floats
        Of train, validation and test, in groups; they sum to 1.
    designs : {"apart", "shared"}
        With "apart" no design is in two splits, also by scenario or region; runs that would break
        it are left out, and the card says how many. With "shared" all designs meet all splits.
    episodes : {"padded", "steps"}
        Traces as arrays of one length, padded with NaN, with their lengths in ``<name>_length``,
        whole numbers, 0 where a run errored;
        or one row a step in the Parquet files, features repeated, with the column ``step``. A run
        without steps, as one that errored, keeps one row at step -1.
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
        the splits, a region would part the replicates of a point, traces of other dims are asked
        for by steps, or the folder holds something else.
    ImportError
        If pyarrow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> ds = xr.Dataset({"peak": ("gain", np.arange(10.0))}, coords={"gain": np.arange(10)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = training_set(ds, f"{folder}/set", targets=["peak"])
    ...     len(pd.read_parquet(f"{made}/data/train.parquet"))
    8
    """
    arrow()
    if episodes not in EPISODES:
        raise ValueError(f"episodes={episodes!r} is neither 'padded' nor 'steps'")
    opened = ds if isinstance(ds, xr.Dataset) else open(ds, stages=bool(numbers(os.fspath(ds))))
    wanted = _wanted(opened, requirements)
    judged = wanted is not None
    t = table(opened, requirements=requirements, errors="apart" if judged else "fail")
    t = replace(t, ds=in_parts(t.ds))
    used = np.isin(t.outcome, (PASSED, FAILED, ERRORED))
    if not used.any():
        raise ValueError(f"none of {t.n} runs is finished, so there is nothing to learn from")
    chosen = _Chosen.of(t, features, targets, steps=episodes == "steps")
    dealt = split_runs(t, used, split, shares, designs, seed)
    target = Path(path)
    with _made(target) as folder:
        made = _Writer(t, chosen, dealt, folder, judged)
        made.write()
        text = made.card.text(declaration_of(ds), dealt, wanted or [])
        (folder / "README.md").write_text(text, encoding="utf-8")
    return str(target)


def _wanted(ds: xr.Dataset, requirements: Any) -> list[str] | None:
    """The requirements that say which runs fail; none if a variable does, None if nothing."""
    if requirements is None and "failed" in ds.data_vars:
        return []
    try:
        return [one.text for one in requirements_of(ds, requirements)]
    except ValueError:
        if requirements is not None:
            raise
        return None


class _Chosen:
    """The columns asked for: parameters, values per run, and traces."""

    def __init__(self, features: list[str], targets: list[str], t: Table, steps: bool) -> None:
        self.features, self.targets = features, targets
        names = [n for n in dict.fromkeys([*features, *targets]) if n not in GIVEN]
        self.coords = [n for n in names if n in t.ds.coords]
        self.coords += [n for n in REFINED if n in t.ds.coords and n not in names]
        data = [n for n in names if n in t.ds.data_vars]
        self.traces = [n for n in data if set(t.ds[n].dims) != set(t.dims)]
        self.scalars = [n for n in data if n not in self.traces]
        along = {n: [str(d) for d in t.ds[n].dims if d not in t.dims][:1] for n in self.traces}
        for name, own in along.items():
            if t.ds[name].dtype.kind not in "biuf" or not own:
                raise ValueError(f"{name!r} is no value per run and no trace of numbers")
        if steps and len({*map(tuple, along.values())}) > 1:
            said = ", ".join(f"{n!r} along {own[0]!r}" for n, own in along.items())
            raise ValueError(
                f"{said} have no steps in common; give targets= along one of these dims, or "
                "episodes='padded'"
            )
        self.steps = steps and bool(self.traces)
        lengths = dict.fromkeys(t.ds[n].attrs.get("length") for n in self.traces)
        self.lengths = [str(one) for one in lengths if one in t.ds]

    @classmethod
    def of(cls, t: Table, features: Any, targets: Any, *, steps: bool) -> _Chosen:
        own = {"status", "attempts", "code", "log_size", "error", "log", "failed", "duration"}
        lengths = {one.attrs.get("length") for one in t.ds.data_vars.values()}
        parameters = [
            str(n) for n, c in t.ds.coords.items() if set(c.dims) & set(t.dims) and n not in REFINED
        ]
        outputs = [str(n) for n in t.ds.data_vars if n not in own and n not in lengths]
        roles = {name: t.ds[name].attrs.get("role") for name in parameters}
        if features is None:
            inside = ("replicate",) if any(roles.values()) else ()
            features = [
                n for n in parameters if roles[n] not in inside and n not in (targets or ())
            ]
        if targets is None:
            targets = [n for n in outputs if n not in features]
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
        return cls(list(features), list(targets), t, steps)


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """A folder that takes the place of an earlier training set once it is whole."""
    if target.exists() and not _ours(target):
        inside = sorted(one.name for one in target.iterdir()) if target.is_dir() else ["a file"]
        raise ValueError(
            f"{str(target)!r} holds {', '.join(inside[:4])}, which is no training set; give "
            "another path"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part, old = (target.with_name(f".{target.name}.{os.getpid()}.{w}") for w in ("part", "old"))
    try:
        (part / "data").mkdir(parents=True)
        yield part
        if target.exists():
            target.rename(old)
        part.rename(target)
    finally:
        for one in (part, old):
            shutil.rmtree(one, ignore_errors=True)


def _ours(target: Path) -> bool:
    """Whether a folder is empty, or holds what this module has written and nothing else."""
    if not target.is_dir():
        return False
    inside = {one.name for one in target.iterdir()}
    if not inside:
        return True
    card, data = target / "README.md", target / "data"
    if not inside <= {"data", "data.zarr", "README.md"} or not (card.is_file() and data.is_dir()):
        return False
    known = {f"{name}.parquet" for name in SPLITS}
    ours = MARK in card.read_text(encoding="utf-8", errors="replace")
    return ours and {one.name for one in data.iterdir()} <= known


class _Writer:
    """Writes the runs of each split, some at a time, and tells the card what it wrote."""

    def __init__(self, t: Table, chosen: _Chosen, split: Split, folder: Path, judged: bool) -> None:
        self.t, self.chosen, self.split, self.folder = t, chosen, split, folder
        self.judged = judged
        self.card = DataCard(t.ds, chosen.features, chosen.targets, chosen.steps)
        self.zarr: set[str] = set()
        self.status = np.full(t.shape, int(Status.DONE), dtype=np.int8)
        if "status" in t.ds:
            self.status = t.ds["status"].transpose(*t.dims).values.astype(np.int8)

    def write(self) -> None:
        """All splits that have runs."""
        _, parquet = arrow()
        writers: dict[str, Any] = {}
        flat = np.arange(self.t.n).reshape(self.t.shape)
        try:
            for box in boxes(self.t.shape, self._most()):
                runs = flat[box].reshape(-1)
                if (self.split.of[runs] < 0).all():
                    continue
                part = self._read(box, runs)
                for number, name in enumerate(SPLITS):
                    mine = np.flatnonzero(self.split.of[runs] == number)
                    if len(mine):
                        self._add(name, part.isel(row=mine), writers, parquet)
        finally:
            for writer in writers.values():
                writer.close()

    def _most(self) -> int:
        """How many runs are read at once."""
        taken = [*self.chosen.coords, *self.chosen.scalars, *self.chosen.traces]
        sizes = [self.t.ds[one].sizes for one in taken]
        own = [np.prod([n for d, n in each.items() if d not in self.t.dims]) for each in sizes]
        return int(np.clip(BYTES / (8 * sum(own) + 64), 1, SLAB))

    def _read(self, box: tuple[slice, ...], runs: NDArray[np.intp]) -> xr.Dataset:
        """Columns of the runs in a box of the grid, along the dim ``row``."""
        t, chosen = self.t, self.chosen
        names = [*chosen.coords, *chosen.scalars, *chosen.traces, *chosen.lengths]
        at = dict(zip(t.dims, box, strict=True))
        taken = t.ds[list(dict.fromkeys(names))].isel(at, missing_dims="ignore").load()
        size = {d: one.stop - one.start for d, one in at.items()}
        data: dict[str, Any] = {
            "run": ("row", runs),
            "design": ("row", self.split.design[runs]),
            "failed": ("row", _label(t.outcome[runs], self.judged)),
            "status": ("row", self.status[box].reshape(-1)),
        }
        for name in map(str, dict.fromkeys(names)):
            one = taken[name]
            own = [str(d) for d in one.dims if d not in t.dims]
            lacking = {d: n for d, n in size.items() if d not in one.dims}
            wide = one.reset_coords(drop=True).expand_dims(lacking)
            values = wide.transpose(*t.dims, *own).values
            if name in chosen.lengths:  # NaN where unfinished; a count of steps all the same
                values = np.nan_to_num(values.astype(np.float64)).astype(np.int64)
            data[name] = (("row", *own), values.reshape(len(runs), *values.shape[len(size) :]))
        return xr.Dataset({n: (d, v, self._attrs(n)) for n, (d, v) in data.items()})

    def _attrs(self, name: str) -> dict[str, Any]:
        kept = self.t.ds[name].attrs if name in self.t.ds.variables else {}
        return {k: v for k, v in kept.items() if k in ("units", "long_name", "role", "length")}

    def _add(self, name: str, part: xr.Dataset, writers: dict[str, Any], parquet: Any) -> None:
        chosen = self.chosen
        if chosen.steps:
            columns = by_step(part, chosen.traces)
        else:
            columns = {str(n): one.values for n, one in part.items()}
        bad = columns["status"] != Status.DONE
        for text in [n for n in chosen.scalars if columns[n].dtype.kind in "OUT"]:
            columns[text] = columns[text].astype(object)
            columns[text][bad] = None
        columns["status"] = np.array(NAMES, dtype=object)[columns["status"]]
        self.card.add(name, part, columns)
        if name not in writers:
            said = {"split": name, "split_by": self.split.words}
            schema = described(schema_of(columns), self.card.columns, said)
            writers[name] = parquet.ParquetWriter(
                self.folder / "data" / f"{name}.parquet", schema, compression="zstd"
            )
        writers[name].write_table(to_arrow(columns, writers[name].schema))
        self._to_zarr(name, part)

    def _to_zarr(self, name: str, part: xr.Dataset) -> None:
        store = self.folder / "data.zarr"
        part = part.drop_encoding()
        for key, one in part.variables.items():
            if one.dtype.kind in "OU":
                part[key] = one.astype(np.dtypes.StringDType())
        codes = {"flag_values": list(range(len(NAMES))), "flag_meanings": " ".join(NAMES)}
        part["status"].attrs = codes
        if name in self.zarr:
            part.to_zarr(store, group=name, append_dim="row", consolidated=False)
            return
        self.zarr.add(name)
        chunks = {str(k): {"chunks": (4096, *one.shape[1:])} for k, one in part.variables.items()}
        part.to_zarr(store, group=name, mode="w", encoding=chunks, consolidated=False)


def _label(outcome: NDArray[np.int8], judged: bool) -> NDArray[np.float64]:
    label = np.full(len(outcome), np.nan)
    if judged:
        label[outcome == PASSED], label[outcome == FAILED] = 0.0, 1.0
    return label

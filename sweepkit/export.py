"""Runs handed on: a tidy table with units, one row a run, or everything as NetCDF."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sweepkit.format1 import ATTRIBUTE, encoding_attrs
from sweepkit.places import Given, where
from sweepkit.reading import open, run_dims_of, runs
from sweepkit.stages import numbers
from sweepkit.verdicts import failed, requirements_of

__all__ = ["columns_of", "export", "in_parts"]

OWN = {
    "status": "what became of the run",
    "failed": "1: a requirement does not hold, 0: all hold, empty: unknown",
    "duration": "how long the run took",
    "attempts": "how often it was tried",
    "code": "number of the code version that made it",
    "log_size": "characters of its log",
    "error": "why it ended, in one line",
    "log": "what it printed, with warnings and traceback",
    "stage": "0 is the grid, others refine it",
    "volume": "share of the parameter space that the run stands for",
}


def export(
    ds: xr.Dataset | Given,
    path: str | os.PathLike[str],
    *,
    requirements: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Write runs to a file that other tools read, with units beside the numbers.

    Parameters
    ----------
    ds : Dataset or path
        An opened store, or any Dataset of outputs over parameters; of a path, all stages.
    path : path
        By its ending: ``.parquet`` (units in the metadata of each field and, as JSON, of the
        schema under ``sweepkit``), ``.csv`` (units in ``<path>-metadata.json``, as CSV on the
        Web has it), ``.json`` (a Table Schema and the rows) or ``.nc`` (the Dataset itself, with
        traces; needs h5netcdf or netCDF4). The first three hold one row a run, as :func:`runs`
        gives them, without traces. Complex numbers become ``<name>_real`` and ``<name>_imag``;
        in JSON, NaN is null and what is infinite ``"INF"`` or ``"-INF"``. A file that is there
        is replaced once the new one is whole.
    requirements : optional
        As for :func:`failed`; by default those that the Dataset carries.
    storage_options : mapping, optional
        As of :func:`sweepkit.open`, for a URL.

    Returns
    -------
    str
        The path.

    Raises
    ------
    ValueError
        If the ending is none of these, or netCDF cannot hold a text.
    FileNotFoundError
        If the folder is not there.
    ImportError
        If what writes the format is not installed.

    Examples
    --------
    >>> import tempfile
    >>> coords = {"gain": ("gain", [1, 2], {"units": "N"})}
    >>> ds = xr.Dataset({"peak": ("gain", [0.5, 0.7])}, coords=coords)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export(ds, f"{folder}/runs.csv")
    ...     pd.read_csv(written)["peak"].tolist()
    [0.5, 0.7]
    """
    target = Path(path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise ValueError(
            f"{target.name!r} ends in none of {', '.join(_WRITERS)}; the ending says the format"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"folder {str(target.parent)!r} is not there; make it first")
    if not isinstance(ds, xr.Dataset):
        here = where(ds, storage_options)
        ds = open(here, stages=bool(numbers(here)))
    write(ds, target, requirements)
    return str(target)


def in_parts(ds: xr.Dataset) -> xr.Dataset:
    """The Dataset with complex variables as their real and imaginary parts."""
    for name in [str(n) for n, one in ds.data_vars.items() if one.dtype.kind == "c"]:
        whole = ds[name]
        parts = {f"{name}_real": whole.real, f"{name}_imag": whole.imag}
        told = {n: one.assign_attrs(whole.attrs) for n, one in parts.items()}
        ds = ds.drop_vars(name).assign(told)
    return ds


def columns_of(ds: xr.Dataset, table: pd.DataFrame, requirements: Any = None) -> dict[str, Any]:
    """What each column of a table of runs is: role, units, and a sentence, where known."""
    told: dict[str, Any] = {}
    for name in map(str, table.columns):
        of = name.partition("[")[0]  # a component of a vector, as x0[1]
        attrs = ds[of].attrs if of in ds.variables else {}
        said: dict[str, Any] = {"dtype": str(table[name].dtype)}
        if of in ds.coords and name not in OWN:
            said["role"] = str(attrs.get("role", "parameter"))
        else:
            said["role"] = "run" if name in OWN else "output"
        units = attrs.get("units") or ("s" if name == "duration" else "")
        if units:
            said["units"] = str(units)
        about = attrs.get("long_name") or OWN.get(name)
        if about:
            said["description"] = str(about)
        told[name] = said
    if "failed" in told:
        try:
            wanted = [one.text for one in requirements_of(ds, requirements)]
        except ValueError:  # a Dataset that has its own variable 'failed'
            wanted = []
        told["failed"]["requirements"] = wanted
    return told


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of the target once it is whole."""
    part = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "Parquet is written by pyarrow, which is not installed: pip install 'sweepkit[export]'"
        ) from None
    return pyarrow, pyarrow.parquet


def described(schema: Any, columns: dict[str, Any], about: dict[str, Any]) -> Any:
    """An Arrow schema with what is known of each column, and of the whole, in its metadata."""
    fields = []
    for field in schema:
        said = columns[field.name].items()
        fields.append(
            field.with_metadata({k: v if isinstance(v, str) else json.dumps(v) for k, v in said})
        )
    kept = dict(schema.metadata or {})
    kept[b"sweepkit"] = json.dumps({"columns": columns, **about}).encode()
    return arrow()[0].schema(fields, metadata=kept)


def _rows(ds: xr.Dataset, requirements: Any) -> tuple[pd.DataFrame, xr.Dataset]:
    """One row a run, complex numbers in parts, and the Dataset in which the columns are."""
    rows = runs(ds, requirements)
    columns: dict[str, Any] = {}
    for name in rows.columns:
        values = rows[name].to_numpy()
        if values.dtype.kind == "c":
            columns |= {f"{name}_real": values.real, f"{name}_imag": values.imag}
        else:
            columns[name] = rows[name]
    return pd.DataFrame(columns, index=rows.index), in_parts(ds)


def _to_parquet(ds: xr.Dataset, target: Path, requirements: Any) -> None:
    pyarrow, parquet = arrow()
    rows, ds = _rows(ds, requirements)
    table = pyarrow.Table.from_pandas(rows, preserve_index=False)
    schema = described(table.schema, columns_of(ds, rows, requirements), _about(ds))
    with replacing(target) as part:
        parquet.write_table(table.cast(schema), part, compression="zstd")


def _to_csv(ds: xr.Dataset, target: Path, requirements: Any) -> None:
    rows, ds = _rows(ds, requirements)
    columns = columns_of(ds, rows, requirements)
    beside = target.with_name(f"{target.name}-metadata.json")
    with replacing(target) as part, replacing(beside) as said:
        rows.to_csv(part, index=False)
        csvw = {
            "@context": "http://www.w3.org/ns/csvw",
            "url": target.name,
            "tableSchema": {"columns": [{"name": name, **one} for name, one in columns.items()]},
            "sweepkit": _about(ds),
        }
        said.write_text(json.dumps(csvw, indent=1, ensure_ascii=False), encoding="utf-8")


def _to_json(ds: xr.Dataset, target: Path, requirements: Any) -> None:
    rows, ds = _rows(ds, requirements)
    columns = columns_of(ds, rows, requirements)
    fields = [{"name": name, **one} for name, one in columns.items()]
    data = ", ".join(_objects(rows))
    head = json.dumps({"schema": {"fields": fields}, "sweepkit": _about(ds)}, ensure_ascii=False)
    with replacing(target) as part:
        part.write_text(f'{head[:-1]}, "data": [{data}]}}\n', encoding="utf-8")


def _objects(rows: pd.DataFrame) -> Iterator[str]:
    """Rows as JSON, numbers to their last digit; NaN is null, infinity what Table Schema has."""
    plain = {}
    for name in rows.columns:
        column = rows[name]
        if column.dtype.kind == "f":
            ends = np.isposinf(column), np.isneginf(column)
            column = column.astype(object).where(~np.isnan(column), None)
            column[ends[0]], column[ends[1]] = "INF", "-INF"
        elif column.dtype.kind not in "biu":
            table = column.to_frame().to_json(orient="values", date_format="iso", date_unit="ns")
            column = pd.Series([one for (one,) in json.loads(table)], dtype=object)
        plain[name] = column.astype(object).tolist()
    for row in zip(*plain.values(), strict=True):
        yield json.dumps(dict(zip(plain, row, strict=True)), ensure_ascii=False, allow_nan=False)


def _to_netcdf(ds: xr.Dataset, target: Path, requirements: Any) -> None:
    try:
        ds = ds.assign(failed=failed(ds, requirements))
    except ValueError:
        if requirements is not None:
            raise
    ds, encoded = in_parts(ds).drop_encoding(), {}
    for name, one in ds.variables.items():
        if one.dtype == np.float16:  # which netCDF has not
            ds[name] = one.astype(np.float32)
        units = encoding_attrs(one.dtype.name).get("units")
        if units is not None:  # what xarray infers may overflow
            encoded[str(name)] = {"dtype": "int64", "units": units}
        attrs = {k: v for k, v in one.attrs.items() if k not in ("flag_values", "flag_meanings")}
        if one.dtype.kind == "O":
            _check_zeros(str(name), one)
            ds[name] = one.astype(str)
        if name == "failed":
            ds[name].attrs = {**attrs, "requirements": "; ".join(attrs.get("requirements", ()))}
    with replacing(target) as part:
        ds.to_netcdf(part, encoding=encoded)


def _check_zeros(name: str, texts: xr.Variable) -> None:
    """Refuse what netCDF would cut short: it ends a text at its first zero."""
    for text in texts.values.flat:
        if "\0" in str(text):
            raise ValueError(
                f"{name!r} holds {text!r}, which netCDF would cut at the zero; export to .parquet, "
                f"or leave it out, as with ds.drop_vars({name!r})"
            )


def _about(ds: xr.Dataset) -> dict[str, Any]:
    """The declaration that the Dataset carries, and what its runs are."""
    text = ds.attrs.get(ATTRIBUTE)
    dims = {dim: ds.sizes[dim] for dim in run_dims_of(ds)}
    return {"dims": dims, "declaration": json.loads(text) if text else None}


_WRITERS: dict[str, Callable[[xr.Dataset, Path, Any], None]] = {
    ".parquet": _to_parquet,
    ".csv": _to_csv,
    ".json": _to_json,
    ".nc": _to_netcdf,
}

"""Results fitted to the store: typed as it has them, or found not to fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.casts import Misfit, cast_exactly
from sweepkit.columns import Column
from sweepkit.format1 import Layout, Variable, length_variable
from sweepkit.outputs import Output
from sweepkit.parcels import Parcel
from sweepkit.status import Status

__all__ = ["Fit", "Rows", "learnt_outputs", "rows_of"]

Rows: TypeAlias = tuple[NDArray[np.intp] | None, NDArray[Any]]
"""Rows of a batch, None for all, and a value for each."""

Piece: TypeAlias = tuple[NDArray[np.intp], NDArray[Any]]
Widen: TypeAlias = Callable[[Variable, Column, Sequence[Piece]], Variable]


def learnt_outputs(
    columns: Mapping[str, list[Column]], declared: Mapping[str, Output]
) -> tuple[Variable, ...]:
    """The variables to be stored, from the first results and what was declared."""
    made: list[Variable] = []
    for name, groups in columns.items():
        variable = learnt(name, groups[0], declared.get(name))
        made.append(variable)
        if variable.pad is not None:
            made.append(length_variable(variable))
    return tuple(made)


class Fit:
    """The results of one batch, on their way into the store.

    Parameters
    ----------
    layout : Layout
        Of the store.
    status : array of int8, shape (n,)
        Of the runs; those that do not fit become invalid here.
    errors : mapping of int to str
        Error by row; what does not fit is added here, both sides named.
    widen : callable
        Given a variable, a column of another data type, and what is not yet stored of this
        batch: stores the variable in a wider data type if it can, and returns it as it is then.
    unpacked : callable
        Gives the value that a worker has written itself, where it is not as the store wants it.
    first : str
        The run that told the store its outputs, in words.

    Attributes
    ----------
    parcels : mapping of str to (rows, array of Parcel)
        What is to be delivered as workers have written it, by variable.
    """

    def __init__(
        self,
        layout: Layout,
        status: NDArray[np.int8],
        errors: dict[int, str],
        widen: Widen,
        unpacked: Callable[[Parcel], NDArray[Any]],
        first: str = "the first run",
    ) -> None:
        self._first = first
        self.status = status
        self.errors = errors
        self._widen = widen
        self._coords = layout.coords
        self._known = {v.name: v for v in layout.outputs if "derived" not in v.attrs}
        self._whole: dict[str, NDArray[Any]] = {}
        self._parts: dict[str, list[Piece]] = {}
        self._unpacked = unpacked
        self.parcels: dict[str, Piece] = {}

    def values(self, columns: Mapping[str, list[Column]]) -> dict[str, Rows]:
        """Values by variable, typed as the store has them."""
        for name, groups in columns.items():
            for column in groups:
                self._take(name, column)
        joined: dict[str, Rows] = {name: (None, values) for name, values in self._whole.items()}
        for name, pieces in self._parts.items():
            joined[name] = (
                np.concatenate([rows for rows, _ in pieces]),
                np.concatenate([values for _, values in pieces]),
            )
        for name in self._known:
            if name not in self._whole:
                self._check_present(name)
        return joined

    def _take(self, name: str, column: Column) -> None:
        rows = np.arange(len(self.status)) if column.rows is None else column.rows
        variable = self._known.get(name)
        if variable is None:
            there = ", ".join(self._known) or "none"
            self._refuse(
                rows,
                f"output {name!r} was not returned by {self._first}; outputs are {there}; return "
                "the same in every run, np.nan where there is nothing",
            )
            return
        fault = shape_fault(variable, column) or coords_fault(name, column, self._coords)
        if fault is not None:
            self._refuse(rows, fault)
            return
        if column.lengths is not None and not column.lengths.any():
            column = _emptied(column, variable)
        if column.dtype != variable.dtype:
            self._open(name)
            column = self._opened(column)
            wide = self._widen(variable, column, self._parts.get(name, ()))
            if wide is not variable and name in self._parts:
                with np.errstate(invalid="ignore"):  # a signalling NaN
                    self._parts[name] = [(r, v.astype(wide.dtype)) for r, v in self._parts[name]]
            self._known[name] = variable = wide
        if column.written and self._as_stored(variable, column):
            self._add_parcels(name, rows, column.values)
            kept = np.ones(len(rows), dtype=bool)
            self._add_lengths(name, column, rows, kept)
            return
        column = self._opened(column)
        values, kept = self._typed(name, column, variable.dtype, rows)
        if column.rows is None and kept.all() and column.lengths is None:
            self._whole[name] = values
            return
        self._parts.setdefault(name, []).append((rows[kept], values[kept]))
        self._add_lengths(name, column, rows, kept)

    def _add_lengths(
        self, name: str, column: Column, rows: NDArray[np.intp], kept: NDArray[np.bool_]
    ) -> None:
        if column.lengths is not None:
            piece = rows[kept], column.lengths[kept]
            self._parts.setdefault(f"{name}_length", []).append(piece)

    # --- what workers have written ---

    @staticmethod
    def _as_stored(variable: Variable, column: Column) -> bool:
        """Whether receipts are of chunks as the store has them."""
        guards = {parcel.guards for parcel in column.values}
        return variable.big and column.dtype == variable.dtype and guards == {variable.guards}

    def _add_parcels(self, name: str, rows: NDArray[np.intp], parcels: NDArray[Any]) -> None:
        if name in self.parcels:
            before, known = self.parcels[name]
            rows, parcels = np.concatenate([before, rows]), np.concatenate([known, parcels])
        self.parcels[name] = rows, parcels

    def _open(self, name: str) -> None:
        """Take parcels of an output apart, which may have to be stored otherwise."""
        if name in self.parcels:
            rows, parcels = self.parcels.pop(name)
            self._parts.setdefault(name, []).append((rows, self._arrays(parcels)))

    def _opened(self, column: Column) -> Column:
        if not column.written:
            return column
        return replace(column, values=self._arrays(column.values))

    def _arrays(self, parcels: NDArray[Any]) -> NDArray[Any]:
        return np.stack([self._unpacked(parcel) for parcel in parcels])

    def _typed(
        self, name: str, column: Column, dtype: str, rows: NDArray[np.intp]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values in the stored data type, and which of the rows keep theirs exactly."""
        kept = np.ones(len(rows), dtype=bool)
        if column.dtype == dtype:
            return column.values, kept
        try:
            return cast_exactly(name, column.values, column.dtype, dtype), kept
        except Misfit:
            pass
        plain = {"str": np.dtype(object)}
        target = plain.get(dtype) or np.dtype("int64" if dtype.endswith("[ns]") else dtype)
        values = np.zeros(column.values.shape, dtype=target)
        for at in range(len(rows)):
            try:
                values[at] = cast_exactly(name, column.values[at], column.dtype, dtype)
            except Misfit as misfit:
                kept[at] = False
                self._refuse(rows[at : at + 1], str(misfit))
        return values, kept

    def _check_present(self, name: str) -> None:
        present = np.zeros(len(self.status), dtype=bool)
        for rows, _ in self._pieces(name):
            present[rows] = True
        lacking = np.flatnonzero(~present & (self.status == Status.DONE))
        self._refuse(lacking, f"output {name!r} was not returned")

    def _pieces(self, name: str) -> list[Piece]:
        pieces = list(self._parts.get(name, ()))
        return [*pieces, self.parcels[name]] if name in self.parcels else pieces

    def _refuse(self, rows: NDArray[np.intp], told: str) -> None:
        for row in rows.tolist():
            if self.status[row] == Status.DONE:
                self.status[row] = Status.INVALID
                self.errors[row] = told


def _emptied(column: Column, variable: Variable) -> Column:
    """A column of traces that ended before they began, which have no type of their own."""
    shape = (len(column.values), *variable.shape)
    values = np.full(shape, variable.fill, dtype=variable.memory_dtype)
    return replace(column, values=values, dtype=variable.dtype)


def rows_of(given: Rows, wanted: NDArray[np.intp], count: int) -> NDArray[Any]:
    """Values of some rows of a batch of ``count`` runs."""
    rows, values = given
    if rows is None:
        return values[wanted]
    at = np.zeros(count, dtype=np.intp)
    at[rows] = np.arange(len(rows))
    return values[at[wanted]]


def learnt(name: str, column: Column, said: Output | None) -> Variable:
    """The stored variable for an output, from its first column and what was declared."""
    attrs = {k: v for k, v in column.attrs.items() if k in ("units", "long_name")}
    attrs |= said.attrs if said is not None else {}
    if column.pad is not None:
        attrs["length"] = f"{name}_length"
    return Variable(name, column.dtype, column.dims, column.shape, column.pad, attrs)


def learnt_coords(
    columns: Mapping[str, list[Column]], declared: Mapping[str, Output]
) -> dict[str, NDArray[Any]]:
    """Coordinates along own dims: as declared, else as the first results carry them."""
    coords: dict[str, NDArray[Any]] = {}
    for name, groups in columns.items():
        said = declared[name].coords if name in declared else {}
        for dim, values in {**groups[0].coords, **said}.items():
            if groups[0].pad != dim or dim in said:  # a trace that ends early tells only a part
                coords.setdefault(dim, values)
    return coords


def coords_fault(name: str, column: Column, stored: Mapping[str, NDArray[Any]]) -> str | None:
    """Why the coordinates that results carry are not those stored; None if they are."""
    for dim, values in column.coords.items():
        known = stored.get(dim)
        if known is None and column.pad == dim:
            return (
                f"output {name!r} has coordinates along {dim!r}, which is padded: they would be "
                "lost; return them as an output of their own, declare those of the longest run "
                f"with sk.output(..., coords=...), or leave them out with .drop_vars({dim!r})"
            )
        if known is None:
            return (
                f"output {name!r} has coordinates along {dim!r}, from {values[0]} on, but the "
                "sweep stores none; return them in every run, or as an output of their own"
            )
        if column.pad == dim:
            known = known[: len(values)]
        differs = _differs(known, values)
        if differs is not None:
            return (
                f"output {name!r} has other coordinate values along {dim!r} than the sweep "
                f"stores: {differs}; return them as an output of their own"
            )
    return None


def _differs(known: NDArray[Any], values: NDArray[Any]) -> str | None:
    """Where coordinates differ, both sides named; NaN equals NaN, and integers are exact."""
    if known.shape != values.shape:
        return f"{len(values)} instead of {len(known)}"
    if known.dtype == values.dtype and known.dtype.kind in "fMm":
        if np.array_equal(known, values, equal_nan=True):
            return None
    elif known.tolist() == values.tolist():
        return None
    pairs = zip(values.tolist(), known.tolist(), strict=True)
    at = next(
        at
        for at, (one, other) in enumerate(pairs)
        if one != other and (one == one or other == other)  # NaN differs from itself
    )
    return f"{values[at]} instead of {known[at]} at position {at}"


def shape_fault(variable: Variable, column: Column) -> str | None:
    """Why the dims or shape of a column do not fit the stored variable; None if they do."""
    if column.dims == variable.dims and column.shape == variable.shape:
        return None
    given = _shape_text(column.dims, column.shape)
    stored = _shape_text(variable.dims, variable.shape)
    hint = ""
    if len(column.dims) == len(variable.dims) == 1 and all(variable.shape):
        hint = (
            f"; where lengths vary, declare outputs={{{variable.name!r}: sk.output(dims="
            f"{variable.dims[0]!r}, size=..., pad=True)}}"
        )
    return f"output {variable.name!r} is {given}, but the sweep stores {stored}{hint}"


def _shape_text(dims: tuple[str, ...], shape: tuple[int, ...]) -> str:
    if not dims:
        return "a scalar"
    return "(" + ", ".join(f"{dim}: {size}" for dim, size in zip(dims, shape, strict=True)) + ")"

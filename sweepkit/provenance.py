"""Who computed a sweep: with which code and packages, where, when, at what cost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import sweepkit.html as html
from sweepkit.cards import Card, Fact, Table
from sweepkit.compare import frame
from sweepkit.places import KeyPath, Place, place, where
from sweepkit.quantities import core_text
from sweepkit.reading import declaration_of, open, source_of
from sweepkit.root import side_folder
from sweepkit.stages import numbers as stages_of
from sweepkit.status import NAMES

__all__ = ["Provenance", "provenance"]

Given = xr.Dataset | str | os.PathLike[str] | KeyPath


@dataclass(frozen=True, eq=False)
class Provenance:
    """Who computed a sweep, with what, when, and at what cost.

    Attributes
    ----------
    name : str
        Of the sweep.
    sessions : DataFrame
        One row a session: ``began`` and ``ended`` (UTC), ``user``, ``host``, ``workers``,
        ``executor``, runs by status, ``failed``, ``held`` and ``used`` (worker-seconds), ``code``
        (the identity it ran), ``python``, ``platform``. What no session says is left out.
    codes : DataFrame
        One row a code version: ``code``, ``identity``, ``runs`` (made by it), ``parts`` (how many
        functions, classes and values), ``python``.
    packages : mapping
        Python, the platform, and versions of what runs and stores the sweep and of what the
        simulator's own code uses, as the newest session had them.
    declaration : mapping
        Entropy, streams, threads and version, as declared.
    """

    name: str
    sessions: pd.DataFrame
    codes: pd.DataFrame
    packages: Mapping[str, str]
    declaration: Mapping[str, Any]

    def _card(self) -> Card:
        ran = self.sessions
        used = float(ran["used"].sum()) if len(ran) else 0.0
        made = int(self.codes["runs"].sum()) if len(self.codes) else 0
        facts = (
            Fact("By", _several(ran, "user") or "not noted", _several(ran, "host")),
            Fact("When", _when(ran), f"{len(ran)} session{'' if len(ran) == 1 else 's'}, UTC"),
            Fact("Cost", core_text(used), f"{made:,} finished runs"),
            Fact("On", self.packages.get("platform", "not noted"), _several(ran, "executor")),
        )
        codes = [
            (str(row.code), f"{row.runs:,}", str(row.parts), str(row.python), str(row.identity))
            for row in self.codes.itertuples()
        ]
        said = [f"{k} {v}" for k, v in self.packages.items() if k != "platform"]
        declared = [f"{k}={v}" for k, v in self.declaration.items()]
        return Card(
            "Provenance",
            self.name,
            f"{len(codes)} code version{'' if len(codes) == 1 else 's'}",
            facts,
            (Table(("code", "runs", "parts", "python", "identity"), codes),) if codes else (),
            [f"packages: {', '.join(said)}"] * bool(said)
            + [f"declared: {', '.join(declared)}"] * bool(declared),
        )

    def __repr__(self) -> str:
        return self._card().text()

    def json(self) -> dict[str, Any]:
        """As plain data, for programs."""
        return {
            "name": self.name,
            "sessions": json.loads(self.sessions.to_json(orient="records")),
            "codes": json.loads(self.codes.to_json(orient="records")),
            "packages": dict(self.packages),
            "declaration": dict(self.declaration),
        }

    def _repr_html_(self) -> str:
        packages = [(name, text) for name, text in self.packages.items()]
        return html.box(
            "sweepkit.Provenance",
            html.facts([(one.name, one.value, one.note) for one in self._card().facts]),
            html.section("Sessions", frame(self.sessions), about=f"({len(self.sessions)})"),
            html.section("Code", frame(self.codes), about=f"({len(self.codes)} versions)"),
            html.section(
                "Packages", html.table(("Name", "Version"), packages), about=f"({len(packages)})"
            ),
            html.section("Declared", html.table(("", ""), list(self.declaration.items()))),
            about=self.name,
            text=repr(self),
        )


def _several(sessions: pd.DataFrame, column: str) -> str:
    """What sessions say in a column, each once."""
    if column not in sessions:
        return ""
    return html.sentence([one for one in dict.fromkeys(sessions[column]) if one], 4)


def _when(sessions: pd.DataFrame) -> str:
    if not len(sessions) or "began" not in sessions:
        return "not noted"
    first, last = sessions["began"].iloc[0][:16], sessions["began"].iloc[-1][:16]
    return str(first) if first == last else f"{first} to {last}"


def provenance(ds: Given, *, storage_options: Mapping[str, Any] | None = None) -> Provenance:
    """Who computed a sweep: sessions, code versions, packages, platform, cost.

    Parameters
    ----------
    ds : path or Dataset
        A store, whose refined runs count too, or what :func:`sweepkit.open` gave while its store
        is there.
    storage_options : mapping, optional
        As of :func:`sweepkit.open`, for a URL.

    Returns
    -------
    Provenance
        Shown as a table; ``json()`` gives it as plain data.

    Raises
    ------
    ValueError
        If nothing is known: the Dataset is not from a store.
    """
    ds = ds if isinstance(ds, xr.Dataset) else where(ds, storage_options)
    said = declaration_of(ds)
    if not said:
        raise ValueError(
            "the Dataset does not say what made it; give the store's path, or what sk.open gave"
        )
    opened = ds if isinstance(ds, xr.Dataset) else open(ds, stages=bool(stages_of(where(ds))))
    source = source_of(opened)
    sessions = [] if source is None else _sessions(side_folder(place(source)))
    made = np.zeros(0, dtype=np.int64)
    if "status" in opened and "code" in opened:
        finished = opened["status"].values.ravel() > 0
        numbers = opened["code"].values.ravel()[finished].astype(np.int64)
        made = np.bincount(numbers[numbers >= 0])
    codes = [
        {
            "code": number,
            "identity": one["identity"]["digest"],
            "runs": int(made[number]) if number < len(made) else 0,
            "parts": len(one["identity"].get("parts", ())),
            "python": one["identity"].get("python", ""),
        }
        for number, one in enumerate(said.get("codes", ()))
    ]
    kept = ("entropy", "streams", "threads", "version", "random")
    return Provenance(
        str(said.get("name", "")),
        pd.DataFrame(sessions, columns=None if sessions else ["began", "used"]),
        pd.DataFrame(codes, columns=["code", "identity", "runs", "parts", "python"]),
        dict(said.get("environment", {})),
        {name: said[name] for name in kept if name in said},
    )


def _sessions(folder: Place) -> list[dict[str, Any]]:
    """The receipts beside a store, oldest first."""
    rows = []
    for file in sorted([*(folder / "sessions").glob("*.json")], key=str):
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # being written, or cut short by a full disk
            continue
        environment = said.get("environment", {})
        row = {
            "began": _utc(said.get("began")),
            "ended": _utc(said.get("ended")),
            "user": said.get("user", ""),
            "host": said.get("host", ""),
            "workers": said.get("workers", ""),
            "executor": said.get("executor", ""),
            **{name: said.get("runs", {}).get(name, 0) for name in NAMES[1:-1]},
            "failed": said.get("failed", 0),
            "held": float(said.get("held_seconds", 0.0)),
            "used": float(said.get("used_seconds", 0.0)),
            "code": said.get("code", ""),
            "interrupted": bool(said.get("interrupted", False)),
            "python": environment.get("python", ""),
            "platform": environment.get("platform", ""),
        }
        rows.append(row)
    empty = [k for k in (rows[0] if rows else ()) if all(not r[k] for r in rows)]
    return [{k: v for k, v in row.items() if k not in empty or k == "used"} for row in rows]


def _utc(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))

"""What sessions did, with what, accounted for beside the store."""

from __future__ import annotations

import getpass
import json
import math
import os
import platform
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sweepkit.accounts import account
from sweepkit.cards import Card, Fact, Table
from sweepkit.protocols import Store, UnreachableError
from sweepkit.quantities import core_text, time_text
from sweepkit.seal import sealed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Meter", "Receipt", "SessionAccount", "environment", "receipt_of", "write_declaration"]

PACKAGES = ("sweepkit", "numpy", "xarray", "zarr", "joblib")
UNSUCCESSFUL = ("error", "timeout", "crashed", "invalid")
LIVE = ("queued", "running", "paused")
"""States of a session that has not said how it ended."""
FOLDER = "sessions"
REWRITE_SECONDS = 1.0
MOST_KINDS = 50


def environment() -> dict[str, str]:
    """What runs are made with: Python, platform, packages."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        **found,
    }


def user() -> str:
    """Who runs; empty where the system does not tell."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name, as in a container
        return ""


def host() -> str:
    """Name of this machine; empty where the system does not tell."""
    with suppress(OSError):
        return socket.gethostname()
    return ""


def write_declaration(store: Store, said: dict[str, Any]) -> None:
    """Keep the document of a sweep beside its store, as far as there is room."""
    with suppress(OSError, UnreachableError):
        if said["cost"] is None:  # of a session that ran nothing
            with suppress(ValueError, KeyError):
                said = {**said, "cost": json.loads(store.memo("declaration.json") or "{}")["cost"]}
                said = sealed(said)
        store.set_memo("declaration.json", json.dumps(said, indent=1, ensure_ascii=False))


class Meter:
    """Counts the time for which compute is held, and only that.

    It is told how many workers are held whenever that changes: none before they are there, during
    a pause and after the end.
    """

    def __init__(self) -> None:
        self._seconds = self._core_seconds = 0.0
        self._workers = 0
        self._since = time.monotonic()

    def hold(self, workers: int) -> None:
        """So many workers are held from now on."""
        now = time.monotonic()
        passed, self._since = now - self._since, now
        self._seconds += passed if self._workers else 0.0
        self._core_seconds += passed * self._workers
        self._workers = workers

    @property
    def seconds(self) -> float:
        """For how long any have been held up to now."""
        return self._seconds + (time.monotonic() - self._since if self._workers else 0.0)

    @property
    def core_seconds(self) -> float:
        """Worker-seconds held up to now, whether busy or not."""
        return self._core_seconds + (time.monotonic() - self._since) * self._workers


@dataclass
class SessionAccount:
    """The account of one session, written when it begins, now and then, and when it ends.

    A session that is killed leaves what was written last: it still says that it goes on, and
    the next session, which knows that it is not, says so.

    Attributes
    ----------
    store : Store
    began : float
        Seconds since 1970.
    """

    store: Store
    began: float
    _written: float = field(default=-math.inf, init=False)

    @property
    def name(self) -> str:
        """Of the file, beside the store."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self.began))
        return f"{FOLDER}/" + f"{stamp}-{self.began % 1:.6f}.json".replace("-0.", "-", 1)

    def close_killed(self) -> None:
        """Mark sessions that still say they run as killed; for who holds the store."""
        for name in self.store.memos(FOLDER):
            said = account(self.store.memo(f"{FOLDER}/{name}"))[0]
            if said.get("state") in LIVE:
                text = json.dumps({**said, "state": "killed"}, indent=1)
                with suppress(OSError, UnreachableError):
                    self.store.set_memo(f"{FOLDER}/{name}", text)

    @property
    def due(self) -> bool:
        """Whether what was written last is old."""
        return time.monotonic() - self._written >= REWRITE_SECONDS

    def write(self, said: Mapping[str, Any]) -> None:
        """Write the account as it is now.

        A full disk does not make a session fail that is otherwise at its end.
        """
        self._written = time.monotonic()
        told = {
            "began": self.began,
            "ended": time.time(),
            "pid": os.getpid(),
            "host": host(),
            "user": user(),
            **said,
        }
        with suppress(OSError, UnreachableError):
            self.store.set_memo(self.name, json.dumps(told, indent=1))


@dataclass(frozen=True, eq=False)
class Receipt:
    """What all sessions of a store took together.

    Attributes
    ----------
    path : str
        Of the store.
    runs, pending : int
        Points of the store that are to be run, and those still pending.
    queued_seconds : float
        From when sessions asked for compute to when they held it.
    held_seconds, used_seconds : float
        Worker-seconds: of workers held, whether busy or not, and of all runs. One worker counts
        as one core.
    wasted_seconds : float
        Worker-seconds of runs that erred, crashed or overran, that were tried again, or whose
        results were thrown away for a rerun. Part of ``used_seconds``, here or in the session
        that made them.
    done, failed, wasted : int
        Runs that were done, those of them that do not satisfy a requirement, and runs that gave
        no result that is kept.
    errors : mapping of str to int
        Runs without success by kind: the exception's type, or the status.
    records : sequence of mapping
        The sessions as they were written, in order of time.
    damaged : sequence of str
        Files of sessions that are not as they were written; what of them cannot be is not counted.
    """

    path: str
    runs: int
    pending: int
    queued_seconds: float
    held_seconds: float
    used_seconds: float
    wasted_seconds: float
    done: int
    failed: int
    wasted: int
    errors: Mapping[str, int]
    records: Sequence[Mapping[str, Any]] = field(repr=False)
    damaged: Sequence[str] = field(default=(), repr=False)

    @property
    def utilisation(self) -> float:
        """Share of the held time in which workers were busy; NaN if none was held."""
        return _share(self.used_seconds, self.held_seconds)

    @property
    def left(self) -> str:
        """Why runs are pending, by the last session of the grid and of each refinement.

        Empty if none are, or no session said it.
        """
        last = {int(one.get("stage", 0)): one.get("left", "") for one in self.records}
        told = [(stage, text) for stage, text in sorted(last.items()) if text]
        if not self.pending or not told:
            return ""
        if len(last) == 1:
            return str(told[0][1])
        return "; ".join(f"{f'stage {stage}' if stage else 'grid'}: {text}" for stage, text in told)

    @property
    def sessions(self) -> pd.DataFrame:
        """One row for each session: when, how it ended, workers, seconds, runs, environment."""
        import pandas as pd

        rows = [_row(one) for one in self.records]
        frame = pd.DataFrame(rows, columns=list(_row({})))
        for name in ("began", "ended"):
            frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
        frame.index = pd.RangeIndex(1, len(frame) + 1, name="session")
        return frame

    def _card(self) -> Card:
        finished = self.runs - self.pending
        word = "complete" if not self.pending else "so far"
        count = len(self.records)
        used = f"{core_text(self.used_seconds)} used, {_percent(self.utilisation)} utilisation"
        wasted = f"{core_text(self.wasted_seconds)} in errors, crashes, reruns"
        facts = (
            Fact("Held", core_text(self.held_seconds), used),
            Fact("Queued", time_text(self.queued_seconds), "not metered"),
            Fact("Done", f"{self.done:,} runs", f"{self.failed:,} fail"),
            Fact("Wasted", f"{self.wasted:,} runs", wasted),
        )
        rows = [_shown(number, _row(one)) for number, one in enumerate(self.records, 1)]
        who = dict.fromkeys(_whose(one) for one in self.records)
        notes = [f"by {', '.join(one for one in who if one)}"] if any(who) else []
        notes += [f"{kind}: {n:,} runs" for kind, n in self.errors.items()][:8]
        if self.damaged:
            names = ", ".join(self.damaged[:3]) + ", ..." * (len(self.damaged) > 3)
            notes.append(f"damaged, and counted as far as it can be: {names}")
        if self.pending:
            notes.append(f"left: {self.left or f'{self.pending:,} runs are pending'}")
        return Card(
            "Receipt",
            f"{self.path}, {count} session{'' if count == 1 else 's'}",
            f"{word}: {finished:,} of {self.runs:,}",
            facts,
            (Table(SHOWN, rows),) if rows else (),
            notes,
        )

    def __repr__(self) -> str:
        return self._card().text()

    def _repr_html_(self) -> str:
        return self._card().html()


SHOWN = (
    "session",
    "began",
    "workers",
    "queued",
    "held",
    "used",
    "done",
    "failed",
    "wasted",
    "utilisation",
)


def _whose(said: Mapping[str, Any]) -> str:
    """Who ran a session, and where, as far as it tells."""
    name, where = said.get("user", ""), said.get("host", "")
    return f"{name} on {where}" if name and where else name or where


def _shown(number: int, row: Mapping[str, Any]) -> tuple[str, ...]:
    known = not math.isnan(row["began"])
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["began"])) if known else "?"
    return (
        f"{number}, {row['state']}",
        began,
        f"{row['workers']}",
        time_text(row["queued_seconds"]),
        core_text(row["held_seconds"]),
        core_text(row["used_seconds"]),
        f"{row['done']:,}",
        f"{row['failed']:,}",
        f"{row['wasted']:,}",
        _percent(row["utilisation"]),
    )


def _percent(share: float) -> str:
    return "?" if math.isnan(share) else f"{share:.0%}"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def _row(said: Mapping[str, Any]) -> dict[str, Any]:
    """A session as a row of the table; NaN for what an account of before does not tell."""
    runs = said.get("runs", {})
    held, used = said.get("held_seconds", math.nan), said.get("used_seconds", math.nan)
    unsuccessful = sum(runs.get(word, 0) for word in UNSUCCESSFUL)
    return {
        "began": said.get("began", math.nan),
        "ended": said.get("ended", math.nan),
        "state": said.get("state", "done"),
        "stage": said.get("stage", 0),
        "workers": said.get("workers", 0),
        "executor": said.get("executor", ""),
        "user": said.get("user", ""),
        "host": said.get("host", ""),
        "queued_seconds": said.get("queued_seconds", math.nan),
        "held_seconds": held,
        "used_seconds": used,
        "wasted_seconds": said.get("wasted_seconds", math.nan),
        "utilisation": _share(used, held),
        "done": runs.get("done", 0),
        "failed": said.get("failed", 0),
        "wasted": said.get("wasted", unsuccessful),
        "skipped": runs.get("skipped", 0),
        "left": said.get("left", ""),
        "code": said.get("code", ""),
        **{name: said.get("environment", {}).get(name, "") for name in ("python", "platform")},
    }


def receipt_of(store: Store, *, runs: int, pending: int) -> Receipt:
    """The accounts of all sessions of a store, added up.

    A session that says it runs does so only if it is the last and its process is alive.
    """
    found, damaged = [], []
    for name in store.memos(FOLDER):
        said, sound = account(store.memo(f"{FOLDER}/{name}"))
        if not sound:
            damaged.append(name)
        if said:
            _, _, stage = name.removesuffix(".json").partition("-stage-")
            found.append({"stage": int(stage) if stage.isdigit() else 0, **said})
    records = sorted(found, key=lambda one: one.get("began", 0.0))
    for at, said in enumerate(records):
        last = at == len(records) - 1
        if said.get("state") in LIVE and not (last and _alive(said)):
            records[at] = {**said, "state": "killed"}
    rows = [_row(one) for one in records]
    errors: Counter[str] = Counter()
    for one in records:
        errors.update(one.get("errors", {}))

    def total(name: str) -> Any:
        return sum(row[name] for row in rows if not math.isnan(row[name]))

    return Receipt(
        store.path,
        runs,
        pending,
        float(total("queued_seconds")),
        float(total("held_seconds")),
        float(total("used_seconds")),
        float(total("wasted_seconds")),
        total("done"),
        total("failed"),
        total("wasted"),
        dict(errors.most_common()),
        tuple(records),
        tuple(damaged),
    )


def _alive(said: Mapping[str, Any]) -> bool:
    """Whether the process of a session still exists; on another host it is taken to."""
    if said.get("host") != host():
        return True
    try:
        os.kill(int(said.get("pid", 0)) or -1, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

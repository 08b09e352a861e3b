"""One writer at a store in a bucket: a lock made by conditional puts, which needs no repair.

The lock is a chain of numbered objects in ``<store>.sweepkit/lock/``; the last one says who
writes. It is made by a put that fails if the object exists, so that of two who want to write one
gets it. Who writes puts it again each 5 s, with a count: its sign of life. Who ends says so in it.

A killed writer says nothing any more, and nobody need repair that:

- On its own machine, in the same boot and process namespace, its process is seen to be gone, and
  it is followed at once.
- From another machine nobody can know but by its silence. Clocks of two machines are not compared
  to decide: whoever finds signs that are not fresh watches, by its own clock, and makes the next
  object only when none came for 30 s. While signs are fresh it is refused at once, by name.

What if a silent writer is not dead but was frozen or cut off? It stops by itself. It begins no
write later than 15 s after the last sign that it was sure to have given, by a clock that goes on
while the machine sleeps, and a request that is not answered within 25 s of that sign is given up.
So a follower, who waited 30 s, finds nobody writing. Before each sign it looks whether another has
followed, or the object is not its own any more; then it never writes again.

What is left: a process that is frozen as a whole in the moment between that look at the clock and
the sending of a request, for 15 s and more, and then sends it. That one object could replace a
newer one of its follower. Buckets cannot refuse it. Its runs are the same runs with the same seeds,
so that it can set values back to an older state of a block, but not put false ones in.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepkit.files import remove_tree
from sweepkit.holding import begun, busy, holder_of
from sweepkit.places import KeyPath
from sweepkit.protocols import StoreBusyError, StoreError, UnwritableError
from sweepkit.root import UnreachableError

__all__ = ["leased"]

SIGN = 5.0
"""Seconds between signs of life."""
CAREFUL = 15.0
"""Seconds after the last sign, from which on its giver begins no write."""
ABANDON = 25.0
"""Seconds after the last sign, at which its giver gives a write up that has not ended."""
SILENCE = 30.0
"""Seconds without a sign, as watched, after which a writer is taken for dead."""
WATCH = 0.5
"""Seconds between two looks at a silent writer."""

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps."""

logger = logging.getLogger(__name__)


def _now() -> float:
    return time.clock_gettime(CLOCK)


@contextmanager
def leased(root: KeyPath, beside: KeyPath) -> Iterator[None]:
    """Be the only writer of a store; a lock that nothing came of is taken away.

    Raises
    ------
    StoreBusyError
        If another process writes; names its pid, host and since when.
    UnwritableError
        If nothing can be written there.
    """
    try:
        lease = _taken(root, beside / "lock")
    except UnreachableError as fault:
        raise UnwritableError(str(fault)) from fault
    except OSError as fault:
        raise UnwritableError(
            f"{root} cannot be written: {fault.strerror or fault}; make the bucket, or choose "
            "another place"
        ) from fault
    signs = threading.Thread(target=lease.keep, name=_title(lease.said), daemon=True)
    signs.start()
    root.store.allowed = lease.allowed
    try:
        root.store.remember([root.key, beside.key], but=lease.lock.key)
        yield
    finally:
        root.store.allowed = None
        root.store.forget()
        lease.ended.set()
        signs.join()
        with suppress(StoreError, OSError):  # then it ends by its silence
            lease.give_back()
            if not begun(root, beside):
                remove_tree(beside)


@dataclass
class _Lease:
    """The right to write, as long as signs of life are given."""

    root: KeyPath
    lock: KeyPath
    number: int
    said: dict[str, Any]
    sure: float
    """Before the last sign that is sure to have been given, by the clock here."""
    lost: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def path(self) -> KeyPath:
        return self.lock / _name(self.number)

    def keep(self) -> None:
        """Give signs of life until it is ended."""
        while not self.ended.wait(SIGN) and not self.lost:
            with suppress(UnreachableError, OSError):  # without signs it runs out
                self.sign()

    def sign(self) -> None:
        """Give a sign of life, if it is the last and its own."""
        before = _now()
        own = _read(self.path).get("token") == self.said["token"]
        if not own or _last(self.lock)[0] != self.number:
            self.lost = "another process has taken over"
            return
        self.said = {**self.said, "signs": self.said["signs"] + 1, "at": time.time()}
        self._put()
        self.sure = before

    def allowed(self) -> float:
        """Seconds in which a write may still be made.

        Raises
        ------
        StoreError
            If it may not any more.
        """
        silent = _now() - self.sure
        if self.lost or silent > CAREFUL:
            why = self.lost or f"for {silent:.0f} s it could not be told that this process is alive"
            raise StoreError(
                f"{self.root} is not written any more: {why}; what counted as done stays, and "
                "sk.run goes on from there"
            )
        return ABANDON - silent

    def give_back(self) -> None:
        """Say that it is free."""
        if not self.lost and _read(self.path).get("token") == self.said["token"]:
            self.said = {**self.said, "ended": True}
            self._put()

    def _put(self) -> None:
        self.path.write_bytes(json.dumps(self.said).encode())


def _taken(root: KeyPath, lock: KeyPath) -> _Lease:
    """Make the next object of the chain, once the last one says, or shows, that it is free."""
    number, older = _last(lock)
    if number:
        said = _read(lock / _name(number))
        if said and not said.get("ended"):
            _see_it_gone(root, lock / _name(number), said)
    before = _now()
    mine = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "process": _process(os.getpid()),
        "token": secrets.token_hex(8),
        "signs": 0,
        "at": time.time(),
    }
    path = lock / _name(number + 1)
    if not path.store.create(path.key, json.dumps(mine).encode()):
        raise StoreBusyError(_busy(root, _read(path)))
    path.store.delete_all([(lock / _name(one)).key for one in older])
    return _Lease(root, lock, number + 1, mine, before)


def _last(lock: KeyPath) -> tuple[int, list[int]]:
    """Number of the last object of the chain, 0 if there is none, and all numbers."""
    names = [one.name.removesuffix(".json") for one in lock.iterdir()]
    numbers = sorted(int(name) for name in names if name.isdigit())
    return (numbers[-1] if numbers else 0), numbers


def _name(number: int) -> str:
    return f"{number:09}.json"


def _read(path: KeyPath) -> dict[str, Any]:
    content = path.store.read(path.key)
    try:
        said = json.loads(content or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _see_it_gone(root: KeyPath, path: KeyPath, said: dict[str, Any]) -> None:
    """Return once a writer is sure to write no more.

    Raises
    ------
    StoreBusyError
        If it is alive, or may be.
    """
    there = said.get("process") or {}
    pid = int(said.get("pid", 0))
    if there and there.get("machine") == _machine():
        if there == _process(pid) and (pid != os.getpid() or _kept_here(said)):
            raise StoreBusyError(_busy(root, said))
        return
    if abs(time.time() - float(said.get("at", 0.0))) < SILENCE:
        raise StoreBusyError(_busy(root, said))
    logger.warning(
        "%s was being written by process %s on %s, which seems to be gone; if it stays silent for "
        "%.0f s, it is taken over",
        root, said.get("pid"), said.get("host"), SILENCE,
    )  # fmt: skip
    end = _now() + SILENCE
    while _now() < end:
        time.sleep(WATCH)
        if _read(path) != said:
            raise StoreBusyError(_busy(root, said))


def _kept_here(said: dict[str, Any]) -> bool:
    """Whether this process still gives signs; it may have ended without having said so."""
    return any(one.name == _title(said) for one in threading.enumerate())


def _title(said: dict[str, Any]) -> str:
    return f"sweepkit lease {said['token']}"


def _machine() -> str:
    """What tells this machine since it was started, and this namespace of processes, from others.

    Empty where the system does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _process(pid: int) -> dict[str, str]:
    """What tells a process of this machine from a later one of the same number, {} if it is gone.

    Also {} where the system does not tell.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return {}
    fields = stat.rpartition(")")[2].split()
    if fields[0] == "Z":
        return {}
    return {"machine": _machine(), "started": fields[19]} if _machine() else {}


def _busy(root: KeyPath, said: dict[str, Any]) -> str:
    return (
        f"{busy(root, holder_of(said))}. If it was killed, wait: after {SILENCE:.0f} s without a "
        "sign of life it is taken over"
    )

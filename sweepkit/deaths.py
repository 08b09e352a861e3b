"""Why a process died, in words."""

from __future__ import annotations

import signal
from contextlib import suppress

__all__ = ["cause", "oom_kills"]


def oom_kills() -> int:
    """Processes killed for want of memory: in this control group if it counts them, else in all."""
    groups: dict[str, str] = {}
    with suppress(OSError, ValueError), open("/proc/self/cgroup") as file:
        for line in file:
            _, kinds, group = line.rstrip().split(":", 2)
            groups |= dict.fromkeys(kinds.split(","), group)
    for path in (
        f"/sys/fs/cgroup{groups.get('', '')}/memory.events",
        "/sys/fs/cgroup/memory.events",
        f"/sys/fs/cgroup/memory{groups.get('memory', '')}/memory.oom_control",
        "/sys/fs/cgroup/memory/memory.oom_control",
        "/proc/vmstat",
    ):
        with suppress(OSError, ValueError), open(path) as file:
            for line in file:
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def cause(code: int | None) -> str:
    """An exit code of a process in words."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"

"""A small sweep of poles held upright, with everything an explorer shows: failures of several
kinds, an error whose text is hostile, traces, prints and replicates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import sweepkit as sk

HOSTILE = "<script>document.title='owned'</script>"


def pole(length: float, mass: float, delay: int, rng: np.random.Generator) -> dict[str, Any]:
    """Falls where the push comes late; the longest and heaviest raises at the longest delay."""
    print(f"length {length} m, delay {delay}")
    if length == 2.0 and mass == 1.0 and delay == 4:
        raise ArithmeticError(f"no gain for {HOSTILE}")
    angle, speed = rng.normal(0, 0.02, 2)
    pushes, trace = [0.0] * delay, []
    for _ in range(120):
        pushes.append(30 * angle + 6 * speed)
        push = max(-10.0, min(10.0, pushes.pop(0)))
        speed += 0.02 * (9.8 * math.sin(angle) / length - 0.9 * push / (length * (1 + mass)))
        angle += 0.02 * speed
        trace.append(math.degrees(angle))
        if abs(angle) > 0.4:
            break
    return {"steps": len(trace), "angle": np.array(trace)}


def sweep(replicates: int = 3) -> sk.Sweep:
    """Four lengths, three masses and four delays."""
    grid = sk.grid(
        length=sk.design([0.05, 0.1, 0.5, 2.0], units="m", long_name="half-length"),
        mass=sk.scenario([0.01, 0.1, 1.0], units="kg"),
        delay=sk.scenario([0, 1, 2, 4], units="steps"),
        replicates=replicates,
    )
    return sk.Sweep(
        pole,
        grid,
        outputs={"angle": sk.output(dims="time", size=120, pad=True, units="°")},
        requirements=["steps >= 120", "abs(angle).max(time) <= 12"],
    )


def stored(path: Path) -> xr.Dataset:
    """The sweep run to its end, in this process."""
    return sk.run(sweep(), path, n_jobs=1, backend="sequential", progress=False)

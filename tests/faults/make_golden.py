"""Makes the golden store of format 1; run once, when the format was new, and kept since.

``python -m tests.faults.make_golden golden_format1.zip``
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import sweepkit as sk

OUTPUTS = {"angle": sk.output(dims="time", size=6, pad=True, units="rad", long_name="pole angle")}
REQUIREMENTS = ["n <= 40", "abs(angle).max(time) < 0.5"]
HUGE = 2**63 + 11


def simulate(a: float, mode: str, when: np.datetime64, rng: np.random.Generator) -> dict[str, Any]:
    """One output of each stored type, and each way that a run can end in its own process."""
    if mode == "raises":
        raise ValueError(f"a is {a}")
    if mode == "misfits" and a == 2.5:
        return {"n": "text"}
    if mode == "prints":
        print(f"at {a}: é, 日本")
    length = int(a * 2) % 6
    return {
        "x": a / 3,
        "x32": np.float32(a) / np.float32(3),
        "n": int(a * 10),
        "n8": np.int8(-a),
        "u": np.uint64(HUGE),
        "ok": a > 1,
        "z": complex(a, -a),
        "text": f"{mode}-{a}-日本",
        "at": when + np.timedelta64(int(a * 2), "h"),
        "took": np.timedelta64(int(a * 1e9) + 7, "ns"),
        "nan": np.nan if a > 1 else np.inf,
        "trace": np.array([[a, -a], [a * 2, 0.0]]),
        "angle": np.linspace(0, a / 4, length),
        "draw": float(rng.random()),
    }


simulate.__code__ = simulate.__code__.replace(co_filename="make_golden.py")  # as in its logs


def grid(a: list[float], modes: list[str]) -> Any:
    """The grid, with one point left out."""
    when = np.array(["2000-01-01T00:35", "2031-12-24T18:00:00.000000001"], dtype="datetime64[ns]")
    lengths = sk.values(a, units="m", long_name="a length")
    return sk.grid(a=lengths, mode=sk.scenario(modes), when=when).where(
        "a < 2 or mode != 'prints'"
    )


def sweep(a: list[float], modes: list[str]) -> sk.Sweep:
    """The sweep as it is declared."""
    return sk.Sweep(
        simulate,
        grid(a, modes),
        outputs=OUTPUTS,
        requirements=REQUIREMENTS,
        version="golden",
        entropy=5,
        name="golden",
    )


A = [0.5, 2.5, 1.0, -0.25]
MODES = ["prints", "raises", "plain", "misfits"]


def main(target: str) -> None:
    """Fill a store in two steps, so that disk order is not the declared one, and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "golden_format1.zarr")
        sk.run(sweep([1.0, 0.5], ["plain"]), path, backend="sequential", progress=False)
        sk.run(sweep(A, MODES), path, backend="sequential", progress=False)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
            for top in (path, path.with_name(path.name + ".sweepkit")):
                for one in sorted(top.rglob("*")):
                    skip = one.name in ("lock", "holder.json") or "sessions" in one.parts
                    if one.is_file() and not skip:
                        packed.write(one, one.relative_to(folder))
    print(target, os.path.getsize(target), "bytes")


if __name__ == "__main__":
    main(sys.argv[1])

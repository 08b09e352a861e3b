"""What the framework adds to a run on a dask cluster, beside dask on hand-made chunks.

Trivial runs that return dictionaries of eight floats, on a LocalCluster of two workers that runs
before the clock starts. The floor is dask on chunks of 256 that return the same dictionaries, with
nothing stored; ours are stored with status. Each from a fresh process, medians of three in turns.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from typing import Any

from tests.benchmarks.measure import apart, repeated, table, timed
from tests.benchmarks.overhead import _axes, _chunk, eight

SIZES = (10_000, 100_000)


def measured(way: str, runs: int) -> dict[str, Any]:
    """One way, one size, on a cluster of its own."""
    from distributed import Client, LocalCluster

    import sweepkit as sk

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    a_axis, b_axis = _axes(runs)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        if way == "ours":
            sweep, executor = sk.Sweep(eight, sk.grid(a=a_axis, b=b_axis)), sk.DaskExecutor(client)
            run = sk.run
            seconds, _ = timed(lambda: run(sweep, "c.zarr", executor=executor, progress=False))
        else:
            pairs = [(a, b) for a in a_axis for b in b_axis]

            def gathered() -> Any:
                futures = [
                    client.submit(_chunk, eight, pairs[at : at + 256], pure=False)
                    for at in range(0, runs, 256)
                ]
                return client.gather(futures)

            seconds, _ = timed(gathered)
    return {"us": seconds / runs * 1e6}


def main() -> None:
    """Measure both and print the table."""
    rows: list[list[object]] = []
    for runs in SIZES:
        case = [partial(apart, "tests.benchmarks.cluster", way, str(runs)) for way in WAYS]
        floor, own = repeated(3, case)
        rows.append([f"{runs:,} runs", floor["us"], own["us"], own["us"] / floor["us"]])
    print(table(("eight outputs", "dask us", "sweepkit us", "ratio"), rows))


WAYS = ("dask", "ours")

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
    else:
        main()

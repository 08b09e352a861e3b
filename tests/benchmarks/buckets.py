"""What a bucket costs beside a folder: trivial runs stored in both, opened, read, resumed.

The bucket is of moto's S3 server, in a process of its own on loopback: its answers take some
milliseconds each, as those of a near bucket do. Two workers; each from a fresh process, the best of
five in turns, as what else runs on the machine only adds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.benchmarks.measure import apart, repeated, table, timed
from tests.benchmarks.overhead import _axes, eight

SIZES = (10_000, 100_000)


@contextmanager
def s3() -> Iterator[dict[str, Any]]:
    """Options of a server of the S3 API, with a bucket named ``bench``."""
    import boto3

    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "Running on" in line)
        threading.Thread(target=server.stderr.read, daemon=True).start()
        url = line.split("Running on ")[1].split()[0]
        boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        ).create_bucket(Bucket="bench")
        yield {"endpoint_url": url, "key": "key", "secret": "secret"}
    finally:
        server.kill()
        server.wait()


def measured(way: str, runs: int) -> dict[str, Any]:
    """One place, one size."""
    if way == "folder":
        return _in("c.zarr", None, runs)
    with s3() as options:
        return _in("s3://bench/c.zarr", options, runs)


def _in(where: str, options: dict[str, Any] | None, runs: int) -> dict[str, Any]:
    import sweepkit as sk

    a_axis, b_axis = _axes(runs)
    sweep = sk.Sweep(eight, sk.grid(a=a_axis, b=b_axis))
    run = partial(sk.run, sweep, where, storage_options=options, n_jobs=2, progress=False)
    first, _ = timed(run)
    again, _ = timed(run)
    opened, ds = timed(lambda: sk.open(where, storage_options=options))
    read, _ = timed(ds.load)
    return {"us": first / runs * 1e6, "again": again, "open": opened, "read": read}


def main() -> None:
    """Measure both and print the table."""
    rows: list[list[object]] = []
    for runs in SIZES:
        cases = [partial(apart, "tests.benchmarks.buckets", way, str(runs)) for way in WAYS]
        for way, one in zip(WAYS, repeated(5, cases, min), strict=True):
            rows.append(
                [f"{runs:,} runs, {way}", *(one[n] for n in ("us", "again", "open", "read"))]
            )
    head = ("eight outputs, two workers", "us a run", "again s", "sk.open s", "all read s")
    print(table(head, rows))


WAYS = ("folder", "bucket")

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
    else:
        main()

"""Sweeps in a bucket: run, killed, resumed, grown, damaged, contested and cut off."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import intake, lease
from sweepkit.protocols import UnreachableError
from sweepkit.stores.objects import Objects
from sweepkit.targets import target as target_of
from tests.conftest import EXHAUSTIVE, Start
from tests.stores.conftest import Bucket, Serve, made_bucket
from tests.waiting import LIMIT, until

QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


def simulate(a: int, b: float, rng: np.random.Generator) -> dict[str, Any]:
    if a == 3:
        raise ValueError("three is no good")
    return {"y": a * b, "drawn": rng.random(), "trace": np.arange(float(a + 1))}


def sweep(n: int = 5) -> sk.Sweep:
    trace = sk.output(dims="t", size=20, pad=True)
    grid = sk.grid(a=range(n), b=[1.0, 2.0])
    return sk.Sweep(simulate, grid, outputs={"trace": trace}, requirements=["y < 5"])


def run(bucket: Bucket, n: int = 5, **options: Any) -> xr.Dataset:
    return sk.run(sweep(n), bucket.url, storage_options=bucket.options, **{**QUIET, **options})


def test_a_sweep_runs_grows_and_is_the_same_as_in_a_folder(bucket: Bucket, store: str) -> None:
    run(bucket, 4)
    ds = run(bucket, 6)
    local = sk.run(sweep(6), store, **QUIET)
    for name in ("y", "drawn", "trace", "status", "error"):
        assert ds[name].dims == local[name].dims
        np.testing.assert_array_equal(ds[name].values, local[name].values)
    assert ds.encoding["source"] == bucket.url
    again = pickle.loads(pickle.dumps(ds))  # how it is reached travels with it
    np.testing.assert_array_equal(again["y"].values, local["y"].values)
    assert len(sk.verify(bucket.url, storage_options=bucket.options)) == 0
    receipt = sk.receipt(bucket.url, storage_options=bucket.options)
    assert (len(receipt.records), receipt.done, receipt.pending) == (2, 10, 0)
    assert len(sk.provenance(ds).sessions) == 2
    assert sk.runs(bucket.url, storage_options=bucket.options)["failed"].sum() == 3
    keys = bucket.listed()
    assert {key.split("/")[1] for key in keys} == {"a.zarr", "a.zarr.sweepkit"}
    assert not [key for key in keys if "rewrite" in key]


@pytest.mark.slow
def test_plan_start_derive_refine_replay_and_export(bucket: Bucket, tmp_path: Any) -> None:
    options = bucket.options
    plan = sk.plan(sweep(), bucket.url, pilot=2, storage_options=options, **QUIET)
    assert plan.pending == 8
    job = sk.start(sweep(), bucket.url, backend="threading", storage_options=options)
    assert job.result()["status"].values.ravel().tolist().count(1) == 8
    ds = sk.derive(bucket.url, "twice", "2 * y", storage_options=options)
    assert ds["twice"].sel(a=2, b=2.0) == 8
    points = sk.suggest(ds, 2, explore=0)
    ds = sk.refine(sweep(), bucket.url, points, storage_options=options, **QUIET)
    assert sorted(set(ds["stage"].values.tolist())) == [0, 1]
    assert sk.replay(sweep(), bucket.url, {"a": 2, "b": 1.0}, storage_options=options).reproduced
    sk.export(ds, tmp_path / "runs.csv")
    assert len(sk.artefacts(ds)) == 0


def test_many_chunks_are_read_lazily(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepkit.format1.BLOCK_RUNS", 4)
    ds = sk.run(
        sk.Sweep(lambda a: {"y": a * 2.0}, sk.grid(a=range(30))),
        bucket.url,
        storage_options=bucket.options,
        **QUIET,
    )
    assert len(bucket.listed("runs/a.zarr/y/c/")) == 8
    read: list[str] = []
    get = type(ds.encoding["place"].store).get

    async def counted(self: Any, key: str, *rest: Any) -> Any:
        read.append(key)
        return await get(self, key, *rest)

    monkeypatch.setattr(type(ds.encoding["place"].store), "get", counted)
    assert ds["y"].sel(a=13) == 26
    assert {key for key in read if "/y/c/" in key} == {"a.zarr/y/c/3"}


def test_a_stage_that_is_lost_is_named_and_its_points_are_run_again(bucket: Bucket) -> None:
    options = {"storage_options": bucket.options}
    run(bucket, 3)
    wanted = sk.paired(a=[10, 11], b=[1.0, 2.0])
    before = sk.refine(sweep(3), bucket.url, wanted, **options, **QUIET).load()
    for key in bucket.listed("runs/a.zarr/stages/"):
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    for _ in range(2):
        found = sk.verify(bucket.url, **options)
        assert found["variable"].tolist() == ["stages/1"]
        assert found["runs"].tolist() == [2]
        with pytest.raises(sk.StoreError, match=r"stages/1.*is missing; sk\.refine\(sweep, "):
            sk.open(bucket.url, stages=True, **options)
        run(bucket, 3)  # does not forget it
    after = sk.refine(sweep(3), bucket.url, **options, **QUIET).load()
    xr.testing.assert_identical(after.drop_vars("duration"), before.drop_vars("duration"))
    assert sk.verify(bucket.url, **options).empty


def test_damage_is_named_and_just_those_runs_are_made_again(bucket: Bucket) -> None:
    run(bucket)
    put = bucket.client.put_object
    bucket.client.delete_object(Bucket=bucket.name, Key="runs/a.zarr/y/c/0/0")
    ds = sk.open(bucket.url, storage_options=bucket.options)
    with pytest.raises(ValueError, match=r"a chunk of variable 'y' is missing, s3://bucket-"):
        ds["y"].load()
    found = sk.verify(bucket.url, storage_options=bucket.options)
    assert found["variable"].tolist() == ["y"]
    assert found["runs"].tolist() == [8]
    assert run(bucket)["y"].sel(a=4, b=2.0) == 8
    key = "runs/a.zarr/drawn/c/0/0"
    body = bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
    put(Bucket=bucket.name, Key=key, Body=body[:-1] + bytes([body[-1] ^ 1]))
    found = sk.verify(bucket.url, storage_options=bucket.options)
    assert found["variable"].tolist() == ["drawn"]
    run(bucket)
    assert len(sk.verify(bucket.url, storage_options=bucket.options)) == 0
    bucket.client.delete_object(Bucket=bucket.name, Key="runs/a.zarr/zarr.json")
    with pytest.raises(
        ValueError, match=r"zarr\.json, is damaged: it is missing; the next sk\.run"
    ):
        sk.open(bucket.url, storage_options=bucket.options)
    assert run(bucket)["y"].sel(a=4, b=2.0) == 8


def test_a_value_that_widens_a_column_replaces_the_store(bucket: Bucket) -> None:
    sweep = sk.Sweep(lambda a: {"y": a if a < 3 else a + 0.5}, sk.grid(a=range(6)))
    ds = sk.run(sweep, bucket.url, storage_options=bucket.options, **QUIET)
    assert ds["y"].values.tolist() == [0, 1, 2, 3.5, 4.5, 5.5]
    assert not [key for key in bucket.listed() if "rewrite" in key]


@pytest.mark.slow
def test_a_swap_that_was_cut_off_is_read_from_where_it_waits_and_finished(bucket: Bucket) -> None:
    run(bucket)
    for key in bucket.listed("runs/a.zarr/"):
        where = {"Bucket": bucket.name, "Key": key}
        new = key.replace("a.zarr/", "a.zarr.sweepkit/rewrite/", 1)
        bucket.client.copy_object(Bucket=bucket.name, Key=new, CopySource=where)
        bucket.client.delete_object(**where)
    ready = "runs/a.zarr.sweepkit/rewrite-ready"
    bucket.client.put_object(Bucket=bucket.name, Key=ready, Body=b"token")
    ds = sk.open(bucket.url, storage_options=bucket.options)
    assert ds["y"].sel(a=4, b=2.0) == 8
    assert run(bucket, 6)["y"].sel(a=5, b=2.0) == 10
    assert not [key for key in bucket.listed() if "rewrite" in key]


# --- one writer ----------------------------------------------------------------------------------

DRIVER = """
    import json, sys, threading
    import sweepkit as sk
    from sweepkit import intake
    from sweepkit.stores.objects import Objects
    intake.SLOW, intake.RESTS, Objects.pause_seconds = -1.0, 0.0, 0.0
    url, options, ledger = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    def f(a):
        import os, time
        with open(ledger, "a") as file:
            file.write(f"{a}\\n")
            half = file.tell() > 80
        time.sleep(0.05)
        while half and os.path.exists(ledger + ".half"):
            time.sleep(0.05)
        return {"y": a * 2.0, "text": "x" * a}
    sweep = sk.Sweep(f, sk.grid(a=range(int(sys.argv[4]))), version="1")
    if __name__ == "__main__":
        print("begun", flush=True)
        sk.run(sweep, url, storage_options=options, progress=False, backend="sequential")
        print("done", flush=True)
"""


def finished(bucket: Bucket) -> set[int]:
    """Which runs count as done, with the values that they must have."""
    try:
        ds = sk.open(bucket.url, storage_options=bucket.options).load()
    except sk.StoreError:
        return set()
    done = ds["status"].values == 1
    np.testing.assert_array_equal(ds["y"].values[done], 2.0 * ds["a"].values[done])
    assert [len(text) for text in ds["text"].values[done]] == ds["a"].values[done].tolist()
    return set(ds["a"].values[done].tolist())


def kill_and_resume(bucket: Bucket, start: Start, ledger: Any, wait: Callable[[Any], None]) -> None:
    arguments = (bucket.url, json.dumps(bucket.options), ledger, 40)
    first = start(DRIVER, *arguments)
    wait(first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    Path(f"{ledger}.half").unlink(missing_ok=True)
    done = finished(bucket)
    before = len(ledger.read_text().split()) if ledger.exists() else 0
    second = start(DRIVER, *arguments)
    _, err = second.communicate(timeout=2 * LIMIT)
    assert second.returncode == 0, err
    again = list(map(int, ledger.read_text().split()[before:]))
    assert not done & set(again)
    assert len(set(again)) == len(again)
    assert finished(bucket) == set(range(40))
    assert len(sk.verify(bucket.url, storage_options=bucket.options)) == 0
    states = [
        one["state"] for one in sk.receipt(bucket.url, storage_options=bucket.options).records
    ]
    assert states[-1] == "done"


def test_what_counted_survives_a_kill_and_the_next_run_goes_on(
    bucket: Bucket, start: Start, tmp_path: Any
) -> None:
    def until_some_count(process: Any) -> None:
        until(lambda: len(finished(bucket)) >= 3, process)
        assert len(finished(bucket)) < 40

    (tmp_path / "ledger.half").touch()  # it runs half of them and no more
    kill_and_resume(bucket, start, tmp_path / "ledger", until_some_count)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12 if EXHAUSTIVE else 4))
def test_a_kill_at_any_moment_loses_nothing_that_counted(
    endpoint: str, start: Start, tmp_path: Any, seed: int
) -> None:
    def until_a_moment(process: Any) -> None:
        assert process.stdout.readline() == "begun\n"
        random = np.random.default_rng(seed)
        timer = threading.Event()
        timer.wait(float(random.uniform(0, 4)))

    kill_and_resume(made_bucket(endpoint), start, tmp_path / "ledger", until_a_moment)


def locks(bucket: Bucket) -> dict[str, dict[str, Any]]:
    found = {}
    for key in bucket.listed("runs/a.zarr.sweepkit/lock/"):
        body = bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
        found[key] = json.loads(body)
    return found


def put_lock(bucket: Bucket, **said: Any) -> None:
    run(bucket)
    ((key, last),) = locks(bucket).items()
    body = json.dumps({**last, "ended": False, **said}).encode()
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body)


def test_a_second_writer_is_told_who_writes_and_since_when(bucket: Bucket) -> None:
    with (
        target_of(bucket.url, bucket.options).hold(),
        pytest.raises(
            sk.StoreBusyError,
            match=rf"{bucket.url} is being written by process {os.getpid()} on \S+, since 20\d\d-",
        ),
    ):
        run(bucket)
    assert bucket.listed() == []  # nothing came of it


def test_a_writer_on_another_machine_is_believed_while_its_signs_are_fresh(bucket: Bucket) -> None:
    put_lock(bucket, pid=17, host="elsewhere", process={"machine": "other"}, at=time.time())
    with pytest.raises(sk.StoreBusyError, match=r"process 17 on elsewhere.*30 s without"):
        run(bucket, 6)


def test_a_writer_that_stays_silent_is_followed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SILENCE", 0.3)
    monkeypatch.setattr(lease, "WATCH", 0.05)
    put_lock(bucket, host="elsewhere", process={"machine": "other"}, at=time.time() - 99, signs=7)
    run(bucket, 6)
    assert [one["ended"] for one in locks(bucket).values()] == [True]


def test_a_writer_that_gives_a_sign_while_it_is_watched_is_believed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WATCH", 0.05)
    put_lock(bucket, host="elsewhere", process={"machine": "other"}, at=time.time() - 99, signs=7)
    ((key, said),) = locks(bucket).items()
    seen = threading.Event()
    read = lease._read

    def noticed(path: Any) -> dict[str, Any]:
        found = read(path)
        if seen.is_set():
            return {**found, "signs": 8}
        seen.set()
        return found

    monkeypatch.setattr(lease, "_read", noticed)
    with pytest.raises(sk.StoreBusyError, match="elsewhere"):
        run(bucket, 6)
    assert locks(bucket) == {key: said}


def write_late(bucket: Bucket, meanwhile: Callable[[Any], None]) -> None:
    """Hold a store, have something happen, and write."""
    store = target_of(bucket.url, bucket.options)
    with store.hold():
        store.open()
        status = store.read("status", store.layout.box(0))
        meanwhile(store)
        store.write("status", store.layout.box(0), np.zeros_like(status))


def test_who_was_followed_writes_no_more(bucket: Bucket) -> None:
    run(bucket)

    def followed(store: Any) -> None:
        (key,) = [key for key, said in locks(bucket).items() if not said.get("ended")]
        number = int(key.rpartition("/")[2].removesuffix(".json"))
        later = key.replace(f"{number:09}", f"{number + 1:09}")
        bucket.client.put_object(Bucket=bucket.name, Key=later, Body=b"{}")
        store.root.store.allowed.__self__.sign()

    with pytest.raises(sk.StoreError, match="another process has taken over"):
        write_late(bucket, followed)
    assert sk.open(bucket.url, storage_options=bucket.options)["y"].sel(a=4, b=2.0) == 8


def test_who_could_give_no_sign_for_long_writes_no_more(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(bucket)

    def frozen(store: Any) -> None:
        now = lease._now()
        monkeypatch.setattr(lease, "_now", lambda: now + lease.CAREFUL + 1)

    with pytest.raises(sk.StoreError, match=r"for \d+ s it could not be told that this process"):
        write_late(bucket, frozen)
    monkeypatch.undo()
    assert run(bucket, 6)["y"].sel(a=5, b=2.0) == 10  # it is not in its own way


# --- bad input, and a network that fails ---------------------------------------------------------


def test_a_bucket_that_is_not_there_is_told_before_the_first_run(bucket: Bucket) -> None:
    url = f"s3://not-{bucket.name}/a.zarr"
    with pytest.raises(sk.StoreError, match=rf"{url} cannot be written: .*bucket does not exist"):
        sk.run(sweep(), url, storage_options=bucket.options, **QUIET)
    with pytest.raises(sk.StoreError, match=rf"{url} holds no sweep"):
        sk.open(url, storage_options=bucket.options)


def test_what_names_no_place_is_refused() -> None:
    with pytest.raises(ValueError, match="names a bucket and no place in it"):
        sk.run(sweep(), "s3://bucket", **QUIET)
    with pytest.raises(ValueError, match="protocol 's4', which fsspec does not know"):
        sk.open("s4://bucket/a.zarr")
    with pytest.raises(TypeError, match=r"5 is no store; give a path, a URL"):
        sk.run(sweep(), 5, **QUIET)
    with pytest.raises(TypeError, match="storage_options is a str"):
        sk.open("s3://bucket/a.zarr", storage_options="secret")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one slash where a URL has two: 's3://bucket/a\.zarr'"):
        sk.run(sweep(), "s3:/bucket/a.zarr", **QUIET)
    assert not os.path.exists("s3:")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nonsense": 1}, "cannot be asked for: .*'nonsense'; see whether storage_options are"),
        ({"client_kwargs": {"a": 1}}, "cannot be asked for: .*'a'; see whether"),
        ({"config_kwargs": 3}, r"storage_options \(config_kwargs, key, secret\) do not fit 's3'"),
        ({3: 4}, r"storage_options \(3, key, secret\) do not fit 's3': keywords must be strings"),
        ({"endpoint_url": "nowhere"}, "cannot be asked for: Invalid endpoint: nowhere"),
    ],
)
def test_options_that_do_not_fit_are_told(options: dict[Any, Any], told: str) -> None:
    given = {"key": "key", "secret": "hidden", **options}
    with pytest.raises(ValueError, match=told) as fault:
        sk.run(sweep(), "s3://bucket/a.zarr", storage_options=given, **QUIET)
    assert "hidden" not in str(fault.value)


def test_options_for_a_local_path_are_refused(store: str) -> None:
    with pytest.raises(ValueError, match=r"storage_options \(key\) are for URLs") as told:
        sk.run(sweep(), store, storage_options={"key": "hidden"}, **QUIET)
    assert "hidden" not in str(told.value)
    assert not os.path.exists(store)


def allow(endpoint: str, requests: bytes) -> None:
    """Have so many requests allowed whatever their credentials, at all servers of this process."""
    url, plain = f"{endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    ask = urllib.request.Request(url, data=requests, headers=plain, method="POST")
    urllib.request.urlopen(ask).read()


def test_credentials_that_are_refused_are_told(serve: Serve) -> None:
    server = serve()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    bucket = made_bucket(endpoint)
    run(bucket)
    allow(endpoint, b"0")
    with pytest.raises(sk.StoreError, match=r"cannot be reached: permission denied .*credentials"):
        sk.open(bucket.url, storage_options=bucket.options)
    with pytest.raises(sk.StoreError, match=r"permission denied .*credentials") as told:
        run(bucket, 6)
    assert "secret" not in str(told.value)
    allow(endpoint, b"inf")


@pytest.mark.slow
def test_an_endpoint_that_goes_down_costs_nothing_that_counted(serve: Serve) -> None:
    server = serve()
    host, port = server.get_host_and_port()
    bucket = made_bucket(f"http://{host}:{port}")
    seen = threading.Event()

    def stop_in_the_middle(a: int) -> float:
        if a == 20 and not seen.is_set():
            while not finished_some():
                pass
            server.stop()
            seen.set()
        return a * 2.0

    def finished_some() -> bool:
        store = target_of(bucket.url, bucket.options)
        store.peek()
        return bool((store.read("status", store.layout.box(0)) == 1).any())

    sweep = sk.Sweep(lambda a: stop_in_the_middle(a), sk.grid(a=range(40)), version="1")
    few = {"retries": {"max_attempts": 1}}
    options = {**QUIET, "storage_options": {**bucket.options, "config_kwargs": few}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "SLOW", -1.0)
        patch.setattr(intake, "RESTS", 0.0)
        patch.setattr(Objects, "pause_seconds", 0.0)
        with pytest.raises(UnreachableError, match=r"cannot be reached: .*; what counted as done"):
            sk.run(sweep, bucket.url, **options)
    again = serve_at(port)
    try:
        ds = sk.run(sweep, bucket.url, **options)
        assert ds["result"].values.tolist() == [2.0 * a for a in range(40)]
        assert (ds["attempts"].values[:15] == 1).any()
    finally:
        again.stop()


def serve_at(port: int) -> Any:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    return server


def test_files_that_runs_leave_are_refused_where_they_cannot_be_kept(bucket: Bucket) -> None:
    with pytest.raises(
        ValueError, match=r"in a folder alone, and s3://.* is none: leave out keep_scratch="
    ):
        run(bucket, keep_scratch=True)


def test_inputs_are_staged_on_this_machine(bucket: Bucket, tmp_path: Any) -> None:
    (tmp_path / "model.txt").write_text("7")

    def weigh(a: int, model: str) -> float:
        with open(model) as file:
            return a * float(file.read())

    sweep = sk.Sweep(weigh, sk.grid(a=[1, 2]), inputs={"model": str(tmp_path / "model.txt")})
    ds = sk.run(sweep, bucket.url, storage_options=bucket.options, **QUIET)
    assert ds["result"].values.tolist() == [7.0, 14.0]

"""Every analysis on every state of a store: an answer, or a refusal that says why."""

import signal

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
import sweepkit.analysis as analysis
from sweepkit.analysis.counts import finished_prefix
from tests.analysis.planted import grid, in_random_order, sample

RNG = np.random.default_rng(17)
SHAPE = (5, 4, 3)
AXES = {"gain": np.arange(5.0), "mode": np.array(["a", "b", "c", "d"]),
        "rep": ("replicate", np.arange(3))}  # fmt: skip


def store(failed, status):
    ds = grid(np.broadcast_to(failed, SHAPE), np.broadcast_to(status, SHAPE), **AXES)
    dims = ds["failed"].dims
    bad = np.isin(ds["status"].values, [2, 3, 4, 5])
    error = np.where(bad, "ValueError: bad", "").astype(object)
    return ds.assign(y=(dims, RNG.normal(size=SHAPE)), error=(dims, error), log=(dims, error))


SOME = RNG.random(SHAPE) < 0.3
STORES = {
    "all pass": store(False, 1),
    "all fail": store(True, 1),
    "all error": store(False, 2),
    "nothing run": store(False, 0),
    "all skipped": store(False, 6),
    "running": in_random_order(store(SOME, (RNG.random(SHAPE) < 0.4).astype(int)), 1, 6),
    "mixed": store(SOME, RNG.integers(0, 7, SHAPE)),
    "finished": store(SOME, 1),
    "one run": store(SOME, 1).isel(gain=[0], mode=[0], rep=[0]),
    "one value": store(SOME, 1).isel(gain=[2]),
    "unlabelled replicates": store(SOME, 1).drop_vars("rep"),
    "not from sweepkit": xr.Dataset(
        {"failed": (("u", "v"), RNG.random((6, 7)) < 0.4), "y": (("u", "v"), RNG.random((6, 7)))},
        coords={"u": np.arange(6), "v": np.linspace(0, 1, 7)},
    ),
    "scattered": sample(
        RNG.random(60) < 0.3, a=RNG.random(60), b=RNG.random(60), mass=("scenario", RNG.random(60))
    ).assign(y=("sample", RNG.random(60))),
    "dates": grid(
        [0, 1, 1, 0], when=np.array(["2020-01-01", "2020-01-02", "2020-02-01", "2021-01-01"],
                                    dtype="datetime64[ns]")
    ).assign(y=("when", [1.0, 2.0, 3.0, 4.0])),
    "durations": sample(
        [0, 1, 1, 0], wait=np.array([1, 5, 60, 3600], dtype="timedelta64[s]").astype("m8[ns]")
    ).assign(y=("sample", [1.0, 2.0, 3.0, 4.0])),
    "booleans": grid([[0, 1], [1, 1]], on=[False, True], gain=[1.0, 2.0]).assign(
        y=(("on", "gain"), [[1.0, 2.0], [3.0, 4.0]])
    ),
    "no run": sample(np.zeros(0, bool), a=np.zeros(0)).assign(y=("sample", np.zeros(0))),
}  # fmt: skip


def nominal(ds):
    t = analysis.table(ds)
    return {k: v for k, v in t.point(0).items() if t[k].role != "replicate"}


CALLS = {
    "failure_rate": analysis.failure_rate,
    "held_up": analysis.held_up,
    "rate": analysis.rate,
    "convergence": analysis.convergence,
    "importance": analysis.importance,
    "importance of y": lambda ds: analysis.importance(ds, of="y"),
    "pairs": analysis.pairs,
    "combinations": analysis.combinations,
    "regions": lambda ds: analysis.regions(ds).boxes,
    "islands": analysis.islands,
    "kinds": analysis.kinds,
    "distribution": lambda ds: analysis.distribution(ds, "y"),
    "robustness": analysis.robustness,
    "robustness of y": lambda ds: analysis.robustness(ds, "y"),
    "counterexample": lambda ds: analysis.counterexample(ds, nominal(ds)),
    "safe_box": lambda ds: analysis.safe_box(ds, nominal(ds)),
    "safe_box anywhere": analysis.safe_box,
    "explain": lambda ds: analysis.explain(ds, 0),
    "volumes": analysis.volumes,
    "refined_rate": analysis.refined_rate,
    **{
        f"suggest {goal}": lambda ds, goal=goal: analysis.suggest(ds, 4, goal=goal).points
        for goal in ("boundary", "rate", "confirm", "replicate")
    },
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("call", CALLS)
def test_every_store_is_answered_or_refused_with_the_reason(call, store):
    try:
        got = CALLS[call](STORES[store])
    except analysis.UnanswerableError:
        return
    assert got is not None
    assert "basis" not in getattr(got, "attrs", {}) or got.attrs["basis"]


def stopped(path, sweep, after):
    """A real store whose sweep was stopped after so many runs."""
    calls = 0

    def counted(**point):
        nonlocal calls
        calls += 1
        if calls == after:
            signal.raise_signal(signal.SIGINT)
        return sweep.simulator(**point)

    names = sweep.grid.names
    code = f"lambda {', '.join(names)}: run(" + ", ".join(f"{n}={n}" for n in names) + ")"
    simulator = eval(code, {"run": counted})
    cut = sk.Sweep(simulator, sweep.grid, requirements=sweep.requirements, version="1")
    with pytest.raises(KeyboardInterrupt):
        sk.run(cut, path, backend="sequential", progress=False)
    return sk.open(path)


@pytest.fixture
def written_at_once(monkeypatch):
    import importlib

    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "SLOW", -1.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "RESTS", 0.0)


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("mask", [None, "a + b < 60"])
@pytest.mark.parametrize("after", [40, 90, 160])
def test_half_finished_store_bounds_its_final_rate_by_its_random_prefix(tmp_path, after, mask):
    whole = sk.grid(a=[*range(20, 40), *range(20)], b=range(50))
    points = whole if mask is None else whole.where(mask)
    sweep = sk.Sweep(lambda a, b: {"y": a * b}, points, requirements=["y < 600"], version="1")
    ds = stopped(tmp_path / "half.zarr", sweep, after)
    t = analysis.table(ds)
    prefix = finished_prefix(t)
    done = int((ds["status"] == 1).sum())
    assert after - 10 <= done <= after
    assert len(prefix) >= min(after, 100) * 0.6
    assert (ds["status"].values.reshape(-1)[prefix] == 1).all()
    row = analysis.rate(ds).iloc[0]
    assert row["basis"] == "in progress"
    assert row["high"] - row["low"] < 0.6
    a, b = np.meshgrid(np.arange(40), np.arange(50), indexing="ij")
    fails = a * b >= 600
    truth = fails.mean() if mask is None else fails[a + b < 60].mean()
    assert row["low"] <= truth <= row["high"]
    k = int((ds["y"].values.reshape(-1)[prefix] >= 600).sum())
    n = int((a + b < 60).sum()) if mask else 2000
    np.testing.assert_allclose(
        [row["low"], row["high"]], analysis.anytime_interval(k, len(prefix), n), atol=0.05
    )
    ds = sk.run(sweep, tmp_path / "half.zarr", backend="sequential", progress=False)
    row = analysis.rate(ds).iloc[0]
    assert row["basis"] == "census"
    assert row["low"] == row["high"] == pytest.approx(truth)


@pytest.mark.parametrize("store", ["finished", "running", "not from sweepkit", "scattered"])
@pytest.mark.parametrize("call", ["failure_rate", "held_up", "importance", "pairs", "kinds"])
def test_the_first_report_answers_rather_than_refuses(call, store):
    CALLS[call](STORES[store])

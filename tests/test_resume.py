"""A sweep that meets a store: nothing to do, growth in any place, or a refusal that says why."""

from __future__ import annotations

import importlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sweepkit as sk
from sweepkit import format1
from sweepkit.status import NAMES, Status
from tests.conftest import EXHAUSTIVE

Ran = list[tuple[Any, ...]]


class Counted:
    """Runs sweeps in this process and tells which points were run since it was last asked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ran: Ran = []

    def __call__(self, sweep: sk.Sweep, **options: Any) -> xr.Dataset:
        """The whole store once the sweep is in it."""
        self.ran.clear()
        sk.run(sweep, self.path, backend="sequential", progress=False, **options)
        return sk.open(self.path)

    def note(self, *values: Any) -> None:
        self.ran.append(values)


@pytest.fixture
def counted(store: str) -> Counted:
    return Counted(store)


def sums(counted: Counted) -> Callable[..., Any]:
    note = counted.note

    def simulate(a: float, b: float, seed: int) -> dict[str, float]:
        note(a, b)
        return {"y": 10 * a + b, "seed_seen": float(seed)}

    return simulate


def sweep_of(counted: Counted, grid: sk.Grid, **options: Any) -> sk.Sweep:
    return sk.Sweep(sums(counted), grid, version="1", **options)


# --- nothing to do -----------------------------------------------------------------------------


def test_the_same_call_on_a_finished_store_runs_nothing(counted: Counted) -> None:
    grid = sk.grid(a=[1, 2], b=[3, 4])
    first = counted(sweep_of(counted, grid)).load()
    assert len(counted.ran) == 4
    second = counted(sweep_of(counted, grid)).load()
    assert counted.ran == []
    xr.testing.assert_identical(first, second)


def test_changed_requirements_units_labels_and_name_run_nothing_and_show(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=[1, 2], b=[3])))
    grid = sk.grid(
        a=sk.design([1, 2], units="m", long_name="length"), b=sk.scenario([3], units="kg")
    )
    ds = counted(
        sweep_of(
            counted,
            grid,
            requirements=["y > 15"],
            outputs={"y": sk.output(units="N", long_name="force")},
            name="other",
        )
    )
    assert counted.ran == []
    assert ds["a"].attrs == {"role": "design", "units": "m", "long_name": "length"}
    assert ds["b"].attrs == {"role": "scenario", "units": "kg"}
    assert ds["y"].attrs["units"] == "N"
    assert ds["y"].attrs["long_name"] == "force"
    assert sk.failed(ds).values.ravel().tolist() == [1.0, 0.0]
    with xr.open_zarr(counted.path) as plain:
        assert plain["a"].attrs["units"] == "m"


def test_units_taken_away_are_gone(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=sk.design([1, 2], units="m"), b=[3])))
    ds = counted(sweep_of(counted, sk.grid(a=[1, 2], b=[3])))
    assert "units" not in ds["a"].attrs


def test_equal_values_of_another_type_are_the_same_points(counted: Counted) -> None:
    first = counted(sweep_of(counted, sk.grid(a=[1, 2], b=[0]))).load()
    second = counted(sweep_of(counted, sk.grid(a=np.array([1.0, 2.0]), b=[np.int8(0)])))
    assert counted.ran == []
    xr.testing.assert_identical(first, second.load())


# --- growth ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "a", "b"),
    [
        (65_536, [0, 1, 2], [5, 6]),
        (4, [0, 1, 2], [5, 6]),
        (65_536, [1, 1.5, 2], [5, 6]),
        (2, [1, 1.5, 2], [5, 6]),
        (4, [1, 2, 3], [5, 6]),
        (65_536, [9, 2, 8, 1, 7], [6, 4, 5]),
        (4, [9, 2, 8, 1, 7], [6, 4, 5]),
        (1, [2, 7, 1], [6, 4, 5]),
        (3, [1, 2], [4, 5, 5.5, 6, 7]),
        (65_536, [2, 3], [6, 7]),
        (1, [3], [7]),
    ],
)
def test_growth_in_any_place_runs_only_what_is_new(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, block: int, a: list[float], b: list[float]
) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", block)
    before = counted(sweep_of(counted, sk.grid(a=[1, 2], b=[5, 6]))).load()
    ds = counted(sweep_of(counted, sk.grid(a=a, b=b))).load()
    new = {(x, y) for x in a for y in b} - {(x, y) for x in (1, 2) for y in (5, 6)}
    assert sorted(counted.ran) == sorted(new)
    declared = ds.sel(a=a, b=b)
    assert (declared["status"] == Status.DONE).all()
    assert (declared["y"] == 10 * declared["a"] + declared["b"]).all()
    kept = ds.sel(a=[1, 2], b=[5, 6])
    for name in before.data_vars:
        assert np.array_equal(kept[name].values, before[name].values), name
    assert [x for x in ds["a"].values.tolist() if x in a] == a
    assert [y for y in ds["b"].values.tolist() if y in b] == b
    assert counted(sweep_of(counted, sk.grid(a=a, b=b))).identical(ds)
    assert counted.ran == []


@settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
            st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=1, max_size=3, unique=True),
        ),
        min_size=2,
        max_size=4,
    ),
    block=st.sampled_from([2, 5, 65_536]),
)
def test_any_history_of_growth_runs_each_point_once_and_keeps_seeds(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[list[int], list[float]]],
    block: int,
) -> None:
    counted = Counted(str(tmp_path_factory.mktemp("grown") / "a.zarr"))
    ran: Ran = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format1, "BLOCK_RUNS", block)
        for a, b in steps:
            ds = counted(sweep_of(counted, sk.grid(a=a, b=b))).load()
            ran += counted.ran
            declared = ds.sel(a=a, b=b)
            assert (declared["y"] == 10 * declared["a"] + declared["b"]).all()
    assert len(set(ran)) == len(ran)
    assert set(ran) == {(x, y) for a, b in steps for x in a for y in b}
    done = ds["status"] == Status.DONE
    assert int(done.sum()) == len(ran)
    alone = Counted(str(tmp_path_factory.mktemp("alone") / "a.zarr"))
    whole = sk.grid(
        a=sorted({x for a, _ in steps for x in a}), b=sorted({y for _, b in steps for y in b})
    )
    reference = alone(sweep_of(alone, whole)).load()
    aligned = reference.sel(a=ds["a"], b=ds["b"])
    assert aligned["seed_seen"].where(done).equals(ds["seed_seen"])


MASKS: dict[str | None, Callable[[float, float], bool]] = {
    None: lambda a, b: True,
    "a * b < 4": lambda a, b: a * b < 4,
    "a > 1": lambda a, b: a > 1,
}


class Model:
    """What a store must hold, told session by session: (status, attempts) of each point."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.points: dict[tuple[float, float, int], tuple[int, int]] = {}

    def session(
        self,
        a: list[float],
        b: list[float],
        replicates: int | None,
        mask: str | None,
        bad: set[tuple[float, float]],
        rerun: str,
        limit: int | None,
    ) -> None:
        note = self.counted.note

        def simulate(a: float, b: float) -> dict[str, Any]:
            note(a, b)
            if (a, b) in bad:
                raise ValueError("bad")
            return {"y": a * 10 + b, "word": "w" * int(b)}

        grid = sk.grid(a=a, b=b, replicates=replicates)
        one = sk.Sweep(simulate, grid.where(mask) if mask else grid, version="1")
        stopped = False
        try:
            ds = self.counted(one, rerun=rerun or (), max_errors=limit)
        except sk.TooManyErrorsError:
            stopped = True
            ds = sk.open(self.counted.path)
        ran = Counter(self.counted.ran)
        wanted = self._expect(a, b, replicates or 1, mask, bad, rerun)
        to_run = [p for p, (_, new) in wanted.items() if new]
        assert not ran - Counter((x, y) for x, y, _ in to_run), "run too often"
        assert stopped or ran == Counter((x, y) for x, y, _ in to_run)
        self._compare(ds.load(), wanted, stopped)

    def _expect(
        self,
        a: list[float],
        b: list[float],
        replicates: int,
        mask: str | None,
        bad: set[tuple[float, float]],
        rerun: str,
    ) -> dict[tuple[float, float, int], tuple[int, bool]]:
        """Status of each declared point after a session that is not stopped, and if it is run."""
        wanted = {}
        for x, y, n in product(a, b, range(replicates)):
            status, _ = self.points.get((x, y, n), (0, 0))
            if rerun and NAMES[status] == rerun:
                status = Status.PENDING
            open_ = status in (Status.PENDING, Status.SKIPPED)
            if open_ and not MASKS[mask](x, y):
                wanted[x, y, n] = int(Status.SKIPPED), False
            elif open_:
                wanted[x, y, n] = int(Status.ERROR if (x, y) in bad else Status.DONE), True
            else:
                wanted[x, y, n] = status, False
        return wanted

    def _compare(self, ds: xr.Dataset, wanted: Any, stopped: bool) -> None:
        ds = ds if "replicate" in ds.dims else ds.expand_dims(replicate=[0], axis=-1)
        open_ = (Status.PENDING, Status.SKIPPED)
        values = [ds[name].values.ravel() for name in ("status", "attempts", "word", "error")]
        y = ds["y"].values.ravel()
        points = list(product(*(ds[dim].values.tolist() for dim in ds["status"].dims)))
        at = [ds["status"].dims.index(dim) for dim in ("a", "b", "replicate")]
        for index, stored in enumerate(zip(*values, y, strict=True)):
            point = tuple(points[index][place] for place in at)
            status, attempts, word, error, result = stored
            before = self.points.get(point, (0, 0))
            expected, new = wanted.get(point, (before[0], False))
            late = (stopped or point not in wanted) and expected in open_ and status in open_
            late |= stopped and new and status in open_
            assert status == expected or late, (point, status, expected)
            assert attempts == before[1] + (new and status not in open_), point
            assert word == ("w" * int(point[1]) if status == Status.DONE else "")
            assert error == ("ValueError: bad" if status == Status.ERROR else "")
            assert result == point[0] * 10 + point[1] or (status != 1 and np.isnan(result))
            self.points[point] = int(status), int(attempts)  # type: ignore[index]


def histories(counted: Counted, patch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    patch.setattr(format1, "BLOCK_RUNS", chance.choice([1, 3, 7, 65_536]))
    patch.setattr(format1, "TEXT_RUNS", chance.choice([1, 4, 256]))
    plan = importlib.import_module("sweepkit.plan")
    patch.setattr(plan, "FIRST_SECONDS", chance.choice([0.0, 0.05]))
    model = Model(counted)
    # The first session makes the outputs known.
    model.session([0.0], [0.0], None, None, set(), "", None)
    most = None
    for _ in range(chance.randint(2, 5)):
        a = chance.sample([0.0, 1.0, 1.5, 2.0, 3.0], chance.randint(1, 4))
        b = chance.sample([0.0, 1.0, 2.0, 3.0], chance.randint(1, 3))
        if most is not None or chance.random() < 0.3:
            most = max(most or 1, chance.randint(1, 3))
        bad = {point for point in product(a, b) if chance.random() < 0.2}
        model.session(
            a,
            b,
            None if most is None else chance.randint(1, most),
            chance.choice(list(MASKS)),
            bad,
            chance.choice(["", "", "error", "done"]),
            chance.choice([None, None, 0, 1]),
        )
    assert sk.verify(counted.path).empty


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_sessions_leaves_what_each_of_them_was_told(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    histories(counted, monkeypatch, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250 if EXHAUSTIVE else 120))
def test_any_of_many_histories_of_sessions_leaves_what_each_of_them_was_told(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    histories(counted, monkeypatch, seed)


def test_more_replicates_run_only_the_new_ones(counted: Counted) -> None:
    note = counted.note

    def draw(a: float, rng: np.random.Generator) -> float:
        note(a)
        return float(rng.random())

    def sweep(**options: Any) -> sk.Sweep:
        return sk.Sweep(draw, sk.grid(a=[1, 2, 3], **options), version="1")

    none = counted(sweep()).load()
    two = counted(sweep(replicates=2)).load()
    assert sorted(counted.ran) == [(1,), (2,), (3,)]
    five = counted(sweep(replicates=5)).load()
    assert len(counted.ran) == 9
    assert np.array_equal(five["result"].sel(replicate=0).values, none["result"].values)
    assert np.array_equal(five["result"].sel(replicate=[0, 1]).values, two["result"].values)
    assert len(np.unique(five["result"].values)) == 15
    direct = Counted(counted.path.replace("a.zarr", "b.zarr"))
    assert np.array_equal(direct(sweep(replicates=5))["result"].values, five["result"].values)


def test_a_parameter_joins_when_the_value_that_finished_runs_had_is_told(counted: Counted) -> None:
    note = counted.note

    def old(a: float, seed: int) -> dict[str, float]:
        note(a)
        return {"y": a, "seed_seen": seed}

    def new(a: float, seed: int, drag: float = 0.0) -> dict[str, float]:
        note(a, drag)
        return {"y": a - drag, "seed_seen": seed}

    before = counted(sk.Sweep(old, sk.grid(a=[1, 2]), version="1")).load()
    grid = sk.grid(a=[1, 2, 3], drag=sk.scenario([-1.0, 0.0, 1.0], units="N"))
    with pytest.raises(sk.DifferentSweepError, match=r"'drag' is not in the store.*was="):
        counted(sk.Sweep(new, grid, version="1"))
    ds = counted(sk.Sweep(new, grid, version="1"), was={"drag": 0.0}).load()
    assert sorted(counted.ran) == sorted(
        [(a, d) for a in (1, 2) for d in (-1.0, 1.0)] + [(3, d) for d in (-1.0, 0.0, 1.0)]
    )
    assert ds["drag"].values.tolist() == [-1.0, 0.0, 1.0]
    assert ds["drag"].attrs == {"role": "scenario", "units": "N"}
    assert (ds["y"] == ds["a"] - ds["drag"]).all()
    kept = ds.sel(a=[1, 2], drag=0.0)["seed_seen"]
    assert np.array_equal(kept.values, before["seed_seen"].values)
    again = counted(sk.Sweep(new, grid, version="1"), was={"drag": 0.0})
    assert counted.ran == []
    assert again.identical(ds)


def test_seeds_stay_as_they_are_whatever_was_says_later(counted: Counted) -> None:
    def simulate(a: float, seed: int, drag: float = 0.0) -> float:
        return float(seed)

    def sweep(a: list[int]) -> sk.Sweep:
        return sk.Sweep(simulate, sk.grid(a=a, drag=[0.0, 1.0]), version="1")

    counted(sk.Sweep(simulate, sk.grid(a=[1]), version="1"))
    counted(sweep([1]), was={"drag": 0.0})
    with pytest.raises(ValueError, match=r"gives 1\.0 for parameter 'drag'.*told 0\.0"):
        counted(sweep([1, 2]), was={"drag": 1.0})


def test_was_for_a_parameter_that_was_there_from_the_beginning_is_refused(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=[1], b=[1])))
    with pytest.raises(ValueError, match="'b'"):
        counted(sweep_of(counted, sk.grid(a=[1, 2], b=[1])), was={"b": 1})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["one", "two"], ["zero", "one", "longer than all", "two", "é", "日本", ""]),
        (
            np.array(["2000-01-01T00:35", "2000-01-01T06:35"], dtype="datetime64[ns]"),
            np.array(
                [
                    "1999-12-31",
                    "2000-01-01T00:35",
                    "2000-01-01T00:35:00.000000001",
                    "2000-01-01T06:35",
                ],
                dtype="datetime64[ns]",
            ),
        ),
        (pd.to_timedelta(["1h", "36h"]), pd.to_timedelta(["36h", "1ns", "1h"])),
        ([True], [False, True]),
        ([1, 2], [2**53 + 1, 1, 2]),
        ([2**63 + 5], [1, 2**63 + 5, 2**63 + 6]),
        ([1], [2**63 + 5, 1]),
        ([0.0, 1e-300], [-1.0, 0.0, 1e-300, 1e300, float("inf")]),
    ],
)
def test_axes_of_every_kind_grow_exactly(counted: Counted, before: Any, after: Any) -> None:
    note = counted.note

    def simulate(x: Any) -> dict[str, str]:
        note(x)
        return {"told": repr(x)}

    counted(sk.Sweep(simulate, sk.grid(x=before), version="1"))
    first = list(counted.ran)
    ds = counted(sk.Sweep(simulate, sk.grid(x=after), version="1")).load()
    assert len(counted.ran) == len(after) - len(before)
    assert not {repr(one) for one in first} & {repr(one) for one in counted.ran}
    declared = sk.grid(x=after)["x"]
    assert ds["x"].values.tolist() == declared.values.tolist()
    assert ds["told"].values.tolist() == list(map(repr, declared.handed(np.arange(len(after)))))


def test_an_integer_that_a_float_cannot_hold_is_not_rounded_by_growth(counted: Counted) -> None:
    big = 2**60 + 1

    def simulate(x: float) -> float:
        return float(x)

    counted(sk.Sweep(simulate, sk.grid(x=[big, 1]), version="1"))
    with pytest.raises(ValueError, match=str(big)):
        counted(sk.Sweep(simulate, sk.grid(x=[0.5]), version="1"))
    assert sk.open(counted.path)["x"].values.tolist() == [big, 1]


def test_labels_grow_and_hand_over_their_objects(counted: Counted) -> None:
    note = counted.note

    def simulate(law: Callable[[float], float]) -> float:
        note(law(2.0))
        return law(2.0)

    counted(sk.Sweep(simulate, sk.grid(law=sk.values({"square": lambda x: x * x})), version="1"))
    laws = {"cube": lambda x: x**3, "square": lambda x: x * x}
    ds = counted(sk.Sweep(simulate, sk.grid(law=sk.values(laws)), version="1"))
    assert counted.ran == [(8.0,)]
    assert ds["law"].values.tolist() == ["cube", "square"]
    assert ds["result"].values.tolist() == [8.0, 4.0]


def test_vectors_and_pairs_grow_by_whole_points(counted: Counted) -> None:
    note = counted.note

    def simulate(x0: np.ndarray[Any, Any], gain: float, mass: float) -> float:
        note(tuple(x0.tolist()), gain, mass)
        return float(x0.sum()) + gain * mass

    def grid(cases: Any, pairs: Any) -> sk.Grid:
        return sk.grid(
            sk.paired({"gain": [g for g, _ in pairs], "mass": [m for _, m in pairs]}, dim="pair"),
            x0=sk.values(np.array(cases), dims=("case", "state")),
        )

    counted(sk.Sweep(simulate, grid([[0.0, 1.0]], [(1.0, 1.0), (1.0, 2.0)]), version="1"))
    whole = grid([[2.0, 1.0], [0.0, 1.0]], [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0)])
    ds = counted(sk.Sweep(simulate, whole, version="1")).load()
    assert len(counted.ran) == 6 - 2
    assert ds["x0"].values.tolist() == [[2.0, 1.0], [0.0, 1.0]]
    assert ds["gain"].values.tolist() == [2.0, 1.0, 1.0]
    assert (ds["result"] == ds["x0"].sum("state") + ds["gain"] * ds["mass"]).all()


def test_a_sampled_set_is_extended_by_continuing_it(counted: Counted) -> None:
    def simulate(a: float, n: int) -> float:
        return a * n

    def sweep(size: int) -> sk.Sweep:
        return sk.Sweep(simulate, sk.sobol({"a": (0, 1), "n": range(100)}, size=size), version="1")

    first = counted(sweep(8)).load()
    ds = counted(sweep(16)).load()
    assert int((ds["attempts"] == 1).sum()) == 16
    assert ds.isel(sample=slice(8))["result"].equals(first["result"])


@pytest.mark.parametrize("order", list(permutations([3, 1, 2])))
def test_a_reordered_axis_runs_nothing_and_is_read_in_the_order_declared(
    counted: Counted, order: tuple[int, ...]
) -> None:
    counted(sweep_of(counted, sk.grid(a=[1, 2, 3], b=[0])))
    ds = counted(sweep_of(counted, sk.grid(a=list(order), b=[0])))
    assert counted.ran == []
    assert ds["a"].values.tolist() == list(order)
    assert ds["y"].values.ravel().tolist() == [10 * a for a in order]


def test_dims_declared_in_another_order_run_nothing(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=[1, 2, 3], b=[0, 1])))
    ds = counted(sweep_of(counted, sk.grid(b=[0, 1], a=[1, 2, 3])))
    assert counted.ran == []
    assert ds["y"].dims == ("b", "a")
    assert (ds["y"] == 10 * ds["a"] + ds["b"]).all()


# --- near misses -------------------------------------------------------------------------------


def test_a_value_that_differs_by_rounding_is_refused_with_both_in_full(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=np.linspace(0, 0.9, 10), b=[0])))
    grown = [*np.linspace(0, 0.9, 10)[[0, 1]], 0.3]
    stored = np.linspace(0, 0.9, 10)[3].item()
    assert stored != 0.3
    with pytest.raises(sk.NearMissError, match=rf"0\.3.*'a'.*{stored!r}") as told:
        counted(sweep_of(counted, sk.grid(a=grown, b=[0])))
    assert "snap=True" in str(told.value)
    assert counted.ran == []
    ds = counted(sweep_of(counted, sk.grid(a=grown, b=[0])), snap=True)
    assert counted.ran == []
    assert ds.sizes["a"] == 10
    counted(sweep_of(counted, sk.grid(a=[0.1 * 3], b=[0])))
    assert counted.ran == []


def test_snapping_leaves_values_alone_that_are_merely_close(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=[1.0, 2.0], b=[0])))
    ds = counted(sweep_of(counted, sk.grid(a=[1.0 + 1e-9, 2.0], b=[0])), snap=True)
    assert counted.ran == [(1.0 + 1e-9, 0)]
    assert ds.sizes["a"] == 3


# --- a different sweep -------------------------------------------------------------------------


def other_sweeps() -> Iterator[Any]:
    def simulate(a: Any, b: Any) -> dict[str, Any]:
        return {"y": 1.0}

    def renamed(a: Any, c: Any) -> dict[str, Any]:
        return {"y": 1.0}

    grid = sk.grid(a=[1, 2], b=[3, 4])
    yield "renamed", sk.Sweep(renamed, sk.grid(a=[1, 2], c=[3, 4])), r"'c' is not in the store"
    yield (
        "renamed",
        sk.Sweep(renamed, sk.grid(a=[1, 2], c=[3, 4])),
        r"'b' of the store is not varied",
    )
    yield (
        "kind",
        sk.Sweep(simulate, sk.grid(a=["1"], b=[3])),
        r"'a' is a str, in the store a number",
    )
    yield (
        "bool",
        sk.Sweep(simulate, sk.grid(a=[True], b=[3])),
        r"'a' is a bool, in the store a number",
    )
    yield (
        "label",
        sk.Sweep(simulate, sk.grid(a=sk.values({"1": 1}), b=[3])),
        r"'a' is a label, in the store a number",
    )
    yield (
        "paired",
        sk.Sweep(simulate, sk.paired({"a": [1, 2], "b": [3, 4]}, dim="pair")),
        r"'a' varies along \(pair\), in the store along \(a\)",
    )
    yield "entropy", sk.Sweep(simulate, grid, entropy=1), r"entropy is 1, in the store 0"
    yield (
        "streams",
        sk.Sweep(simulate, grid, streams="common"),
        r"streams is 'common', in the store 'independent'",
    )
    yield "threads", sk.Sweep(simulate, grid, threads=2), r"threads is 2, in the store 1"
    yield (
        "output",
        sk.Sweep(simulate, grid, outputs={"z": sk.output()}),
        r"output 'z' is declared and not in the store",
    )
    yield (
        "dtype",
        sk.Sweep(simulate, grid, outputs={"y": sk.output(dtype="float32")}),
        r"dtype of output 'y' is float32, in the store float64",
    )
    yield (
        "dims",
        sk.Sweep(simulate, grid, outputs={"y": sk.output(dims="time", size=3)}),
        r"dims of output 'y' is \['time'\], in the store \[\]",
    )


@pytest.mark.parametrize(("what", "sweep", "told"), list(other_sweeps()))
def test_a_different_sweep_is_refused_with_the_difference_named(
    store: str, what: str, sweep: sk.Sweep, told: str
) -> None:
    def simulate(a: Any, b: Any) -> dict[str, Any]:
        return {"y": 1.0}

    def run(one: sk.Sweep) -> xr.Dataset:
        return sk.run(one, store, backend="sequential", progress=False)

    before = run(sk.Sweep(simulate, sk.grid(a=[1, 2], b=[3, 4]))).load()
    with pytest.raises(sk.DifferentSweepError, match=told) as error:
        run(sweep)
    assert "another path" in str(error.value)
    assert sk.open(store).load().identical(before)


# --- changed code ------------------------------------------------------------------------------


def test_changed_code_asks_keeps_or_runs_again(counted: Counted) -> None:
    def first(a: float) -> float:
        return a + 1

    def second(a: float) -> float:
        return a + 2

    grid = sk.grid(a=[1, 2])
    counted(sk.Sweep(first, grid, name="s"))
    with pytest.raises(sk.StaleCodeError, match=r"(?s)first.*nothing was deleted.*stale='keep'"):
        counted(sk.Sweep(second, grid, name="s"))
    assert sk.open(counted.path)["result"].values.tolist() == [2.0, 3.0]
    kept = counted(sk.Sweep(second, sk.grid(a=[1, 2, 3]), name="s"), stale="keep")
    assert kept["result"].values.tolist() == [2.0, 3.0, 5.0]
    assert kept["code"].values.tolist() == [0, 0, 1]
    unasked = counted(sk.Sweep(second, sk.grid(a=[1, 2, 3, 4]), name="s"))
    assert unasked["result"].values.tolist() == [2.0, 3.0, 5.0, 6.0]


def test_runs_kept_beside_one_version_are_asked_about_again_by_the_next(counted: Counted) -> None:
    def simulate(a: float) -> float:
        return a + 1

    def sweep(version: str) -> sk.Sweep:
        return sk.Sweep(simulate, sk.grid(a=[1, 2, 3]), name="s", version=version)

    counted(sweep("0"))
    counted(sweep("1"), stale="keep")
    counted(sweep("1"))
    with pytest.raises(sk.StaleCodeError, match="version '0' -> '2'"):
        counted(sweep("2"))
    ds = counted(sweep("2"), stale="rerun").load()
    assert ds["attempts"].values.tolist() == [2, 2, 2]


def test_stale_runs_are_run_again_when_asked(counted: Counted) -> None:
    def first(a: float) -> float:
        return a + 1

    def second(a: float) -> float:
        return a + 2

    counted(sk.Sweep(first, sk.grid(a=[1, 2, 3])))
    ds = counted(sk.Sweep(second, sk.grid(a=[2, 3, 4])), stale="rerun").load()
    assert ds["result"].sel(a=[2, 3, 4]).values.tolist() == [4.0, 5.0, 6.0]
    assert ds["result"].sel(a=1).item() == 2.0
    assert ds["attempts"].sel(a=[1, 2, 3, 4]).values.tolist() == [1, 2, 2, 1]
    assert ds["code"].sel(a=[1, 2, 3, 4]).values.tolist() == [0, 1, 1, 1]


def test_a_version_stands_for_the_code(counted: Counted) -> None:
    def first(a: float) -> float:
        return a + 1

    def second(a: float) -> float:
        return a + 2

    counted(sk.Sweep(first, sk.grid(a=[1]), version="1"))
    counted(sk.Sweep(second, sk.grid(a=[1]), version="1"))
    with pytest.raises(sk.StaleCodeError, match="version"):
        counted(sk.Sweep(second, sk.grid(a=[1]), version="2"))


def test_a_moved_and_commented_simulator_is_the_same_in_a_new_process(
    finish: Callable[..., str],
) -> None:
    head = "import sweepkit as sk\nran = []\nscale = 2\n"
    body = "def simulate(a):\n    ran.append(a)\n    return scale * a\n"
    other = "# moved\n\n\ndef simulate(a):\n    # said\n    ran.append(a)\n\n    return scale * a\n"
    call = (
        "sk.run(sk.Sweep(simulate, sk.grid(a=[1, 2])), 'a.zarr', backend='sequential',"
        " progress=False)\nprint(len(ran))\n"
    )
    assert finish(head + body + call).split() == ["2"]
    assert finish(head + "\n\n" + other + call).split() == ["0"]


def test_the_declaration_holds_no_pickle_and_no_code(counted: Counted) -> None:
    counted(sweep_of(counted, sk.grid(a=[1], b=sk.values([2])).where("a < b")))
    root = json.loads((sk_path(counted) / "zarr.json").read_text())
    said = json.loads(root["attributes"]["sweepkit"])
    assert said["masks"] == [{"text": "a < b"}]
    assert root["attributes"]["sweepkit_format"] == 1


def sk_path(counted: Counted) -> Any:
    from pathlib import Path

    return Path(counted.path)

"""Papermill's values get the types of the notebook's own; wrong names and values are refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from papermill.translators import PythonTranslator

import sweepkit as sk
from sweepkit.notebook import declared
from sweepkit.typed import NotThatTypeError, restored

DEFAULTS = """
import datetime
import numpy as np
import pandas as pd
%matplotlib inline
store = "runs.zarr"  # where
n_jobs: int = 2
count = np.int64(20)
stop = 4.0
start = np.datetime64("2026-03-01")
until = datetime.datetime(2026, 3, 2)
every = np.timedelta64(90, "s")
masses = np.array([0.1, 0.5])
days = np.array(["2026-03-01"], dtype="datetime64[D]")
loads = [0.7, 0.95]
fast = False
"""

VALUES: dict[str, Any] = {
    "count": np.int64(4),
    "stop": 5,
    "start": np.datetime64("2027-01-01T12:00"),
    "until": datetime.datetime(2027, 1, 2, 3),
    "every": np.timedelta64(5, "m"),
    "masses": np.array([0.05, 0.1, 0.5]),
    "days": np.array(["2026-01-01", "2027-01-01"], dtype="datetime64[D]"),
    "loads": np.array([0.5, 1.0]),
    "fast": np.bool_(True),
    "store": 'it\'s <b>"mine"\n',
}


def passed(values: dict[str, Any]) -> dict[str, Any]:
    """A notebook's variables as papermill leaves them: its own cell is written and run by it."""
    injected = PythonTranslator.codify(values)
    variables: dict[str, Any] = {"In": ["", "import numpy as np", DEFAULTS, injected]}
    exec(DEFAULTS.replace("%matplotlib inline", ""), variables)
    exec(injected, variables)
    return variables


def test_values_that_papermill_makes_text_of_get_their_types_back() -> None:
    variables = passed(VALUES)
    assert variables["count"] == "4"
    assert variables["masses"] == "[0.05 0.1  0.5 ]"
    given = sk.parameters(variables)
    for name, value in VALUES.items():
        assert np.array_equal(variables[name], value), name
    assert variables["masses"].dtype == np.float64
    assert variables["days"].dtype == np.dtype("datetime64[D]")
    assert isinstance(variables["count"], np.int64)
    assert variables["stop"] == 5.0
    assert isinstance(variables["stop"], float)
    assert variables["loads"] == [0.5, 1.0]
    assert set(given.values) == set(VALUES)
    assert given.defaults["stop"] == 4.0
    assert "stop = 5.0  (float, default 4.0)" in repr(given)
    assert "<i>" not in given._repr_html_()


def test_a_second_call_and_no_call_of_papermill_change_nothing() -> None:
    variables = passed({"count": 4})
    sk.parameters(variables)
    assert sk.parameters(variables).values == {"count": 4}
    assert "none given" in repr(sk.parameters({"In": ["", "n = 3"], "n": 3}))
    assert sk.parameters({}).values == {}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"counts": 3},
            r"no parameter 'counts' \(did you mean 'count'\?\); it takes store, n_jobs",
        ),
        (
            {"count": 2.5},
            r"'count' arrived as 2.5 \(float\); its default .*\(int64\) asks for a whole",
        ),
        ({"stop": "soon"}, "'stop' arrived as 'soon' .* asks for a number"),
        ({"store": 7}, "'store' arrived as 7 .* asks for text; papermill -r NAME VALUE"),
        ({"start": "someday"}, "asks for a date and time, such as '2026-03-01T12:00'"),
        ({"masses": 0.5}, r"asks for a list, such as \[0.1, 0.5\]"),
        ({"masses": np.linspace(0, 1, 4)}, r"0.33333333 was printed by numpy, which rounds to 8"),
        ({"masses": np.arange(5000.0)}, r"numpy left some out; pass array.tolist\(\)"),
        ({"masses": [[1.0]]}, "asks for 1-D"),
        ({"fast": 1}, "asks for true or false"),
        ({"stop": "x", "fast": 2}, "'stop' arrived .*; parameter 'fast' arrived"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(values: dict[str, Any], told: str) -> None:
    variables = passed(values)
    before = {name: variables[name] for name in values}
    with pytest.raises(ValueError, match=told):
        sk.parameters(variables)
    assert all(variables[name] is value for name, value in before.items())


@pytest.mark.parametrize(
    "name", ["count = 1; n_jobs", "count = stop", "masses[0]", "import os\nstop", "stop.x"]
)
def test_a_name_that_papermill_ran_as_code_is_told(name: str) -> None:
    injected = PythonTranslator.codify({name: 3})
    with pytest.raises(ValueError, match="a parameter's name is no identifier, and papermill has"):
        sk.parameters({"In": ["", DEFAULTS, injected]})


def test_numbers_texts_and_spans_are_exact_or_refused() -> None:
    for default, arrived, wanted in (
        (np.int8(1), "100", np.int8(100)),
        (1, 1e4, 10_000),
        (np.float32(1), "0.1", np.float32(0.1)),
        (1.0, "nan", np.nan),
        (pd.Timestamp(0), "2027-01-01 00:00:00", pd.Timestamp("2027")),
        (datetime.date(2026, 1, 1), "2027-01-01 00:00:00", datetime.date(2027, 1, 1)),
        (datetime.timedelta(1), "2 days, 0:00:03", datetime.timedelta(2, 3)),
        (Path("a"), "/b", Path("/b")),
        ((1, 2), "(3, 4)", (3, 4)),
        (np.array(["a b"]), "['x y' 'a,b']", np.array(["x y", "a,b"])),
        (np.array([[1.0]]), "[[1. 2.]\n [3. 4.]]", np.array([[1.0, 2.0], [3.0, 4.0]])),
        ({"a": 1.0}, "{'a': 2}", {"a": 2.0}),
        (None, [1, "a"], [1, "a"]),
    ):
        found = restored(default, arrived)
        assert default is None or type(found) is type(default)
        np.testing.assert_equal(found, wanted)
    for default, arrived in (
        (np.int8(1), 300),
        (1, "1e400"),
        (1, True),
        (np.datetime64("2026"), "2026-01-01T00:00Z"),
        (datetime.date(2026, 1, 1), "2026-01-01T03:00"),
        (np.array([[1.0]]), [[1], [1, 2]]),
        (np.array([1]), [0.5]),
        ([1], "[1"),
        ([1], "__import__('os')"),
        (len, "x"),
    ):
        with pytest.raises(NotThatTypeError):
            restored(default, arrived)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem
)
def test_each_notebook_takes_a_store_workers_and_sizes(path: Path) -> None:
    taken = declared(path)
    assert {"store", "n_jobs"} <= set(taken)
    assert len(taken) > 2
    assert all(value is not None for value in taken.values())

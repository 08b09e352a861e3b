import json

import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import kinds
from sweepkit.analysis.kinds import _template
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import grid

LOG = 'Traceback (most recent call last):\n  File "/home/x/model.py", line {}, in {}\n'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: step 3 too large: 1.5e-3", "ValueError: step 12 too large: -7"),
        ("KeyError: 'gain'", "KeyError: 'mass'"),
        ("OSError: /data/a/b.txt is missing", "OSError: /home/c.txt is missing"),
        ("RuntimeError: <obj at 0x7fae47ca1150>", "RuntimeError: <obj at 0x7f0000000000>"),
        ("ValueError: [1.0, 2.0, 3.0]", "ValueError: [4, 5]"),
    ],
)
def test_messages_that_differ_in_values_are_one_template(one, other):
    assert _template(one) == _template(other)


def test_messages_that_differ_in_words_are_not():
    assert _template("ValueError: x1 too large") != _template("ValueError: x2 too large")
    assert _template("ValueError: too large") != _template("TypeError: too large")


def test_errors_and_failures_are_counted_by_kind():
    n = 100
    status = np.ones(n)
    status[:30] = 2
    status[30:40] = 3
    error = np.full(n, "", dtype=object)
    error[:30] = [f"ValueError: mass {i} too large" for i in range(30)]
    error[30:40] = [f"the run took more than its time limit of {i} s" for i in range(10)]
    failed = np.zeros(n)
    failed[90:] = 1
    ds = grid(failed, status, a=range(10), b=range(10))
    ds["error"] = (("a", "b"), error.reshape(10, 10))
    got = kinds(ds)
    assert got["count"].values.tolist() == [30, 10, 10]
    assert got["family"].values.tolist() == ["error", "timeout", "requirement"]
    assert got["template"].values[0] == "ValueError: mass <n> too large"
    assert got["first_run"].values.tolist() == [0, 30, 90]
    assert got["first_point"].values[1] == "a 3, b 0"
    assert got["example"].values[0] == "ValueError: mass 0 too large"
    assert np.bincount(got["label"].values.reshape(-1)).tolist() == [50, 30, 10, 10]
    assert got["where"].values.tolist()[1:] == ["a = 3", "a = 9"]
    assert got["lift"].values[2] == pytest.approx(10)


def test_the_last_frame_tells_kinds_apart():
    ds = grid([0, 0, 0], [2, 2, 2], a=range(3))
    ds["error"] = ("a", ["ValueError: bad"] * 3)
    logs = [LOG.format(1, "f") + LOG.format(5, "g"), LOG.format(9, "g"), LOG.format(2, "f")]
    ds["log"] = ("a", logs)
    got = kinds(ds)
    assert got["frame"].values.tolist() == ["model.py g", "model.py f"]
    assert got["count"].values.tolist() == [2, 1]


def test_broken_requirements_are_kinds():
    attrs = {
        "sweepkit": json.dumps(
            {
                "requirements": [
                    {"text": "y < 3", "name": "y < 3"},
                    {"text": "z < 2", "name": "small z"},
                ]
            }
        )
    }
    ds = xr.Dataset(
        {"y": ("a", [1.0, 5, 5, 1]), "z": ("a", [1.0, 1, 5, 1]), "status": ("a", [1, 1, 1, 1])},
        coords={"a": range(4)},
        attrs=attrs,
    )
    got = kinds(ds)
    assert got["template"].values.tolist() == ["not y < 3", "not y < 3 and not small z"]
    assert got["label"].values.tolist() == [0, 1, 2, 0]


def test_nothing_wrong_is_no_kind_and_nothing_ended_is_refused():
    assert kinds(grid([0, 0], a=[0, 1])).attrs["n_kinds"] == 0
    assert kinds(grid([0, 0], a=[0, 1]).drop_vars("failed")).attrs["n_kinds"] == 0
    with pytest.raises(UnanswerableError, match="none of 2 runs has ended"):
        kinds(grid([0, 0], [0, 6], a=[0, 1]))
    assert kinds(grid([1], a=[0])).attrs["n_kinds"] == 1
    assert kinds(grid([0, 0], [4, 4], a=[0, 1]))["template"].values.tolist() == ["crashed"]

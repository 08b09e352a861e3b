"""A batch in a worker: errors, logs, what was changed around it, and where it stops."""

from __future__ import annotations

import importlib
import os
import random
import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.capture import HEAD, TAIL, TextCapture, capped, one_line, routed_prints
from sweepkit.containment import kept_surroundings
from sweepkit.evaluate import Station, Task, evaluate
from sweepkit.simulator import patchable
from sweepkit.status import Status


def task(function: Callable[..., Any], n: int, **options: Any) -> Task:
    sweep = sk.Sweep(function, sk.grid(i=range(n)))
    watched = patchable(function)
    return Task(
        function, sweep.call, sweep.grid, {}, 0, "independent", {}, patchable=watched, **options
    )


def evaluated(function: Callable[..., Any], n: int, **options: Any) -> Any:
    capture = TextCapture()
    with routed_prints() as route:
        route(capture)
        station = Station(capture, **options)
        return evaluate(task(function, n), np.arange(n), station)


def test_results_come_as_columns_and_errors_by_row() -> None:
    def f(i: int) -> dict[str, float]:
        if i == 2:
            raise ValueError("two\nlines")
        return {"y": float(i)}

    result = evaluated(f, 4)
    assert result.status.tolist() == [1, 1, Status.ERROR, 1]
    (column,) = result.columns["y"]
    assert column.rows.tolist() == [0, 1, 3]
    assert column.values.tolist() == [0.0, 1.0, 3.0]
    assert result.errors == {2: "ValueError: two lines"}
    assert "in f\n" in result.logs[2]
    assert "sweepkit/evaluate.py" not in result.logs[2]
    assert (result.duration >= 0).all()


def test_what_a_run_prints_is_in_its_own_log() -> None:
    def f(i: int) -> float:
        if i % 2:
            print(f"run {i}")
            print("to the other", file=sys.stderr)
        return 0.0

    result = evaluated(f, 4)
    assert result.logs == {1: "run 1\nto the other\n", 3: "run 3\nto the other\n"}


def test_a_wish_to_stop_ends_a_batch_after_the_run_that_is_on() -> None:
    station = Station(TextCapture())

    def f(i: int) -> float:
        if i == 2:
            station.claim[2] = 1.0
        return float(i)

    result = evaluate(task(f, 10), np.arange(10), station)
    assert len(result) == 3
    assert result.columns["result"][0].values.tolist() == [0.0, 1.0, 2.0]
    assert station.claim[0] == -1.0


def test_an_interrupt_by_a_person_keeps_the_runs_before_it() -> None:
    asked: list[bool] = []

    def f(i: int) -> float:
        if i == 3:
            asked.append(True)
            raise KeyboardInterrupt
        return float(i)

    result = evaluated(f, 6, interrupted=lambda: bool(asked))
    assert len(result) == 3
    assert result.status.tolist() == [1, 1, 1]
    assert result.errors == {}


def test_a_run_that_interrupts_itself_is_an_error() -> None:
    def f(i: int) -> float:
        if i == 3:
            raise KeyboardInterrupt
        return float(i)

    result = evaluated(f, 6)
    assert result.errors == {3: "KeyboardInterrupt"}
    assert len(result) == 6


class Raising:
    """What a simulator may return, and raises at a touch."""

    def __init__(self, touch: str) -> None:
        self.touch = touch

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "touch"):
            raise SystemExit(f"at {name}")
        return object.__getattribute__(self, name)


class RaisingArray:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise SystemExit("at __array__")


class RaisingNumber(float):
    def __float__(self) -> float:
        raise SystemExit("at __float__")


class RaisingName(str):
    __hash__ = str.__hash__

    def __eq__(self, _: object) -> bool:
        raise SystemExit("at __eq__")


class RaisingDict(dict[str, float]):
    def __iter__(self) -> Any:
        raise SystemExit("at __iter__")


READ = {
    "array": lambda: {"y": RaisingArray()},
    "number": lambda: {"y": RaisingNumber(3.0)},
    "class": lambda: {"y": Raising("__class__")},
    "array interface": lambda: {"y": Raising("__array_interface__")},
    "dict": lambda: RaisingDict(y=3.0),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("made", READ.values(), ids=list(READ))
def test_a_result_that_raises_when_it_is_read_is_invalid_alone(
    made: Callable[[], Any], first: bool
) -> None:
    row = 0 if first else 2
    result = evaluated(lambda i: made() if i == row else {"y": float(i)}, 4)
    others = [at for at in range(4) if at != row]
    assert result.status.tolist() == [Status.INVALID if at == row else 1 for at in range(4)]
    assert re.match(
        r"(output 'y'|what was returned) is a .* that makes no array \(SystemExit: at __|"
        r"what was returned cannot be read: it raises SystemExit: at __",
        result.errors[row],
    )
    assert "Traceback" in result.logs[row]
    (column,) = result.columns["y"]
    assert column.rows.tolist() == others
    assert column.values.tolist() == others


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize("named", [RaisingName, np.str_])
def test_names_of_outputs_are_text_whatever_class_they_are_of(
    named: Callable[[str], str], row: int
) -> None:
    result = evaluated(lambda i: {named("y") if i == row else "y": float(i)}, 4)
    assert result.status.tolist() == [1] * 4
    assert {type(name) for name in result.columns} == {str}


@pytest.mark.parametrize("made", [RaisingArray, lambda: [RaisingNumber(1.0)] * 4])
def test_a_vectorized_result_that_raises_when_it_is_read_is_invalid(
    made: Callable[[], Any],
) -> None:
    @sk.vectorized
    def f(i: Any) -> dict[str, Any]:
        return {"y": made()}

    result = evaluated(f, 4)
    assert result.status.tolist() == [Status.INVALID] * 4
    assert "SystemExit: at __" in result.errors[3]


def test_a_person_who_interrupts_while_a_result_is_read_is_heard() -> None:
    class Interrupted:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    assert evaluated(lambda i: Interrupted(), 1).status.tolist() == [Status.INVALID]
    with pytest.raises(KeyboardInterrupt):
        evaluated(lambda i: Interrupted(), 1, interrupted=lambda: True)


def test_an_exception_whose_class_does_not_tell_its_name_is_an_error() -> None:
    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise SystemExit(4)

    class Untold(Exception, metaclass=Nameless):
        pass

    def f(i: int) -> float:
        raise Untold

    result = evaluated(f, 1)
    assert result.errors == {0: "Untold: of a class that raises when it is told"}


def test_the_claim_tells_which_run_is_on() -> None:
    station = Station(TextCapture())
    seen = []

    def f(i: int) -> float:
        seen.append(station.claim[0])
        return 0.0

    evaluate(task(f, 4), np.arange(4), station)
    assert seen == [0.0, 1.0, 2.0, 3.0]


def test_changes_are_undone_after_the_run_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setattr(random, "gauss", random.gauss)
    home, gauss = os.getcwd(), random.gauss
    seen: list[Any] = []

    def f(i: int) -> float:
        seen.append((os.getcwd(), os.environ.get("KEPT"), "NEW" in os.environ, random.gauss))
        os.chdir("/")
        os.environ["KEPT"] = "2"
        os.environ["NEW"] = "2"
        random.gauss = max
        return 0.0

    result = evaluated(f, 3)
    assert seen == [(home, "1", False, gauss)] * 3
    assert sorted(result.notes) == ["environment changed: KEPT, NEW", "random.gauss changed"]


def test_runs_in_threads_leave_the_process_as_it_was() -> None:
    before = os.getcwd(), dict(os.environ), warnings.filters[:], np.random.random(), sys.stdout
    state = np.random.get_state()[1].tolist()
    with kept_surroundings():
        os.chdir("/")
        os.environ["NEW"] = "2"
        warnings.simplefilter("error")
        np.random.seed(3)
        sys.stdout = sys.stderr
    assert (os.getcwd(), dict(os.environ), warnings.filters[:]) == before[:3]
    assert sys.stdout is before[4]
    assert np.random.get_state()[1].tolist() == state


def test_only_what_a_simulator_might_set_is_watched() -> None:
    def sets(i: int) -> None:
        random.gauss = max  # type: ignore[method-assign,assignment]

    def sets_by_name(i: int) -> None:
        setattr(random, "gauss", max)  # noqa: B010

    def uses(i: int) -> float:
        return random.gauss(0, 1) + np.pi

    class Object:
        def __call__(self, i: int) -> float:
            self.mass = np.pi
            return random.gauss(0, 1)

    def sets_in_a_lambda(i: int) -> None:
        import json

        change = lambda one: setattr(json, "dumps", one)  # noqa: E731
        change(max)

    def sets_what_it_looks_up(i: int) -> None:
        module = importlib.import_module("json")
        module.dumps = max  # type: ignore[attr-defined]

    assert ("json", "dumps") in patchable(sets_in_a_lambda)
    assert ("json", "dumps") in patchable(sets_what_it_looks_up)
    assert patchable(sets) == (("random", "gauss"),)
    assert ("random", "gauss") in patchable(sets_by_name)
    assert patchable(uses) == ()
    assert ("random", "gauss") not in patchable(Object())


def test_prints_of_other_threads_go_where_they_went(capsys: pytest.CaptureFixture[str]) -> None:
    capture = TextCapture()
    with routed_prints() as route:
        route(capture)
        print("mine")
        other = threading.Thread(target=print, args=("theirs",))
        other.start()
        other.join()
    assert capture.take() == "mine\n"
    assert capsys.readouterr().out == "theirs\n"


def test_text_is_capped_in_its_middle() -> None:
    text = capped("a" * HEAD + "b" * 1000 + "c" * TAIL)
    assert text.startswith("a" * HEAD + "\n... 1,000 characters left out ...\n")
    assert text.endswith("c" * TAIL)
    assert capped("short") == "short"
    assert capped("\ud800\0") == "\\ud800\\0"


def test_a_log_in_memory_stays_small_however_much_is_printed() -> None:
    capture = TextCapture()
    for _ in range(100_000):
        capture.write("x" * 100)
    assert sum(map(len, capture._parts)) < 64 * (HEAD + TAIL) + 200
    assert len(capture.take()) < HEAD + TAIL + 100
    assert capture.size() == 0


def test_an_error_is_one_line_of_at_most_300_characters() -> None:
    assert one_line("a\nb\t c") == "a b c"
    assert len(one_line("x" * 1000)) == 300
    assert one_line("\ud800") == "\\ud800"
    assert one_line("\x1b[31mred\0\x9b") == "\\x1b[31mred\\x00\\x9b"

"""Inputs that all runs share: by content, staged once, and never changed by a run."""

from __future__ import annotations

import math
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit import inputs
from sweepkit.inputs import InputFile
from sweepkit.status import Status

BACKENDS = ("loky", "threading", "sequential")


def run(sweep: sk.Sweep, store: str, **options: Any) -> Any:
    known = {"n_jobs": 2, "backend": "sequential", "progress": False}
    return sk.run(sweep, store, **{**known, **options}).load()


def read(a: int, model: str, weather: Any) -> dict[str, Any]:
    with open(model) as file:
        return {"text": file.read(), "y": a * float(weather.sum())}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.xml"
    path.write_text("<pole/>")
    return path


def changed(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def test_a_file_changed_at_one_size_and_time_is_seen(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for number in range(8):
        changed(model, str(number))
        seen.append(InputFile(str(model)).digest)
    assert len(set(seen)) == 8
    monkeypatch.setattr(inputs, "SETTLED", -math.inf)  # as if it had been left alone before
    assert InputFile(str(model)).digest == seen[-1]
    before = model.stat().st_ctime_ns
    while model.stat().st_ctime_ns == before:
        changed(model, "0")
    assert InputFile(str(model)).digest == seen[0]


def test_runs_of_a_file_changed_at_one_size_and_time_are_stale(store: str, model: Path) -> None:
    def first(a: int, model: str) -> str:
        return Path(model).read_text()[0]

    changed(model, "aaa")
    assert run(sk.Sweep(first, sk.grid(a=[1]), inputs={"model": model}), store)["result"] == "a"
    changed(model, "bbb")
    more = sk.Sweep(first, sk.grid(a=[1, 2]), inputs={"model": model})
    with pytest.raises(sk.StaleCodeError, match="input 'model' changed"):
        run(more, store)
    assert run(more, store, stale="rerun")["result"].values.tolist() == ["b", "b"]


def test_a_file_left_alone_is_read_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    usual = inputs._content_digest

    def counted(path: str) -> str:
        read.append(path)
        return usual(path)

    monkeypatch.setattr(inputs, "_content_digest", counted)
    InputFile(str(model)).digest, InputFile(str(model)).digest
    assert len(read) == 2  # it was made just now: it might change within a tick
    monkeypatch.setattr(inputs, "SETTLED", -math.inf)
    InputFile(str(model)).digest, InputFile(str(model)).digest
    assert len(read) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_come_by_a_path_and_objects_as_they_are(
    store: str, model: Path, backend: str
) -> None:
    inputs = {"model": model, "weather": np.ones(3)}
    ds = run(sk.Sweep(read, sk.grid(a=range(5)), inputs=inputs), store, backend=backend)
    assert set(ds["text"].values.tolist()) == {"<pole/>"}
    assert ds["y"].values.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert not os.path.exists(f"{store}.sweepkit/inputs")


def test_a_vectorized_simulator_gets_them_too(store: str, model: Path) -> None:
    def simulate(a: Any, model: str, weather: Any) -> Any:
        return a * weather.sum() + os.path.getsize(model)

    inputs = {"model": str(model), "weather": np.ones(3)}
    ds = run(sk.Sweep(sk.vectorized(simulate), sk.grid(a=range(5)), inputs=inputs), store)
    assert ds["result"].values.tolist() == [7.0, 10.0, 13.0, 16.0, 19.0]


def test_a_folder_is_an_input(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    (folder / "mesh").mkdir(parents=True)
    (folder / "mesh" / "points").write_text("1 2 3")

    def simulate(a: int, case: str) -> str:
        return Path(case, "mesh", "points").read_text()

    sweep = sk.Sweep(simulate, sk.grid(a=[1]), inputs={"case": folder})
    assert run(sweep, store)["result"].item() == "1 2 3"
    (folder / "mesh" / "points").write_text("1 2 4")
    with pytest.raises(sk.StaleCodeError, match="input 'case' changed"):
        run(sweep, store)


def test_a_changed_input_marks_runs_stale_by_its_name(store: str, model: Path) -> None:
    def sweep(weather: Any, version: str | None = None) -> sk.Sweep:
        inputs = {"model": model, "weather": weather}
        return sk.Sweep(read, sk.grid(a=range(3)), inputs=inputs, version=version)

    run(sweep(np.ones(3)), store)
    run(sweep(np.ones(3)), store)
    with pytest.raises(sk.StaleCodeError, match="input 'weather' changed"):
        run(sweep(np.ones(4)), store)
    model.write_text("<cart/>")
    with pytest.raises(sk.StaleCodeError, match="input 'model' changed"):
        run(sweep(np.ones(3)), store)
    ds = run(sweep(np.ones(3)), store, stale="rerun")
    assert set(ds["text"].values.tolist()) == {"<cart/>"}
    run(sweep(np.ones(3), version="1"), f"{store}2")
    model.write_text("<beam/>")  # the version stands for the code alone
    with pytest.raises(sk.StaleCodeError, match="input 'model' changed"):
        run(sweep(np.ones(3), version="1"), f"{store}2")


def test_a_large_array_goes_to_each_worker_once_and_not_by_batch(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    usual = Connection.send_bytes

    def counted(self: Any, data: bytes, *part: Any) -> None:
        sent.append(len(data))
        usual(self, data, *part)

    monkeypatch.setattr(Connection, "send_bytes", counted)
    weather = np.zeros(50 * 2**20 // 8)
    weather[0] = 1.0

    def simulate(a: int, weather: Any) -> float:
        return a * float(weather[0])

    sweep = sk.Sweep(simulate, sk.grid(a=range(400)), inputs={"weather": weather}, version="1")
    ds = run(sweep, store, backend="loky")
    assert ds["result"].values.tolist() == [float(a) for a in range(400)]
    large = [size for size in sent if size > 2**20]
    assert 1 <= len(large) <= 2
    assert len(sent) > 4
    assert sum(sent) - sum(large) < 2**20


def test_runs_cannot_change_an_array_or_the_file_of_a_person(store: str, model: Path) -> None:
    def spoil(a: int, model: str, weather: Any) -> float:
        os.chmod(model, 0o644)
        with open(model, "a") as file:
            file.write("spoilt")
        weather[0] = 5.0
        return 1.0

    weather = np.ones(3)
    sweep = sk.Sweep(spoil, sk.grid(a=[1]), inputs={"model": model, "weather": weather})
    ds = run(sweep, store)
    assert ds["status"].item() == Status.ERROR
    assert "read-only" in ds["error"].item()
    assert weather.tolist() == [1.0, 1.0, 1.0]
    assert model.read_text() == "<pole/>"


def test_what_is_missing_or_clashes_is_refused_before_the_first_run(model: Path) -> None:
    grid = sk.grid(a=[1])
    with pytest.raises(ValueError, match=r"input 'model' is the file '.*nowhere.xml', which is no"):
        sk.Sweep(lambda a, model: a, grid, inputs={"model": "nowhere.xml"})
    for name in ("a", "seed", "rng", "scratch"):
        with pytest.raises(ValueError, match=f"input '{name}' has the name of a parameter"):
            sk.Sweep(lambda a: a, grid, inputs={name: model})
    with pytest.raises(TypeError, match="input or setup 'model' is no argument of simulator"):
        sk.Sweep(lambda a: a, grid, inputs={"model": model})
    with pytest.raises(ValueError, match="input name 'my model' is no identifier"):
        sk.Sweep(lambda a: a, grid, inputs={"my model": model})
    with pytest.raises(TypeError, match="give a mapping from names"):
        sk.Sweep(lambda a: a, grid, inputs=["model.xml"])  # type: ignore[arg-type]


def test_inputs_that_cannot_be_sent_are_named(store: str) -> None:
    import threading

    sweep = sk.Sweep(lambda a, lock: a, sk.grid(a=[1]), inputs={"lock": threading.Lock()})
    with pytest.raises(TypeError, match="input 'lock' cannot be sent to worker processes"):
        run(sweep, store, backend="loky")


def told_gone(call: Any, words: str) -> None:
    """Whether an error of ours tells it, and no run was made."""
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("begin", ["run", "start", "plan", "request", "to_json"])
def test_an_input_removed_after_the_sweep_was_made_is_told_before_the_first_run(
    store: str, model: Path, begin: str
) -> None:
    begun = model.with_name("begun")

    def simulate(a: int, model: str) -> int:
        begun.touch()
        return a

    sweep = sk.Sweep(simulate, sk.grid(a=[1, 2]), inputs={"model": model})
    model.unlink()
    calls = {
        "run": lambda: run(sweep, store),
        "start": lambda: sk.start(sweep, store, progress=False, backend="threading").result(60),
        "plan": lambda: sk.plan(sweep, store),
        "request": lambda: run(sweep, store, n_jobs=None, request=sk.Request(workers=1)),
        "to_json": sweep.to_json,
    }
    told_gone(
        calls[begin],
        "^input 'model' is the file '.*model.xml', which is no longer there; bring it back, or "
        "make the sweep anew with where it is now$",
    )
    assert not begun.exists()
    model.write_text("<pole/>")
    assert run(sweep, store)["result"].values.tolist() == [1, 2]


def test_an_input_removed_between_two_sessions_is_told_and_costs_no_run(
    store: str, model: Path
) -> None:
    def first(a: int, model: str) -> str:
        return Path(model).read_text()

    run(sk.Sweep(first, sk.grid(a=[1]), inputs={"model": model}), store)
    more = sk.Sweep(first, sk.grid(a=[1, 2]), inputs={"model": model})
    model.unlink()
    told_gone(lambda: run(more, store), "input 'model' is the file .* no longer there")
    told_gone(lambda: run(more, store, stale="keep"), "input 'model' .* no longer there")
    told_gone(lambda: sk.replay(more, store, {"a": 1}), "input 'model' .* no longer there")
    assert sk.open(store)["result"].values.tolist() == ["<pole/>"]
    model.write_text("<pole/>")
    assert run(more, store)["result"].values.tolist() == ["<pole/>"] * 2


def test_an_input_that_something_else_has_taken_the_place_of_is_told(
    store: str, model: Path
) -> None:
    sweep = sk.Sweep(lambda a, model: a, sk.grid(a=[1]), inputs={"model": model})
    model.unlink()
    model.mkdir()
    told_gone(lambda: run(sweep, store), "is the file '.*', where a folder is now; bring the file")
    folder = sk.Sweep(lambda a, model: a, sk.grid(a=[1]), inputs={"model": model})
    model.rmdir()
    told_gone(lambda: run(folder, store), "is the folder '.*', which is no longer there")
    os.mkfifo(model)  # which would be waited for, for ever
    told_gone(lambda: run(sweep, store), "'.*model.xml' is neither a file nor a folder")
    with pytest.raises(ValueError, match="'/dev/zero' is neither a file nor a folder"):
        sk.Sweep(lambda a, model: a, sk.grid(a=[1]), inputs={"model": "/dev/zero"})


def test_an_input_that_may_not_be_read_is_named(
    store: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sk.Sweep(lambda a, model: a, sk.grid(a=[1]), inputs={"model": model})
    usual = os.access  # a superuser may read all, so the system is not asked
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(model) and usual(path, mode))
    told_gone(lambda: run(sweep, store), "input 'model': file '.*model.xml' may not be read; allow")


def test_a_folder_that_links_elsewhere_counts_by_what_is_there(store: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "case", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "points").write_text("1 2 3")
    (folder / "mesh").symlink_to(other)

    def simulate(a: int, case: str) -> str:
        return Path(case, "mesh", "points").read_text()

    sweep = sk.Sweep(simulate, sk.grid(a=[1]), inputs={"case": folder})
    assert run(sweep, store)["result"].item() == "1 2 3"
    (other / "points").write_text("1 2 4")
    with pytest.raises(sk.StaleCodeError, match="input 'case' changed"):
        run(sweep, store)
    (folder / "again").symlink_to(folder)
    told_gone(lambda: run(sweep, store), "input 'case': '.*again' is a link to a folder that it")
    (folder / "again").unlink()
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    told_gone(lambda: run(sweep, store), "input 'case': file '.*gone' may not be read")


def test_an_input_changed_while_the_sweep_begins_is_told(
    store: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweepkit import equipment

    usual = inputs.staged

    def late(*given: Any) -> Any:
        model.write_text("<cart/>")  # after the store has noted down what it was
        return usual(*given)

    sweep = sk.Sweep(lambda a, model: a, sk.grid(a=[1]), inputs={"model": model})
    monkeypatch.setattr(equipment, "staged", late)
    told_gone(lambda: run(sweep, store), "'.*model.xml' changes while the sweep begins; run again")
    monkeypatch.undo()
    assert run(sweep, store, stale="rerun")["result"].item() == 1
    assert not os.path.exists(f"{store}.sweepkit/inputs")

"""External programs as simulators: no shell, own folders, readers, and what becomes of failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.waiting import LIMIT, Leap, until

BACKENDS = ("loky", "threading", "sequential")
HOSTILE = [
    "; rm -rf /",
    "$(touch hacked) `touch hacked`",
    "two words",
    "'single' and \"double\"",
    "back\\slash",
    "line\nbreak",
    "{a} {b!r} %s",
    "",
    "日本 ü",
    "--option=x",
    "*",
]


def run(simulator: Any, grid: sk.Grid, store: str, **options: Any) -> Any:
    known = {"n_jobs": 2, "backend": "sequential", "progress": False}
    words = ("inputs", "outputs", "setup", "version")
    declared = {name: options.pop(name) for name in words if name in options}
    return sk.run(sk.Sweep(simulator, grid, **declared), store, **{**known, **options}).load()


def script(folder: Path, body: str, name: str = "sim") -> str:
    """A program that runs a body of Python; returns its path."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -S\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


ECHO = "json.dump({'given': sys.argv[1:], 'n': len(sys.argv) - 1}, open('out.json', 'w'))"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_is_a_simulator(tmp_path: Path, store: str, backend: str) -> None:
    path = script(tmp_path, "json.dump({'y': 2 * float(sys.argv[1])}, open(sys.argv[2], 'w'))")
    simulator = sk.command(
        f"{path} {{gain:.3f}} {{scratch}}/out.json", outputs=sk.from_json("{scratch}/out.json")
    )
    ds = run(simulator, sk.grid(gain=[0.5, 1.0, 1.23456]), store, backend=backend)
    assert ds["y"].values.tolist() == [1.0, 2.0, 2.47]
    assert (ds["status"] == Status.DONE).all()


@pytest.mark.parametrize("backend", ["loky", "sequential"])
def test_no_value_becomes_a_command_or_two_words(tmp_path: Path, store: str, backend: str) -> None:
    path = script(tmp_path, ECHO)
    simulator = sk.command(
        [path, "{text}", "x={text}", "{n}"],
        outputs={
            "given": sk.from_json("out.json", "given"),
            "n_given": sk.from_json("out.json", "n"),
        },
    )
    ds = run(simulator, sk.grid(text=HOSTILE, n=[1]), store, backend=backend)
    assert (ds["status"] == Status.DONE).all(), ds["error"].values
    for text in HOSTILE:
        given = ds["given"].sel(text=text, n=1).values.tolist()
        assert given == [text, f"x={text}", "1"]
    assert not list(tmp_path.rglob("hacked"))


def test_values_reach_stdin_environment_templates_and_inputs(tmp_path: Path, store: str) -> None:
    body = (
        "print('y=' + str(len(sys.stdin.read())), os.environ['MODE'], open('deck.txt').read(),"
        " open('table.txt').read(), open(sys.argv[1]).read(), os.getcwd() == sys.argv[2], sep='|')"
    )
    (tmp_path / "table.txt").write_text("table")
    (tmp_path / "deck.in").write_text("{{R}}={a:04.1f}")
    (tmp_path / "model").write_text("model")
    simulator = sk.command(
        [script(tmp_path, body), "{model}", "{scratch}"],
        outputs={"line": sk.from_stdout(r"(y=.*)", kind=str)},
        inputs=[tmp_path / "table.txt"],
        templates={"deck.txt": tmp_path / "deck.in"},
        stdin="{a}",
        env={"MODE": "{mode}"},
    )
    grid = sk.grid(a=[1.25], mode=["x y"])
    ds = run(simulator, grid, store, inputs={"model": tmp_path / "model"})
    assert ds["line"].item() == "y=4|x y|{R}=01.2|table|model|True"


def test_vectors_dates_labels_derived_values_and_seeds_are_written(
    tmp_path: Path, store: str
) -> None:
    simulator = sk.command(
        [script(tmp_path, ECHO), "{x0:.1f}", "{when}", "{when:%Y}", "{kind}", "{twice}", "{seed}"],
        outputs=sk.from_json("out.json"),
    )
    grid = sk.grid(
        x0=sk.values([[1.0, 2.5]], dims=("case", "state")),
        when=np.array(["2030-05-01"], dtype="datetime64[D]"),
        kind={"fast": "-O3"},
        a=[4],
        replicates=2,
    ).derive(twice="2 * a")
    with pytest.raises(TypeError, match="parameter 'a' stands nowhere in command"):
        sk.Sweep(simulator, grid)
    simulator = sk.command(
        [script(tmp_path, ECHO), "{x0:.1f}", "{when:%Y}", "{kind}", "{twice}{a}", "{seed}"],
        outputs=sk.from_json("out.json"),
    )
    with pytest.raises(TypeError, match="parameter 'when' stands nowhere"):
        sk.Sweep(sk.command("true {x0} {kind} {a}", outputs=sk.from_stdout("(x)")), grid)
    ds = run(simulator, grid, store)
    first, second = ds["given"].values.reshape(2, -1).tolist()
    assert first[:3] == ["1.0,2.5", "2030", "-O3"]
    assert first[3].endswith("4")
    assert first[4] != second[4]


def test_tables_netcdf_and_text_are_read(tmp_path: Path, store: str) -> None:
    body = (
        "open('t.csv', 'w').write('time, x, mode\\n0, 1.5, a\\n1, 2.5, b\\n')\n"
        "print('E=1 E=3.5', file=sys.stderr)\n"
        "open('log.txt', 'w').write('steps: 7')\n"
        "print('E=1\\nE=2.5')"
    )
    path = script(tmp_path, body)
    outputs = {
        "x": sk.from_csv("t.csv", "x"),
        "mode": sk.from_csv("t.csv", "mode", row=0),
        "trace": sk.from_csv("t.csv", "x", row=None),
        "energy": sk.from_stdout(r"E=(\S+)"),
        "steps": sk.from_stdout(r"steps: (\d+)", kind=int, path="log.txt"),
    }
    ds = run(sk.command(f"{path} {{a}}", outputs=outputs), sk.grid(a=[1]), store)
    assert (ds["x"].item(), ds["mode"].item(), ds["energy"].item()) == (2.5, "a", 2.5)
    assert ds["trace"].values.ravel().tolist() == [1.5, 2.5]
    assert ds["steps"].item() == 7
    ds = run(sk.command(f"{path} {{a}}", outputs=sk.from_csv("t.csv")), sk.grid(a=[1]), f"{store}2")
    assert {"time", "x", "mode"} <= set(ds.data_vars)
    named = sk.command(f"{path} {{a}}", outputs=sk.from_stdout(r"E=(?P<e>1)\nE=(?P<f>\S+)"))
    ds = run(named, sk.grid(a=[1]), f"{store}3")
    assert (ds["e"].item(), ds["f"].item()) == (1.0, 2.5)


def test_netcdf_keeps_dims_and_units(tmp_path: Path, store: str) -> None:
    source = tmp_path / "made.nc"
    trace = ("time", [1.0, 2.0], {"units": "m"})
    import xarray as xr

    xr.Dataset({"trace": trace, "x": 3.0}, coords={"time": [0.0, 0.5]}).to_netcdf(
        source, engine="scipy"
    )
    simulator = sk.command("cp {made} out{a}.nc", outputs=sk.from_netcdf("out{a}.nc"))
    ds = run(simulator, sk.grid(a=[1, 2]), store, inputs={"made": source})
    assert ds["trace"].dims == ("a", "time")
    assert ds["trace"].attrs["units"] == "m"
    assert ds["x"].values.tolist() == [3.0, 3.0]


def test_a_failing_program_is_an_error_with_its_last_words(tmp_path: Path, store: str) -> None:
    body = (
        "print('began')\nprint('first', file=sys.stderr)\nprint('mesh is bad', file=sys.stderr)\n"
        "a = int(sys.argv[1])\n"
        "a == 2 and os.kill(os.getpid(), 11)\n"
        "open('y', 'w').write('y=1')\nsys.exit(a)"
    )
    simulator = sk.command(
        f"{script(tmp_path, body)} {{a}}",
        outputs={"y": sk.from_stdout("y=(.)", path="y")},
        ok_codes=(0, 4),
    )
    ds = run(simulator, sk.grid(a=[0, 1, 2, 4]), store)
    done, error = int(Status.DONE), int(Status.ERROR)
    assert ds["status"].values.tolist() == [done, error, error, done]
    assert ds["error"].sel(a=1).item() == "CommandError: sim ended with exit code 1: mesh is bad"
    assert "ended with signal 11 (SIGSEGV): mesh is bad" in ds["error"].sel(a=2).item()
    assert ds["log"].sel(a=0).item() == "began\nfirst\nmesh is bad\n"


def test_what_was_not_written_or_cannot_be_read_is_named(tmp_path: Path, store: str) -> None:
    body = (
        "what = sys.argv[1]\n"
        "open('other', 'w')\n"
        "what == 'text' and open('out.json', 'w').write('no json')\n"
        "what == 'key' and open('out.json', 'w').write('{\"x\": 1}')"
    )
    simulator = sk.command(
        f"{script(tmp_path, body)} {{what}}", outputs={"y": sk.from_json("out.json", "a.b")}
    )
    ds = run(simulator, sk.grid(what=["nothing", "text", "key"]), store)
    told = ds["error"].values.tolist()
    assert "output file 'out.json' was not written; in the run's folder: other" in told[0]
    assert "output file 'out.json' is no JSON" in told[1]
    assert "output file 'out.json' has no 'a.b'; there is x" in told[2]
    quiet = sk.command("true {a}", outputs={"y": sk.from_stdout(r"E=(\S+)")})
    ds = run(quiet, sk.grid(a=[1]), f"{store}2")
    assert r"standard output has nothing that matches 'E=(\\S+)'" in ds["error"].item()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_time_limit_ends_the_program_and_what_it_started(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    mark = tmp_path / "hangs"
    body = (
        "print('waiting', sys.argv[1], flush=True)\n"
        "child = os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')\n"
        "if sys.argv[1] == '1':\n"
        "    log = os.environ['SWEEPKIT_SESSION'] + '.log'\n"
        "    if child:\n"
        f"        while str(child) not in open({str(pids)!r}).read():\n"
        "            time.sleep(0.01)\n"
        "        while 'waiting 1' not in open(log, errors='replace').read():\n"
        "            time.sleep(0.01)\n"
        f"        open({str(mark)!r}, 'w').write(str(os.getppid()))\n"
        "    time.sleep(600)\n"
        "print('y=2')"
    )
    simulator = sk.command(
        f"{script(tmp_path, body)} {{a}}", outputs={"y": sk.from_stdout(r"y=(\S)")}
    )
    monkeypatch.setattr("sweepkit.fleet.perf_counter", Leap(mark))
    grid = sk.grid(a=[0, 1])
    ds = run(simulator, grid, store, backend="loky", n_jobs=1, timeout=LIMIT)
    assert ds["status"].values.tolist() == [Status.DONE, Status.TIMEOUT]
    assert "waiting 1" in ds["log"].sel(a=1).item()
    started = [int(one) for one in pids.read_text().split()]
    assert len(started) == 4
    until(lambda: all(map(gone, started)))


def test_what_a_program_leaves_behind_is_ended_in_this_process_too(
    tmp_path: Path, store: str
) -> None:
    body = (
        "there, here = os.pipe()\n"
        "if not os.fork():\n    print(f'pid={os.getpid()}', flush=True)\n"
        "    os.write(here, b'x')\n    time.sleep(600)\n"
        "else:\n    os.read(there, 1)"
    )
    simulator = sk.command(
        f"{script(tmp_path, body)} {{a}}", outputs=sk.from_stdout(r"pid=(\d+)", kind=int)
    )
    ds = run(simulator, sk.grid(a=[0]), store)
    pid = int(ds["result"].item())
    until(lambda: gone(pid))


def test_files_are_kept_and_found_by_run(tmp_path: Path, store: str) -> None:
    body = (
        "os.mkdir('plots')\nopen('plots/a.png', 'w').write('x' * int(sys.argv[1]))\n"
        "open('b.png', 'w').write(sys.argv[2])\nopen('c.txt', 'w')\nprint('y=1')\n"
        "sys.exit(int(sys.argv[1]) == 3)"
    )
    simulator = sk.command(
        f"{script(tmp_path, body)} {{a}} {{mode}}",
        outputs={"y": sk.from_stdout("y=(.)")},
        keep=["*.png", "plots/*"],
    )
    ds = run(simulator, sk.grid(a=[2, 3], mode=["x", "y"]), store, backend="loky")
    table = sk.artefacts(store)
    assert list(table.columns) == ["a", "mode", "file", "path", "bytes"]
    assert len(table) == 8  # also of the runs that failed
    mine = table[(table["a"] == 2) & (table["mode"] == "y")].set_index("file")
    assert sorted(mine.index) == ["b.png", "plots/a.png"]
    assert mine.loc["plots/a.png", "bytes"] == 2
    assert Path(mine.loc["b.png", "path"]).read_text() == "y"
    assert str(mine.loc["b.png", "path"]).startswith(f"{store}.sweepkit/artefacts/")
    assert sk.artefacts(ds).equals(table)
    again = run(simulator, sk.grid(a=[1, 2, 3], mode=["x", "y"]), store, rerun="error")
    assert len(sk.artefacts(again)) == 12


@pytest.mark.parametrize("pattern", ["../sib.txt", "a/../../b", "/tmp/*.txt"])
def test_only_files_of_a_runs_own_folder_are_kept(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"keep {pattern!r} of a command")):
        sk.command("echo {a}", outputs={"y": sk.from_stdout("(.)")}, keep=["*.png", pattern])


def test_changed_programs_files_and_texts_mark_runs_stale_by_name(
    tmp_path: Path, store: str
) -> None:
    path, table = script(tmp_path, "print('y=1')"), tmp_path / "table.txt"
    table.write_text("1")

    def sweep(text: str = "{a}", deck: str = "x") -> sk.Sweep:
        simulator = sk.command(
            f"{path} {text}",
            outputs={"y": sk.from_stdout("y=(.)")},
            inputs=[table],
            templates={"deck": deck},
        )
        return sk.Sweep(simulator, sk.grid(a=[1, 2]))

    def stale(one: sk.Sweep, told: str) -> None:
        with pytest.raises(sk.StaleCodeError, match=told):
            sk.run(one, store, backend="sequential", progress=False)

    sk.run(sweep(), store, backend="sequential", progress=False)
    sk.run(sweep(), store, backend="sequential", progress=False)
    stale(sweep("-v {a}"), "command 'command' changed|command changed")
    stale(sweep(deck="y"), "template 'deck' changed")
    table.write_text("2")
    stale(sweep(), "input file 'table.txt' changed")
    table.write_text("1")
    script(tmp_path, "print('y=2')")
    stale(sweep(), "program 'sim' changed")


def test_what_is_wrong_with_a_command_is_told_before_the_first_run(tmp_path: Path) -> None:
    outputs, grid = sk.from_stdout("y=(.)"), sk.grid(gain=[1.0])
    for text, told in [
        ("no-such-program {gain}", "program 'no-such-program' is not installed"),
        ("./no/such {gain}", "program '.*/no/such' is not there"),
        (f"{tmp_path}/plain {{gain}}", "may not be executed; allow it with chmod"),
        ("echo {gian}", r"names \{gian\}, which is no parameter or input \(gain\)"),
        ("echo {gain:d}", r"has \{gain:d\}, which does not fit the values of 'gain'"),
    ]:
        (tmp_path / "plain").write_text("")
        with pytest.raises(ValueError, match=told):
            sk.Sweep(sk.command(text, outputs=outputs), grid)
    for text, told in [
        ("echo {gain} | grep 1", r"'\|' in command .* is for a shell, and there is none"),
        ("echo {gain} > out", "'>' in command"),
        ("echo 'unfinished {gain}", "cannot be split into words"),
        ("", "the command is empty"),
        ("{gain} 1", r"program '\{gain\}' depends on values"),
        ("echo {gain!r}", "which is no name of a value"),
        ("echo {gain.real}", "which is no name of a value"),
        ("awk '{print $1}' {gain}", "which is no name of a value"),
        ("echo {gain", "double braces"),
    ]:
        with pytest.raises(ValueError, match=told):
            sk.command(text, outputs=outputs)
    with pytest.raises(TypeError, match="parameter 'gain' stands nowhere in command 'echo'"):
        sk.Sweep(sk.command("echo", outputs=outputs), grid)
    with pytest.raises(TypeError, match="input 'model' stands nowhere"):
        sk.Sweep(sk.command("echo {gain}", outputs=outputs), grid, inputs={"model": tmp_path})
    with pytest.raises(TypeError, match="input 'array' is a ndarray, which no program"):
        sk.Sweep(
            sk.command("echo {gain} {array}", outputs=outputs), grid, inputs={"array": np.ones(2)}
        )
    with pytest.raises(TypeError, match="stands for objects of type dict, which no program"):
        sk.Sweep(sk.command("echo {gain}", outputs=outputs), sk.grid(gain={"low": {}}))
    with pytest.raises(ValueError, match="output 'gain' of command 'echo' has the name"):
        sk.Sweep(sk.command("echo {gain}", outputs={"gain": outputs}), grid)
    with pytest.raises(TypeError, match="say where each is"):
        sk.command("echo", outputs={})
    with pytest.raises(ValueError, match="2 groups; put the one wanted"):
        sk.from_stdout("(a)(b)")
    with pytest.raises(ValueError, match="is no regular expression"):
        sk.from_stdout("(a")
    with pytest.raises(ValueError, match="names nothing within a run's folder"):
        sk.command("echo", outputs=outputs, templates={"../x": "a"})


def test_a_script_that_no_run_would_find_is_told_before_the_first(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sim.py").write_text("import sys\nprint('y =', float(sys.argv[1]) * 2)\n")
    outputs = {"y": sk.from_stdout(r"y = (\S+)")}
    lost = sk.command("python3 sim.py {x}", outputs=outputs)
    with pytest.raises(ValueError, match=r"script 'sim.py' .* add inputs=\['sim.py'\]"):
        sk.run(sk.Sweep(lost, sk.grid(x=[1.0, 2.0])), store, progress=False)
    assert not Path(store).exists()
    found = sk.command("python3 sim.py {x}", outputs=outputs, inputs=["sim.py"])
    ds = sk.run(sk.Sweep(found, sk.grid(x=[1.0, 2.0])), store, backend="threading", progress=False)
    assert ds["y"].values.tolist() == [2.0, 4.0]
    by_path = sk.command(f"python3 {tmp_path}/sim.py {{x}}", outputs=outputs)
    assert by_path(x=4) == {"y": 8.0}


def test_two_files_of_one_place_in_the_folder_of_a_run_are_refused(tmp_path: Path) -> None:
    outputs = sk.from_stdout("(x)")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.dat").write_text(name)
    first, second = tmp_path / "a" / "x.dat", tmp_path / "b" / "x.dat"
    with pytest.raises(ValueError, match=r"a/x.dat' and '.*b/x.dat' of a command are both 'x.dat'"):
        sk.command("cat x.dat", outputs=outputs, inputs=[first, second])
    with pytest.raises(ValueError, match=r"template './x.dat' and input '.*a/x.dat' of a command"):
        sk.command("cat x.dat", outputs=outputs, inputs=[first], templates={"./x.dat": "x"})
    sk.command("cat x.dat", outputs=outputs, inputs=[first, first], templates={"y.dat": "x"})


def test_exit_codes_and_variables_that_no_program_has_are_refused() -> None:
    outputs = sk.from_stdout("(x)")
    with pytest.raises(ValueError, match="ok_codes is empty, so that no run could go well"):
        sk.command("echo", outputs=outputs, ok_codes=[])
    with pytest.raises(TypeError, match="env of a command is 'A=B'; give a mapping, as in"):
        sk.command("echo", outputs=outputs, env="A=B")  # type: ignore[arg-type]
    for name in ("A=B", "", "A\0"):
        with pytest.raises(ValueError, match="has no name that a system takes; give its name and"):
            sk.command("echo", outputs=outputs, env={name: "x"})


def test_columns_of_one_name_are_not_told_apart_and_said_so(store: str) -> None:
    text = ["sh", "-c", "printf 'x,y,x\\n{a},2,3\\n' > t.csv"]
    simulator = sk.command(text, outputs=sk.from_csv("t.csv"))
    ds = run(simulator, sk.grid(a=[1]), store)
    told = "output file 't.csv' has 2 columns 'x'; their names tell them apart, so give each "
    assert ds["error"].item().endswith(f"{told}its own")
    one = sk.command(text, outputs={"u": sk.from_csv("t.csv", "x")})
    assert "has 2 columns 'x'" in run(one, sk.grid(a=[1]), f"{store}2")["error"].item()
    other = sk.command(text, outputs={"u": sk.from_csv("t.csv", "y")})
    assert run(other, sk.grid(a=[1]), f"{store}3")["u"].item() == 2


def test_a_command_can_be_called_by_hand() -> None:
    simulator = sk.command("echo y={a}", outputs={"y": sk.from_stdout(r"y=(\S+)")})
    assert simulator(a=3) == {"y": 3.0}
    with pytest.raises(sk.CommandError, match="false ended with exit code 1"):
        sk.command("false", outputs=sk.from_stdout("(x)"))()


def test_a_script_without_an_interpreter_is_told(tmp_path: Path, store: str) -> None:
    path = tmp_path / "sim"
    path.write_text("print(1)\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    simulator = sk.command(f"{path} {{a}}", outputs=sk.from_stdout("(.)"))
    ds = run(simulator, sk.grid(a=[1]), store)
    assert "cannot be started" in ds["error"].item()
    assert "#!" in ds["error"].item()


def test_setup_gives_a_program_what_it_needs(tmp_path: Path, store: str) -> None:
    simulator = sk.command("echo y={port}{a}", outputs={"y": sk.from_stdout(r"y=(\d+)", kind=int)})
    ds = run(simulator, sk.grid(a=[1]), store, setup={"port": lambda: 808})
    assert ds["y"].item() == 8081


def test_an_interrupt_ends_the_program_too(tmp_path: Path, store: str, start: Any) -> None:
    pid_file = tmp_path / "pid"
    path = script(
        tmp_path, f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    process = start(
        """
        import sys, sweepkit as sk
        simulator = sk.command([sys.argv[1], "{a}"], outputs=sk.from_stdout("(.)"))
        sweep = sk.Sweep(simulator, sk.grid(a=[1]))
        sk.run(sweep, sys.argv[2], backend="sequential", progress=False)
        """,
        path,
        store,
    )
    until(lambda: pid_file.exists() and pid_file.read_text(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    until(lambda: gone(int(pid_file.read_text())))
    assert json.loads(Path(f"{store}/zarr.json").read_text())
    assert os.path.isdir(store)


def test_a_program_or_a_file_removed_after_the_sweep_was_made_is_told(
    tmp_path: Path, store: str
) -> None:
    program, deck = tmp_path / "sim", tmp_path / "deck.txt"
    shutil.copy("/bin/cat", program)
    deck.write_text("peak 3")
    command = sk.command(
        f"{program} deck.txt {{a}}", outputs={"peak": sk.from_stdout(r"peak (\S+)")}, inputs=[deck]
    )
    sweep = sk.Sweep(command, sk.grid(a=[1]))
    deck.unlink()
    with pytest.raises(ValueError, match=r"input file '.*deck.txt' of .* is not there"):
        sk.run(sweep, store, backend="sequential", progress=False)
    deck.write_text("peak 4")
    program.unlink()
    with pytest.raises(ValueError, match=r"program '.*sim' is not there; build it"):
        sk.run(sweep, store, backend="sequential", progress=False)

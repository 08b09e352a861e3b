"""What is said of who holds a store, whatever kind of lock says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweepkit.holding import begun, busy, holder_of
from sweepkit.lock import held
from sweepkit.protocols import StoreBusyError


def test_a_holder_is_named_with_process_host_and_time(tmp_path: Path) -> None:
    holder = holder_of({"pid": 7, "host": "here", "since": "noon", "signs": 3})
    assert busy(tmp_path / "a.zarr", holder) == (
        f"{tmp_path / 'a.zarr'} is being written by process 7 on here, since noon; wait for it, "
        "stop it, or use another path (reading it with sk.open is fine)"
    )


@pytest.mark.parametrize("said", [None, [], "who", 3, {}, {"pid": 7, "host": "here"}])
def test_what_names_nobody_is_another_process(said: Any, tmp_path: Path) -> None:
    assert "is being written by another process; wait" in busy(tmp_path, holder_of(said))


@pytest.mark.parametrize("text", ["", "[]", '{"pid": 7}', "\x00"])
def test_a_damaged_note_of_the_holder_leaves_the_refusal_as_it_is(
    text: str, tmp_path: Path
) -> None:
    root, beside = tmp_path / "a.zarr", tmp_path / "a.zarr.sweepkit"
    with held(root, beside):
        (beside / "holder.json").write_text(text)
        with (
            pytest.raises(StoreBusyError, match="is being written by another process"),
            held(root, beside),
        ):
            pass
    assert not beside.exists()


@pytest.mark.parametrize("name", ["root.json", "rewrite-ready"])
def test_a_sweep_has_begun_once_its_root_or_its_copy_is_there(name: str, tmp_path: Path) -> None:
    root, beside = tmp_path / "a.zarr", tmp_path / "a.zarr.sweepkit"
    beside.mkdir()
    assert not begun(root, beside)
    (beside / name).write_text("{}")
    assert begun(root, beside)
    (beside / name).unlink()
    root.mkdir()
    (root / "zarr.json").write_text('{"attributes": {"sweepkit_format": 1}}')
    assert begun(root, beside)

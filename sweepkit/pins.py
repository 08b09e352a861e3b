"""The environment in use, as others can install it: pinned versions, and sweepkit as a wheel."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import sweepkit

__all__ = ["pinned", "write_wheel"]

NAME = "sweepkit"
LEFT_OUT = {"__pycache__", ".ipynb_checkpoints"}
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""What a zip file can say of a file at the earliest: the same code makes the same wheel."""


def pinned(extras: Sequence[str], also: Iterable[str] = ()) -> list[str]:
    """Versions in use here of all that sweepkit needs, itself left out, as pip reads them.

    Parameters
    ----------
    extras : sequence of str
        What sweepkit shall be able to do, such as "explore".
    also : iterable of str
        Further packages, by name.

    Returns
    -------
    list of str
        Such as ``"numpy==2.4.6"``, by name.

    Raises
    ------
    ValueError
        If sweepkit was never installed here, or before it could do that, or a package is missing.
    """
    try:
        told = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        raise ValueError(
            "sweepkit is imported here from a folder and not installed, so what it needs is not "
            "known; pip install it, as in pip install -e ."
        ) from None
    wanted = [Requirement(one) for one in told]
    known = metadata.metadata(NAME).get_all("Provides-Extra") or []
    if not set(extras) <= set(known):
        raise ValueError(
            "what is installed of sweepkit is older than what runs, so what it needs is not known; "
            "install it again, as in pip install -e ."
        )
    queue = [one for one in wanted if _applies(one, ("", *extras))]
    queue = [one for one in queue if _key(one.name) != NAME] + [Requirement(one) for one in also]
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        one = queue.pop()
        key = (_key(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            raise ValueError(
                f"package {one.name!r} is missing here, and the environment to be shared needs "
                f"it; pip install 'sweepkit[{','.join(extras)}]'"
            ) from None
        found[key[0]] = f"{installed.metadata['Name']}=={installed.version.partition('+')[0]}"
        inner = [Requirement(text) for text in installed.requires or []]
        queue += [two for two in inner if _applies(two, ("", *one.extras))]
    return sorted(found.values(), key=str.lower)


def _applies(one: Requirement, extras: Iterable[str]) -> bool:
    return one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write_wheel(folder: Path) -> Path:
    """The sweepkit that runs here as a wheel, made of its files: no build tool, no network.

    Parameters
    ----------
    folder : path
        Where it is written.

    Returns
    -------
    path
        Of the wheel.
    """
    version = sweepkit.__version__
    home = Path(sweepkit.__file__).parent
    info = f"{NAME}-{version}.dist-info"
    contents = {
        f"{NAME}/{path.relative_to(home).as_posix()}": path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.parts) and path.suffix != ".pyc"
    }
    said = metadata.distribution(NAME)
    contents[f"{info}/METADATA"] = (said.read_text("METADATA") or "").encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: sweepkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    contents[f"{info}/entry_points.txt"] = b"[console_scripts]\nsweepkit = sweepkit.cli:main\n"
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    target = folder / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            one = zipfile.ZipInfo(name, EARLIEST)
            one.compress_type = zipfile.ZIP_DEFLATED
            one.external_attr = 0o644 << 16
            wheel.writestr(one, data)
    return target


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

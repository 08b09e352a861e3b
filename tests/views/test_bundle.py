"""The browser's modules, joined into one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sweepkit.views import bundle, paper

DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
IMPORTED = re.compile(r'^import\b[^;]*from "\./([^"]+)";', re.MULTILINE)


@pytest.mark.parametrize("names", [bundle.MODULES, paper.MODULES], ids=["explorer", "report"])
def test_no_name_is_declared_twice_and_modules_follow_what_they_import(
    names: tuple[str, ...],
) -> None:
    declared: Counter[str] = Counter()
    for at, name in enumerate(names):
        text = (bundle.STATIC / name).read_text()
        declared.update(DECLARED.findall(text))
        assert set(IMPORTED.findall(text)) <= set(names[:at]), f"{name} stands before what it needs"
    assert not [one for one, times in declared.items() if times > 1]


@pytest.mark.parametrize("path", sorted(bundle.STATIC.glob("*.js")), ids=lambda path: path.name)
def test_a_module_uses_what_it_imports_and_finds_it_there(path: Path) -> None:
    text = path.read_text()
    for names, sibling in re.findall(r'^import \{([^}]*)\} from "\./([^"]+)";', text, re.MULTILINE):
        there = (bundle.STATIC / sibling).read_text()
        rest = re.sub(r"^import\b[^;]*;\n", "", text, flags=re.MULTILINE)
        for name in filter(None, map(str.strip, names.split(","))):
            assert re.search(rf"\b{name}\b", rest), f"{name} is imported and not used"
            assert re.search(rf"^export .*\b{name}\b", there, re.MULTILINE), f"{name}: {sibling}"

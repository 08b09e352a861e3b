"""Digests: of text and bytes, and of graphs, the same for graphs that are equivalent."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

__all__ = ["digest_of", "reduced"]


def digest_of(data: str | bytes | memoryview) -> str:
    if isinstance(data, str):
        data = data.encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def reduced(own: Sequence[object], edges: Sequence[Mapping[str, int]]) -> str:
    """Digest of the graph seen from node 0; equivalent nodes count as one."""
    block = _equivalent(own, edges)
    number, queue, told = {block[0]: 0}, [0], []
    for node in queue:
        out = []
        for label, target in sorted(edges[node].items()):
            if block[target] not in number:
                number[block[target]] = len(number)
                queue.append(target)
            out.append((label, number[block[target]]))
        told.append((own[node], out))
    return digest_of(ascii(told))


def _equivalent(own: Sequence[object], edges: Sequence[Mapping[str, int]]) -> list[int]:
    """Class of each node, where equivalent nodes share content and, by label, successors' classes.

    References
    ----------
    J. Hopcroft, An n log n algorithm for minimizing states in a finite automaton (1971).
    """
    first: dict[object, set[int]] = defaultdict(set)
    incoming: list[list[tuple[str, int]]] = [[] for _ in own]
    for node, out in enumerate(edges):
        first[own[node], *sorted(out)].add(node)
        for label, target in out.items():
            incoming[target].append((label, node))
    blocks = list(first.values())
    block = [0] * len(own)
    for index, members in enumerate(blocks):
        for node in members:
            block[node] = index
    waiting = set(range(len(blocks)))
    while waiting:
        sources: dict[str, set[int]] = defaultdict(set)
        for node in blocks[waiting.pop()]:
            for label, source in incoming[node]:
                sources[label].add(source)
        for reaching in sources.values():
            touched: dict[int, set[int]] = defaultdict(set)
            for node in reaching:
                touched[block[node]].add(node)
            for index, inside in touched.items():
                if len(inside) == len(blocks[index]):
                    continue
                blocks[index] -= inside
                blocks.append(inside)
                for node in inside:
                    block[node] = len(blocks) - 1
                smaller = index if len(blocks[index]) < len(inside) else len(blocks) - 1
                waiting.add(len(blocks) - 1 if index in waiting else smaller)
    return block

"""Policies: who gets the next worker, from how the jobs stand alone."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepkit import policies
from sweepkit.policies import (
    Standing,
    example,
    fair_finish,
    fair_share,
    fair_shares,
    first_come,
    shortest_first,
)

ALL = (first_come, fair_share, shortest_first, fair_finish)


@pytest.mark.parametrize("policy", ALL)
def test_a_higher_priority_goes_first(policy: Callable[[Standing], int]) -> None:
    assert policy(example(priority=[0, 2, 1], left=[1.0, 9.0, 5.0])) == 1


@pytest.mark.parametrize("policy", ALL)
@given(
    left=st.lists(st.one_of(st.just(np.nan), st.floats(0, 1e9)), min_size=1, max_size=8),
    held=st.floats(0, 1e6),
    entitled=st.floats(0, 1e6),
)
def test_one_of_the_jobs_is_named(
    policy: Callable[[Standing], int], left: list[float], held: float, entitled: float
) -> None:
    n = len(left)
    chosen = policy(example(left=left, held=[held] * n, entitled=[entitled] * n))
    assert type(chosen) is int
    assert 0 <= chosen < n


def test_fair_share_makes_up_for_what_a_job_is_behind() -> None:
    assert fair_share(example(workers=[1, 1], held=[0.0, 0.0], entitled=[25.0, 0.0])) == 0
    assert fair_share(example(workers=[2, 1], held=[0.0, 0.0], entitled=[5.0, 0.0])) == 1


def test_a_job_of_unknown_size_is_tried_first_on_one_worker() -> None:
    for policy in (shortest_first, fair_finish):
        assert policy(example(left=[1.0, np.nan])) == 1
        assert policy(example(left=[1.0, np.nan], workers=[0, 1])) == 0


def test_a_long_job_that_was_passed_long_enough_goes_first() -> None:
    assert fair_finish(example(left=[100.0, 10.0], entitled=[50.0, 0.0])) == 1
    assert fair_finish(example(left=[100.0, 10.0], entitled=[95.0, 0.0])) == 0


def test_jobs_that_sharing_would_have_finished_share() -> None:
    jobs = example(left=[5.0, 5.0], entitled=[50.0, 70.0], workers=[3, 2], most=[9, 9])
    assert fair_finish(jobs) == 1


def test_a_deadline_counts_when_it_is_near_and_can_be_met() -> None:
    left = [100.0, 10.0]
    for deadline, chosen in ((1000.0, 1), (150.0, 0), (99.0, 1)):
        assert fair_finish(example(left=left, deadline=[deadline, np.inf])) == chosen


@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 50)), max_size=9), st.integers(1, 60))
def test_fair_shares_use_all_workers_that_can_be_used_and_differ_only_where_full(
    jobs: list[tuple[float, int]], workers: int
) -> None:
    weight = np.array([one[0] for one in jobs])
    most = np.array([one[1] for one in jobs], dtype=int)
    shares = fair_shares(weight, most, workers)
    assert shares.sum() == pytest.approx(min(workers, most.sum()))
    assert (shares <= most + 1e-9).all()
    waiting = shares < most - 1e-9
    if waiting.any():
        level = (shares / weight)[waiting]
        assert level.max() == pytest.approx(level.min())
        assert ((shares / weight)[~waiting] <= level.min() + 1e-9).all()


def test_the_examples_hold() -> None:
    assert doctest.testmod(policies).failed == 0

"""Benchmarks: each prints a table with ratios; run one as ``python -m tests.benchmarks.NAME``."""

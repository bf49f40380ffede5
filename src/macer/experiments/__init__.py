"""Whole experiments: the paper's tables, comparisons, the demo, benchmarks, runs from Python."""

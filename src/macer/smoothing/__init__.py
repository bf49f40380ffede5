"""Randomized smoothing: radii, bounds, noise and the counts of a network under it."""

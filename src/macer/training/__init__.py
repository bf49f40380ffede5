"""Algorithm 1 as a step and a loop."""

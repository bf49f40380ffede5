"""Fewer and faster kernels on a GPU; imports nothing of macer."""

"""The operating system: files, signals, processes, progress, and the user's own code."""

"""What the operating system is asked for: files, signals, processes, progress, a user's code."""

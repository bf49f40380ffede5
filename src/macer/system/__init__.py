"""The operating system and the user: files, signals, processes, progress, mistakes, own code."""

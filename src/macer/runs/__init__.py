"""A run is a folder: manifest, checkpoints, model file; the zoo."""

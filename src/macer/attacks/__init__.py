"""Attacks on images through the noise, and on the noise itself."""

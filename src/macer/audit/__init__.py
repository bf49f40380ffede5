"""Certificates checked: recomputed, sampled again, attacked."""

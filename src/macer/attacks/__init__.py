"""Attacks on images through the noise, and on the noise itself."""

from macer.attacks.images import ddn, pgd
from macer.attacks.noise import sphere_attack, standardised_attack

__all__ = ["ddn", "pgd", "sphere_attack", "standardised_attack"]

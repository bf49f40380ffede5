"""Certificates of a half-space, which are known exactly, for attacks to be judged on."""

from dataclasses import replace

import numpy as np
import torch
from scipy.stats import norm
from torch import nn

from macer.audit.falsify import Search, chosen_records, falsify
from macer.certification.largest_radius import certify
from macer.certification.record import Record
from macer.certification.target import prepare
from macer.data.sets import Split

SIGMA = 0.25
SHAPE = (1, 8, 8)
DISTANCES = [0.2, 0.3, 0.4, 0.5]
SEARCH = Search(scale=0.999, restarts=2, steps=10, m=8, n=2000, seed=0)


class HalfSpace(nn.Module):
    """Class 1 where w·v > w·½: smoothed, p₁(x) = Φ(distance / σ) for every x."""

    def __init__(self):
        super().__init__()
        w = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 1)).astype(np.float32))
        self.w = nn.Parameter(w / w.norm())

    def forward(self, v):
        margin = (v - 0.5).flatten(1) @ self.w
        return torch.cat([-5 * margin, 5 * margin], dim=1)


def pixels() -> np.ndarray:
    """Grey 8-bit images, at about these distances from the border: the box is out of the way."""
    w = HalfSpace().w.detach().numpy().reshape(SHAPE)
    return np.stack([np.round(255 * (0.5 + d * w)) for d in DISTANCES]).astype(np.uint8)


SPLIT = Split(pixels(), np.ones(len(DISTANCES), np.int64))


def inflated(factor):
    """A certificate whose radius is this many times the distance, and whose bound fits it."""

    def change(certificate):
        votes = certificate.estimation
        radius = factor * SIGMA * norm.ppf(votes[1] / sum(votes))
        return replace(certificate, radius=radius, p_a=norm.cdf(radius / SIGMA))

    return change


def attacked(contents, target, *, images=100, **changes):
    search = replace(SEARCH, **changes)
    records = chosen_records(contents, images)
    header, device = contents.header, torch.device("cpu")
    model = prepare(target, precision=header.precision, row_by_row=header.row_by_row, device=device)
    return list(falsify(contents, records, model, SPLIT, search))


def record_of(*, label=1, radius=0.5, p_a=None, idx=0):
    """A record with a made-up certificate."""
    [certificate] = certify(HalfSpace(), torch.from_numpy(SPLIT.images[:1]), sigma=SIGMA, n=100)
    p_a = norm.cdf(radius / SIGMA) if p_a is None else p_a
    return Record(idx, label, replace(certificate, label=label, radius=radius, p_a=p_a), 0.0)


def votes(*counts):
    return torch.tensor(counts, dtype=torch.int64)

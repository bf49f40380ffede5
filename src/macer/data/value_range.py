"""The range of the values of inputs: [0, 1] for images, another or none for inputs of any kind."""

import numpy as np

from macer.system.errors import Mistake

ValueRange = tuple[float, float] | None

IMAGE_RANGE = (0.0, 1.0)

# float32 has at least 64 steps per σ near a number that is at most this many σ.
MOST_SIGMAS = 2**17


def checked_range(value_range: ValueRange) -> ValueRange:
    """The least and the largest value that inputs may have, or None; anything else is refused."""
    if value_range is None:
        return None
    try:
        low, high = map(float, value_range)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low < high):
        raise Mistake(
            "value_range must be None or two numbers, the least and the largest value, "
            f"got {value_range}"
        )
    return low, high


def check_values(low: float, high: float, value_range: ValueRange) -> None:
    """Refuse inputs whose least or largest value, in float32, is out of range or not finite."""
    if not np.isfinite([low, high]).all():
        raise Mistake(f"inputs must have finite float32 values, got [{low:g}, {high:g}]")
    if value_range is not None and not value_range[0] <= low <= high <= value_range[1]:
        raise Mistake(
            f"inputs must have values in [{value_range[0]:g}, {value_range[1]:g}], "
            f"got [{low:g}, {high:g}]; scale them, or state their value_range, None for any"
        )


def check_size(low: float, high: float, sigma: float) -> None:
    """Refuse values that lose the noise when it is added in float32."""
    if max(-low, high) > MOST_SIGMAS * sigma > 0:
        raise Mistake(
            f"inputs must be at most {MOST_SIGMAS:,} sigma in size, since float32 rounds the "
            f"noise away from larger ones, got {max(-low, high):g} with sigma {sigma:g}; "
            "centre or scale them"
        )

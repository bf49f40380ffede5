import numpy as np
from data_files import some_split

from macer.data.fingerprint import channel_statistics, fingerprint
from macer.data.sets import Split

# law


def test_fingerprint_depends_on_shape_pixels_and_labels():
    data = some_split()
    changed = data.images.copy()
    changed[-1, -1, -1, -1] ^= 1
    different = [
        Split(changed, data.labels),
        Split(data.images, (data.labels + 1) % 10),
        Split(data.images.reshape(7, 1, 14, 56), data.labels),
    ]
    assert len({fingerprint(split) for split in (data, *different)}) == 4
    assert fingerprint(data) == fingerprint(Split(data.images.copy(), data.labels.copy()))


def test_channel_statistics_are_numpys(tmp_path):
    data = some_split(5, (3, 8, 8))
    mean, std = channel_statistics(data)
    assert np.allclose(mean, (data.images / 255).mean((0, 2, 3)))
    assert np.allclose(std, (data.images / 255).std((0, 2, 3)))

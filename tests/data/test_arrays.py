import warnings

import numpy as np
import pytest
import torch
from data_files import Columns, refused
from PIL import Image
from tiny_models import CLASSES, tiny_recipe, tiny_split
from torch.utils.data import DataLoader, Dataset, TensorDataset

from macer.data.arrays import as_split, class_names
from macer.data.sets import Split, load
from macer.runs.trained_model import load_model
from macer.system.errors import Mistake
from macer.training.loop import train

SPLIT = tiny_split()
IMAGES, LABELS = SPLIT
FLOATS = IMAGES.astype(np.float32) / 255
COLOURS = tiny_split(channels=3).images


class Pictures(Dataset):
    """A data set of Pillow's images, as torchvision's are."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        image = self.images[number]
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        return Image.fromarray(pixels), int(self.labels[number])


FORMS = {
    "a Split": Split(IMAGES, LABELS),
    "a Split of floats": Split(FLOATS, LABELS),
    "uint8": (IMAGES, LABELS),
    "without channels": (IMAGES[:, 0], LABELS),
    "int64": (IMAGES.astype(np.int64), LABELS.astype(np.uint8)),
    "not contiguous, not writable": (np.broadcast_to(IMAGES[::-1], IMAGES.shape)[::-1], LABELS),
    "big endian": (IMAGES.astype(">i4"), LABELS.astype(">i8")),
    "float32": (FLOATS, LABELS),
    "float64": (IMAGES / 255, LABELS.astype(float)),
    "float16": ((IMAGES / 255).astype(np.float16), LABELS),
    "float32 by a product": (IMAGES * np.float32(1 / 255), LABELS),
    "tensors": (torch.from_numpy(IMAGES), torch.from_numpy(LABELS)),
    "tensors of floats": (torch.from_numpy(FLOATS).requires_grad_(), torch.from_numpy(LABELS)),
    "lists": (IMAGES.tolist(), LABELS.tolist()),
    "lists of floats": (FLOATS.tolist(), LABELS.tolist()),
    "a list of arrays": (list(IMAGES), list(LABELS)),
    "a list of tensors": (list(torch.from_numpy(FLOATS)), list(torch.from_numpy(LABELS))),
    "a loader's batch": [torch.from_numpy(FLOATS), torch.from_numpy(LABELS)],
    "a list of pairs": list(zip(IMAGES, LABELS, strict=True)),
    "a TensorDataset": TensorDataset(torch.from_numpy(FLOATS), torch.from_numpy(LABELS)),
    "Pillow's images": Pictures(IMAGES, LABELS),
}


# law


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_images_is_the_same_split(form):
    with warnings.catch_warnings(action="error"):
        images, labels = split = as_split(FORMS[form])
        torch.from_numpy(images), torch.from_numpy(labels)  # which warns of what it cannot write
    assert (images.dtype, labels.dtype, split.dataset) == (np.uint8, np.int64, "arrays")
    assert images.flags.c_contiguous and labels.flags.c_contiguous
    assert np.array_equal(images, IMAGES) and np.array_equal(labels, LABELS)


@pytest.mark.medium
def test_every_form_of_the_same_images_trains_the_same_weights(tmp_path):
    recipe = tiny_recipe(epochs=1, normalise=True)
    forms = ("uint8", "float32", "float64", "tensors of floats", "lists", "a TensorDataset")
    models = {
        train(recipe, FORMS[form], CLASSES, tmp_path / form).read_bytes()
        for form in (*forms, "Pillow's images")
    }
    assert len(models) == 1


def test_all_256_levels_survive_floats_of_every_type():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        assert np.array_equal(as_split(((levels / 255).astype(kind), [0])).images, levels)


def test_images_of_three_channels_come_from_pillow_channels_first():
    assert np.array_equal(as_split(Pictures(COLOURS, LABELS)).images, COLOURS)


def test_two_pairs_of_an_image_and_a_label_are_two_images():
    assert as_split([(IMAGES[0], 0), (IMAGES[1], 1)]).labels.tolist() == [0, 1]


def test_uint8_images_are_not_copied():
    assert as_split((IMAGES, LABELS)).images is IMAGES


def test_a_split_keeps_its_data_sets_name_and_so_do_its_parts():
    split = load("mnist-sample", "test")
    assert {as_split(split).dataset, split.part(3, 7).dataset, split.dataset} == {"mnist-sample"}
    images, labels = split.part(3, 7)
    assert np.array_equal(images, split.images[3:7])
    assert np.array_equal(labels, split.labels[3:7])


def test_classes_are_those_given_or_the_data_sets_or_numbers():
    assert class_names(list(CLASSES), as_split(SPLIT)) == CLASSES
    assert class_names(None, as_split((IMAGES, LABELS))) == ("0", "1", "2")
    assert class_names(None, as_split((IMAGES, 0 * LABELS))) == ("0", "1")
    fashion = Split(IMAGES, LABELS, "fashion-mnist")
    assert class_names(None, fashion)[:2] == ("T-shirt/top", "Trouser")


def test_a_trained_model_tells_that_its_images_were_arrays(tmp_path):
    train(tiny_recipe(epochs=1), (IMAGES, LABELS), folder=str(tmp_path / "run"))
    _, card = load_model(tmp_path / "run")
    assert (card.dataset, card.classes) == ("arrays", ("0", "1", "2"))


@pytest.mark.parametrize("names", [("image", "label"), ("img", "labels")])
def test_columns_of_pillow_images_are_the_images_and_their_labels(names):
    levels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    image, label = names
    columns = {"id": list("abcd"), image: [Image.fromarray(i) for i in levels]}
    data = Columns(columns | {label: [0, 1, 1, 2]}, names=["cat", "dog", "emu"])
    split = as_split(data)
    assert np.array_equal(split.images, levels.transpose(0, 3, 1, 2))
    assert split.labels.tolist() == [0, 1, 1, 2] and split.dataset == "arrays"
    assert class_names(None, split) == ("cat", "dog", "emu")
    assert class_names(("a", "b", "c"), split) == ("a", "b", "c")
    data.features = None
    assert class_names(None, as_split(data)) == ("0", "1", "2")


def test_a_split_keeps_its_classes_and_files():
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 4, 4), np.uint8)
    split = Split(images, np.arange(3) % 2, "folder@4", ("cat", "dog"), ("a", "b", "c"))
    again = as_split(split)
    assert (again.dataset, again.classes, again.files) == (
        split.dataset,
        split.classes,
        split.files,
    )
    assert class_names(None, again) == ("cat", "dog")
    assert again.part(1).files == ("b", "c")


# refusal


def test_columns_without_images_or_labels_are_refused():
    with refused("data must have the columns image and label, got id, label; data.rename_column"):
        as_split(Columns({"id": ["a"], "label": [0]}))


def test_all_splits_at_once_and_a_stream_are_refused():
    both = Columns({"image": [IMAGES[0]], "label": [0]})
    both.column_names = {"train": ["image", "label"], "test": ["image", "label"]}
    with refused("data must be one split, got train, test; give each by itself, such as "):
        as_split(both)
    stream = type("Stream", (), {"column_names": ["image", "label"]})()
    with refused(
        "data must be a data set in memory, got an object of type Stream; load it without"
    ):
        as_split(stream)


def test_columns_of_images_of_several_sizes_are_refused():
    images = [Image.new("RGB", (4, 4)), Image.new("RGB", (5, 4))]
    line = (
        'images must have one size and mode, got 4×4 RGB and 5×4 RGB; image.convert("RGB").resize('
    )
    with refused(line):
        as_split(Columns({"image": images, "label": [0, 1]}))


def with_value(array, value):
    changed = array.copy()
    changed[3, 0, 2, 2] = value
    return changed


FORMS_TEXT = "(images, labels), a sequence of (image, label) pairs, or what macer.data.load returns"
REMEDY = "give the dataset of a loader, labels beside images"
NORMALISED = (
    "give them as they were before they were normalised: TrainRecipe(normalise='data') does"
)
CHANNELS_LAST = (
    "images.transpose(0, 3, 1, 2) of an array or .permute(0, 3, 1, 2) of a tensor puts them there"
)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (255 * FLOATS, 'images of floats must be in [0, 1], got 87; images.astype("uint8") takes '
         "them as 8-bit images"),
        (2 * FLOATS - 1, f"images of floats must be in [0, 1], got -0.317647; {NORMALISED}"),
        (with_value(FLOATS, 1.5), f"images of floats must be in [0, 1], got 1.5; {NORMALISED}"),
        (with_value(FLOATS, np.nan), "images of floats must be in [0, 1], got nan; correct"),
        (with_value(FLOATS, np.inf), "images of floats must be in [0, 1], got inf; correct"),
        (FLOATS / 255, "images of floats must be multiples of 1/255, as 8-bit images are, got "
         '0.00133795; (images * 255).round().astype("uint8") rounds them'),
        (with_value(FLOATS, 0.5), "images of floats must be multiples of 1/255, as 8-bit images "
         "are, got 0.5; "),
        (with_value(IMAGES.astype(int), -1), "images of whole numbers must be 0 … 255, got -1"),
        (with_value(IMAGES.astype(int), 256), "images of whole numbers must be 0 … 255, got 256"),
        (FLOATS.astype(np.uint8), "images must not all be black, got no value above 0 of 255; "),
        (IMAGES // 128, "images must not all be black, got no value above 1 of 255; multiply "),
        (IMAGES > 128, "images must be uint8, or floats in [0, 1], got bool; "
         'images.astype("uint8") * 255 makes them'),
        (FLOATS + 0j, "images must be uint8, or floats in [0, 1], got complex64"),
        (IMAGES.astype(object), "images must be uint8, or floats in [0, 1], got object"),
        (IMAGES.astype(str), "images must be uint8, or floats in [0, 1], got <U3"),
        (None, "images must be uint8, or floats in [0, 1], got object"),
        ("images.npy", "images must be uint8, or floats in [0, 1], got <U10"),
        (IMAGES.reshape(64, 64), "images must be (images, channels, height, width) or (images, "
         "height, width), got shape (64, 64); reshape them; tables, series and sound go by "
         "Python, to macer.train or macer.certify with value_range=None"),
        (IMAGES[None], "images must be (images, channels, height, width) or (images, height, "),
        (IMAGES[:0], "images must not be empty, got shape (0, 1, 8, 8)"),
        (IMAGES[:, :, :0], "images must not be empty, got shape (64, 1, 0, 8)"),
        (IMAGES.transpose(0, 2, 3, 1), "images must have their channels first, got shape "
         f"(64, 8, 8, 1); {CHANNELS_LAST}"),
        (torch.from_numpy(COLOURS).permute(0, 2, 3, 1), "images must have their channels first, "
         f"got shape (64, 8, 8, 3); {CHANNELS_LAST}"),
        (torch.from_numpy(FLOATS).bfloat16(), "images must be a tensor that NumPy can read, got "
         "strided of bfloat16; make it dense and float32 or uint8"),
        (torch.from_numpy(FLOATS).to_sparse(), "images must be a tensor that NumPy can read, got "
         "sparse_coo of float32; make it"),
        ([*IMAGES[:63], IMAGES[0, :, :4]], "images must be an array, got list of parts of "
         "different shapes or types; make them the same"),
        ([[1, 2], [3]], "images must be an array, got list of parts of different shapes"),
        ([Image.new("RGBA", (8, 8))] * 64, "images must be of mode L or RGB, got RGBA; "
         'image.convert("RGB") makes one'),
    ],
)  # fmt: skip
def test_images_that_are_none_are_refused(images, message):
    with pytest.raises(Mistake) as refusal:
        as_split((images, LABELS))
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:63], "labels must be one per image, got 63 for 64 images"),
        (np.eye(3)[LABELS], "labels must be one number per image, got shape (64, 3); "
         "labels.argmax(1) may be what you mean"),
        (LABELS[:, None], "labels must be one number per image, got shape (64, 1); "
         "labels.reshape(-1) may be what you mean"),
        (3, "labels must be one number per image, got shape ()"),
        (LABELS - 1, "labels must be at least 0, got -1; they count from 0"),
        (LABELS + 0.5, "labels must be whole numbers, got 2.5"),
        (LABELS * np.nan, "labels must be whole numbers, got nan"),
        (LABELS + np.inf, "labels must be whole numbers, got inf"),
        (LABELS > 1, "labels must be whole numbers, got bool"),
        (LABELS.astype(object), "labels must be whole numbers, got object"),
        (["cat"] * 64, "labels must be whole numbers, got 'cat'; "
         "classes, labels = np.unique(labels, return_inverse=True) numbers them"),
        (LABELS.astype(np.uint64) + 2**63, "labels must be below 2,147,483,648, a number of "),
        ([[0], [1, 2]], "labels must be an array, got list of parts of different shapes"),
        (None, "labels must be one number per image, got shape ()"),
    ],
)  # fmt: skip
def test_labels_that_are_none_are_refused(labels, message):
    with pytest.raises(Mistake) as refusal:
        as_split((IMAGES, labels))
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (IMAGES, f"data must be {FORMS_TEXT}, got an object of type ndarray; {REMEDY}"),
        (torch.from_numpy(IMAGES), f"data must be {FORMS_TEXT}, got an object of type Tensor; "),
        ((IMAGES, LABELS, LABELS), f"data must be {FORMS_TEXT}, got a tuple of 3"),
        ((IMAGES,), f"data must be {FORMS_TEXT}, got a tuple of 1"),
        ("mnist", f"data must be {FORMS_TEXT}, got 'mnist'; {REMEDY}"),
        ({"images": IMAGES}, f"data must be {FORMS_TEXT}, got {{'images': array("),
        (None, f"data must be {FORMS_TEXT}, got None; {REMEDY}"),
        (iter([]), f"data must be {FORMS_TEXT}, got an object of type list_iterator; "),
        (DataLoader(Pictures(IMAGES, LABELS)), f"data must be {FORMS_TEXT}, got an object of type "
         f"DataLoader; {REMEDY}"),
        ([(IMAGES[0], 0), (IMAGES[1], 1, 2)], "data must be (image, label) pairs, "
         "got 3 values as number 1"),
        ([IMAGES[0]] * 3, "data must be (image, label) pairs, got an object of "
         "type ndarray as number 0"),
        (Pictures(IMAGES[:0], LABELS[:0]), "images must not be empty, got shape (0,)"),
        ([], "images must not be empty, got shape (0,)"),
    ],
)  # fmt: skip
def test_data_that_are_none_are_refused(data, message):
    with pytest.raises(Mistake) as refusal:
        as_split(data)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


NAMES = "classes must be a list of names, one per label, got"
TEN = "tuple(map(str, range(10))) names ten by their numbers"


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (3, f"{NAMES} 3; {TEN}"),
        ("abc", f"{NAMES} 'abc'; {TEN}"),
        ([0, 1, 2], f"{NAMES} [0, 1, 2]; {TEN}"),
        (["one"], "classes must be two or more different names, got ['one']"),
        ([], "classes must be two or more different names, got []"),
        (["a", "b", "a"], "classes must be two or more different names, got ['a', 'b', 'a']"),
        (["a", "b"], "labels must be below 2, the number of classes, got 2 at image 0"),
    ],
)
def test_classes_that_are_none_are_refused(classes, message):
    with pytest.raises(Mistake) as refusal:
        class_names(classes, as_split((IMAGES, LABELS)))
    assert str(refusal.value) == message


@pytest.mark.parametrize("labels", [LABELS + 1, LABELS * 10**9 // 2])
def test_labels_that_leave_a_number_out_need_classes(labels):
    missing = 0 if labels.min() else 1
    with pytest.raises(Mistake) as refusal:
        class_names(None, as_split((IMAGES, labels)))
    assert str(refusal.value) == (
        f"classes must be given if a label has no image, got no label {missing} but a label "
        f"{labels.max()}; labels count from 0"
    )

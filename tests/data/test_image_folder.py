from data_files import refused, same, write_image
from PIL import Image

from macer.data import photograph
from macer.data.image_folder import listed
from macer.data.sets import Split, classes_of, load

# law


def test_folders_are_read_in_sorted_order_and_grey_stays_one_channel(tmp_path):
    for split, more in (("train", 1), ("test", 0)):
        write_image(tmp_path / split / "dog" / "b.png", 30 + more)
        write_image(tmp_path / split / "dog" / "a.png", 20 + more)
        write_image(tmp_path / split / "cat" / "c.PNG", 10 + more)
    images, labels = load("folder", "test", tmp_path)
    assert classes_of("folder", tmp_path) == ("cat", "dog")
    assert images.shape == (3, 1, 4, 5)
    assert images[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert labels.tolist() == [0, 1, 1]


def test_one_coloured_image_of_either_split_makes_both_rgb(tmp_path):
    write_image(tmp_path / "train/cat/a.png", 7)
    write_image(tmp_path / "test/cat/a.png", (1, 2, 3), mode="RGB")
    assert load("folder", "train", tmp_path).images[0, :, 0, 0].tolist() == [7, 7, 7]
    test = load("folder", "test", tmp_path).images
    assert test[0, :, 0, 0].tolist() == [1, 2, 3]
    assert test.flags.c_contiguous


def test_jpeg_images_are_read(tmp_path):
    write_image(tmp_path / "test/cat/a.jpg", 128)
    assert abs(int(load("folder", "test", tmp_path).images[0, 0, 0, 0]) - 128) <= 1


def test_images_have_as_many_pixels_as_the_limit_and_no_more(tmp_path, monkeypatch):
    write_image(path := tmp_path / "a.png", 0, size=(64, 64))
    monkeypatch.setattr(photograph, "LARGEST_IMAGE", 4096)
    assert photograph.read_photograph(path, channels=1).pixels.shape == (1, 64, 64)


def test_a_grey_image_after_a_coloured_one_leaves_all_in_colour(tmp_path):
    write_image(tmp_path / "test/cat/a.png", (1, 2, 3), mode="RGB")
    write_image(tmp_path / "test/cat/b.png", 7)
    assert load("folder", "test", tmp_path).images[:, :, 0, 0].tolist() == [[1, 2, 3], [7, 7, 7]]


def test_our_limit_of_pixels_comes_before_pillows_warning():
    assert photograph.LARGEST_IMAGE < Image.MAX_IMAGE_PIXELS


def test_the_last_training_images_of_a_folder_are_of_all_classes(tmp_path):
    for split, numbers in (("train", range(30)), ("test", range(30, 32))):
        for label, name in enumerate(("cat", "dog", "fox")):
            for i in numbers:
                write_image(tmp_path / split / name / f"{i:02}.png", 80 * label + i)
    images, labels = load("folder", "train", tmp_path)
    assert {*labels[-15:]} == {*labels[:15]} == {0, 1, 2}
    assert sorted(images[:, 0, 0, 0].tolist()) == [80 * c + i for c in range(3) for i in range(30)]
    assert (images[:, 0, 0, 0] // 80 == labels).all()
    assert same(load("folder", "train", tmp_path), Split(images, labels))
    assert load("folder", "test", tmp_path).labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_listing_names_what_is_no_image_and_opens_nothing(tmp_path):
    for name in ("a.png", "B.JPEG", "c.WebP", "d.tif", "e.bmp", "notes.txt", "Thumbs.db", ".a.png"):
        (tmp_path / "test/cat").mkdir(parents=True, exist_ok=True)
        (tmp_path / "test/cat" / name).touch()
    for place in ("test/cat/more.png", "test/dog", "test/.git"):
        (tmp_path / place).mkdir()
    (tmp_path / "test/readme.jpg").touch()
    found = listed(tmp_path / "test", ("cat", "dog"))
    assert found.names == ["cat/B.JPEG", "cat/a.png", "cat/c.WebP", "cat/d.tif", "cat/e.bmp"]
    assert found.labels.tolist() == [0] * 5
    assert found.empty == ["dog"]
    assert found.skipped == [
        (".git", "in no folder of a class"),
        ("cat/.a.png", "hidden"),
        ("cat/Thumbs.db", "no image by its name"),
        ("cat/more.png", "a folder in the folder of a class"),
        ("cat/notes.txt", "no image by its name"),
        ("readme.jpg", "in no folder of a class"),
    ]


def test_val_is_read_where_there_is_no_test(tmp_path):
    write_image(tmp_path / "train/cat/a.png", 7)
    write_image(tmp_path / "val/cat/a.png", 9)
    split = load("folder", "test", tmp_path)
    assert split.files == ("val/cat/a.png",) and split.images[0, 0, 0, 0] == 9
    assert classes_of("folder", tmp_path) == ("cat",)
    write_image(tmp_path / "test/cat/a.png", 8)
    split = load("folder", "test", tmp_path)
    assert split.files == ("test/cat/a.png",) and split.images[0, 0, 0, 0] == 8
    assert "not read, since there is a test folder: val" in split.account.lines()


# refusal


def test_images_of_another_height_alone_are_refused(tmp_path):
    write_image(tmp_path / "test/cat/a.png", 0, size=(5, 5))
    write_image(tmp_path / "test/cat/b.png", 0, size=(5, 4))
    with refused("got 5×4 in"):  # another height alone
        load("folder", "test", tmp_path)


def test_images_of_two_sizes_are_refused_naming_the_first_that_differs(tmp_path):
    write_image(tmp_path / "test/cat/a.png", 0)
    write_image(tmp_path / "test/cat/b.png", 0, size=(6, 4))
    path = tmp_path / "test/cat/b.png"
    with refused(f"one size, 5×4 (width×height) so far, got 6×4 in {path}; add --size N"):
        load("folder", "test", tmp_path)


def test_classes_must_agree_between_the_splits(tmp_path):
    for path in ("train/cat", "train/dog", "test/cat", "test/.hidden"):
        (tmp_path / path).mkdir(parents=True)
    with refused(
        f"{tmp_path / 'test'} must agree, got 'dog' in train only; make that folder in test too, "
        "it may be empty, or remove it from train"
    ):
        classes_of("folder", tmp_path)
    (tmp_path / "test/dog").mkdir()
    (tmp_path / "test/emu").mkdir()
    with refused("must agree, got 'emu' in test only"):
        load("folder", "train", tmp_path)


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "test/cat").mkdir(parents=True)
    expected = (
        f"no images in {tmp_path / 'test'}: expected {tmp_path / 'test'}/CLASS/*.png or *.jpg"
    )
    with refused(expected):
        load("folder", "test", tmp_path)
    for name in ("a.heic", "b.heic", "c.heic", "d.heic", "e.heic"):
        (tmp_path / "test/cat" / name).touch()
    found = "cat/a.heic, cat/b.heic, cat/c.heic and 2 others"
    with refused(f"{expected}; found only {found}"):
        load("folder", "test", tmp_path)


def test_an_image_too_large_too_deep_or_damaged_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "test/cat/a.png"
    write_image(path.with_suffix(".tif"), 0, mode="F")
    with refused(f"{path.with_suffix('.tif')} must have 8 or 16 bits per channel, got mode 'F'"):
        load("folder", "test", tmp_path)
    path.with_suffix(".tif").unlink()
    write_image(path, 0, size=(64, 64))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with refused(f"{path} must be a whole PNG, JPEG, WebP, BMP or TIFF image: "):
        load("folder", "test", tmp_path)
    path.write_bytes(b"GIF89a")
    with refused(f"{path} must be a PNG, JPEG, WebP, BMP or TIFF image: "):
        load("folder", "test", tmp_path)
    path.write_bytes(content)
    monkeypatch.setattr(photograph, "LARGEST_IMAGE", 4095)
    with refused(f"{path} must have at most 4,095 pixels, got 64×64"):
        load("folder", "test", tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # Pillow raises above twice of it
    with refused(f"{path} must have at most 4,095 pixels: Image size (4096 pixels)"):
        load("folder", "test", tmp_path)

"""Images that requests bring: those that cannot be used are refused, and cost little."""

import random
import zlib

import numpy as np
import pytest
from starlette.testclient import TestClient
from tiny_service import IMAGES, png

from macer.server.uploads import form_of

BODY = png(IMAGES[0])


def form(*parts: tuple[str, bytes], boundary: str = "xyz") -> bytes:
    lines = b"".join(
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (boundary.encode(), head.encode(), content)
        for head, content in parts
    )
    return lines + b"--%s--\r\n" % boundary.encode()


# law


def test_a_forms_image_is_read_byte_by_byte() -> None:
    contents = [bytes(range(256)) * 3, b"\r\n", b"", b"\n\r\r\n\n", b"--xy\r\n--xyZ", BODY]
    for content in contents:
        body = form(('name="n"', b"300"), ('name="image"; filename="a.png"', content))
        fields, image = form_of('multipart/form-data; boundary="xyz"', body)
        assert (fields, image) == ({"n": "300"}, content)


@pytest.mark.medium
def test_bodies_of_noise_are_each_refused_in_one_line(client: TestClient) -> None:
    """Cut, changed, random; as images and as forms. What is answered is the image's answer."""
    source = random.Random(0)
    right = client.post("/predict?n=200&deadline=30", content=BODY).json()["votes"]
    answered = 0
    for i in range(300):
        changed = bytearray(BODY[: source.randrange(1, len(BODY))] if i % 3 == 0 else BODY)
        for _ in range(source.randrange(1, 6)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        if i % 3 == 2:
            changed = bytearray(source.randbytes(source.randrange(200)))
        kind = source.choice(["image/png", "multipart/form-data; boundary=a", "", "a/b; c=\x80"])
        response = client.post(
            "/predict?n=200&deadline=30", content=bytes(changed),
            headers={"content-type": kind.encode("latin-1")},
        )  # fmt: skip
        if response.status_code == 200:
            answered += 1
            assert sum(response.json()["votes"]) <= 200
        else:
            assert response.status_code in (413, 415, 422)
            assert response.text.count("\n") == 1 and response.json()["error"]["message"]
    assert answered < 100
    again = client.post("/predict?n=200&deadline=30", content=BODY).json()["votes"]
    assert again == right


# refusal


def huge_png(
    side: int, form: bytes = b"\x08\x00", more: tuple[bytes, bytes] | None = None
) -> bytes:
    """A few kilobytes that say they are side × side pixels; grey of 8 bits, or of another form."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        size, check = len(data).to_bytes(4, "big"), zlib.crc32(kind + data).to_bytes(4, "big")
        return size + kind + data + check

    size = side.to_bytes(4, "big")
    head = chunk(b"IHDR", size + size + form + b"\x00\x00\x00")
    head += chunk(*more) if more else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"", 415, "image"),
        (b"GIF89a", 415, "image"),
        (BODY[:40], 422, "image"),
        (BODY[:-30], 422, "image"),
        (huge_png(5000), 413, "pixels"),
        (huge_png(100_000), 413, "pixels"),
        (huge_png(300), 422, "image"),
        (huge_png(8, b"\x08\x03"), 422, "image"),  # a palette that is missing
        (huge_png(8, b"\x08\x03", (b"tRNS", bytes(300))), 422, "image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(5 << 20), 413, "body"),
        (png(np.zeros((1, 28, 28), np.uint8)), 422, "image"),
    ],
)
def test_an_image_that_cannot_be_used_is_refused(
    client: TestClient, body: bytes, status: int, kind: str
) -> None:
    for path in ("/predict", "/stream", "/attack?label=0&length=1"):
        response = client.post(path, content=body)
        assert response.status_code == status, response.text
        assert response.json()["error"]["kind"] == kind
    assert client.get("/metrics").text.count("macer_requests_inside 0\n") == 1


def test_the_image_must_have_the_models_size(client: TestClient) -> None:
    message = client.post("/predict", content=png(np.zeros((1, 28, 28), np.uint8))).json()["error"]
    assert message["message"] == (
        "the image must be a 1×8×8 image for this model, got 1×28×28; resize it"
    )


def test_a_body_without_a_length_is_refused_at_the_limit(client: TestClient) -> None:
    taken = 0

    def parts():  # type: ignore[no-untyped-def]
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield bytes(1 << 20)

    assert client.post("/predict", content=parts()).status_code == 413


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("multipart/form-data", b"", "a form must have a boundary of 1 to 70 characters"),
        ("multipart/form-data; boundary=xyz", b"", "a form must have one image, got 0"),
        (
            "multipart/form-data; boundary=xyz",
            form(('name="image"', BODY), ('name="other"; filename="b"', BODY)),
            "a form must have one image, got 2",
        ),
        (
            "multipart/form-data; boundary=xyz",
            form(*[('name="n"', b"1")] * 2000),
            "a form must have at most 16 fields",
        ),
        (
            "multipart/form-data; boundary=xyz",
            form(("a=b", BODY)),
            "each field of a form must have a name and one value",
        ),
        (
            "multipart/form-data; boundary=xyz",
            form(('name="image"', BODY), ('name="sigma"', b"1")),
            "unknown parameter 'sigma'",
        ),
        (
            "multipart/form-data; boundary=xyz",
            form(('name="image"', BODY), ('name="model"', b"b")),
            "model must be given once, got two values",
        ),
    ],
)
def test_a_form_that_cannot_be_used_is_refused(
    client: TestClient, kind: str, body: bytes, message: str
) -> None:
    response = client.post("/predict?model=a", content=body, headers={"content-type": kind})
    assert response.status_code == 422
    assert response.json()["error"]["message"] == message

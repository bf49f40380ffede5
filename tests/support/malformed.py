"""Requests to a service that no client should send: damaged images, forms, parameters and HTTP."""

import random
import zlib
from collections.abc import Callable

KINDS = ("image/png", "image/jpeg", "multipart/form-data; boundary=a", "multipart/form-data",
         "multipart/form-data; boundary=", "text/plain", "", "a/b; c=\x80")  # fmt: skip
PATHS = ("/predict", "/stream", "/attack")
NAMES = ("n", "alpha", "deadline", "radius", "model", "copies", "label", "length", "sigma", "x\x00")
VALUES = ("", "0", "-1", "1", "1e400", "nan", "inf", "-inf", "2.5", "1e-300", "9" * 400, "0x10",
          "zoo:mnist-0.50", "../../etc/passwd", "%00", "%ff%fe", "a" * 3000, "١٢", "None", "[]",
          "true", "1;n=2", "+1", " 1", "1_000")  # fmt: skip


def malformed(source: random.Random, image: bytes) -> tuple[bytes, bool]:
    """A request made from a right one, and whether an answer may be expected.

    Now and then it is still right. One that is cut off is followed by nothing: the client leaves.
    """
    if source.random() < 0.03:
        whole = _request(_path(source), image)
        return whole[: source.randrange(len(whole))], False
    return source.choice(_ACTS)(source, image), True


def _request(
    path: str, body: bytes, kind: str = "image/png", *, length: str | None = None
) -> bytes:
    size = str(len(body)) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n"
    return head.encode("latin-1", "replace") + b"connection: close\r\n\r\n" + body


def _path(source: random.Random) -> str:
    """An address whose own parameters are right and cheap."""
    path = source.choice(PATHS)
    return f"{path}?n=200&deadline=30" + ("&label=1&length=0.1" if path == "/attack" else "")


def _cut(source: random.Random, image: bytes) -> bytes:
    return _request(_path(source), image[: source.randrange(len(image))])


def _changed(source: random.Random, image: bytes) -> bytes:
    changed = bytearray(image)
    for _ in range(source.randrange(1, 8)):
        changed[source.randrange(len(changed))] = source.randrange(256)
    return _request(_path(source), bytes(changed), source.choice(KINDS))


def _noise(source: random.Random, image: bytes) -> bytes:
    begin = source.choice((b"", image[:8], b"\xff\xd8\xff\xe0", image[:33]))
    return _request(_path(source), begin + source.randbytes(source.randrange(2000)))


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + check


def _png(source: random.Random, image: bytes) -> bytes:
    """A PNG whose sums are right and whose header, pixels or chunks are not."""
    width, height = (source.choice((0, 1, 27, 28, 29, 300, 4097, 2**31)) for _ in range(2))
    depth, colour = source.choice((1, 2, 4, 8, 16, 3)), source.choice((0, 2, 3, 4, 6, 5))
    size = (width % 2**32).to_bytes(4, "big") + (height % 2**32).to_bytes(4, "big")
    head = size + bytes([depth, colour, source.choice((0, 1)), 0, source.choice((0, 1, 2))])
    pixels = zlib.compress(bytes(source.randrange(100_000)))
    more = source.choice((b"", _chunk(b"tRNS", b"\0" * 300), _chunk(b"PLTE", b"\1" * 7),
                          _chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(10**6))),
                          _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7))),
                          _chunk(b"eXIf", source.randbytes(50)),
                          _chunk(b"acTL", b"\0\0\0\2\0\0\0\0")))  # fmt: skip
    parts = [_chunk(b"IHDR", head), more, _chunk(b"IDAT", pixels), _chunk(b"IEND", b"")]
    return _request(_path(source), image[:8] + b"".join(parts))


def _form(source: random.Random, image: bytes) -> bytes:
    heads = ('name="image"', 'name="image"; filename="a.png"', 'name="n"', "name=", "", "a=b",
             'name="image"; filename*=utf-8\'\'%ff', 'name="\x80"', "x" * 5000)  # fmt: skip
    ends = (b"--a--\r\n", b"--a", b"", b"--b--\r\n")
    fields = b"".join(
        b"--a\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (source.choice(heads).encode("latin-1"), source.choice((image, b"", b"1", image[:50])))
        for _ in range(source.choice((0, 1, 1, 2, 3, 20)))
    )
    kind = source.choice(KINDS[2:5])
    return _request(_path(source), fields + source.choice(ends), kind)


def _parameters(source: random.Random, image: bytes) -> bytes:
    given = [
        f"{source.choice(NAMES)}={source.choice(VALUES)}" for _ in range(source.randrange(1, 5))
    ]
    query = "&".join([*given, "deadline=0.3"])
    query = query.replace(" ", "%20").replace("\x00", "%00").encode("utf-8").decode("latin-1")
    return _request(f"{source.choice(PATHS)}?{query}", image)


def _http(source: random.Random, image: bytes) -> bytes:
    """What is hardly HTTP."""
    usual = _request(_path(source), image)
    line = source.choice(("POST", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "HEAD", "\x16\x03"))
    address = source.choice(("/", "/predict", "/../../etc/passwd", "/examples/-1.png", "//", "*",
                             "/examples/99999999999999999999.png", "/%00", "/openapi.json",
                             "/examples/x.png", "http://other/predict", "/metrics"))  # fmt: skip
    lengths = ("-1", "x", "1", "99999999999999999999999", "5000000")
    return source.choice((
        usual.replace(b"POST", line.encode("latin-1"), 1),
        f"{line} {address} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode("latin-1"),
        _request(_path(source), image, length=source.choice(lengths)),
        usual.replace(b"host: a", b"transfer-encoding: chunked", 1),
        usual.replace(b"host: a", b"x: " + b"y" * source.choice((5000, 70_000, 300_000)), 1),
        source.randbytes(source.randrange(1, 400)) + b"\r\n\r\n",
        usual.replace(b"HTTP/1.1", source.choice((b"HTTP/1.0", b"HTTP/9.9", b"")), 1),
    ))  # fmt: skip


_ACTS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _cut, _changed, _noise, _png, _form, _parameters, _http,
)  # fmt: skip

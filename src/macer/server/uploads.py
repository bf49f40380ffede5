"""Images that requests bring: read within limits, as the model's input."""

import asyncio
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from starlette.requests import Request
from torch import Tensor

from macer.certification.predict_files import model_input
from macer.data.photograph import opened_image
from macer.runs.model_file import ModelCard
from macer.server.limits import Limits, Refusal
from macer.system.errors import Mistake

_BODY_SECONDS = 20.0  # for the whole body
_MOST_FIELDS = 16  # of a form
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_NAME = Path("the image")  # in messages


async def body_of(request: Request, limits: Limits) -> bytes:
    """The body, unless it is too long or comes too slowly."""
    too_long = Refusal(413, "body", f"a body must have at most {limits.body:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.body:
        raise too_long
    parts, total = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                total += len(part)
                if total > limits.body:
                    raise too_long
                parts.append(part)
    except TimeoutError:
        message = f"a body must arrive within {_BODY_SECONDS:g} seconds"
        raise Refusal(408, "slow", message) from None
    return b"".join(parts)


def form_of(content_type: str, body: bytes) -> tuple[dict[str, str], bytes]:
    """The fields of a form, and its image; any other body is an image alone."""
    if not content_type.lower().startswith("multipart/form-data"):
        return {}, body
    kind = Message()
    kind["Content-Type"] = content_type.encode("ascii", "replace").decode()
    boundary = kind.get_param("boundary")
    if not isinstance(boundary, str) or not 0 < len(boundary) <= 70:
        raise Refusal(422, "form", "a form must have a boundary of 1 to 70 characters")
    if body.count(b"--" + boundary.encode()) > _MOST_FIELDS + 1:
        raise Refusal(422, "form", f"a form must have at most {_MOST_FIELDS} fields")
    head = f'Content-Type: multipart/form-data; boundary="{boundary}"\r\n\r\n'
    parsed = BytesParser().parsebytes(head.encode() + body)
    fields: dict[str, str] = {}
    images: list[bytes] = []
    for part in parsed.get_payload() if parsed.is_multipart() else ():
        assert isinstance(part, Message)
        content = part.get_payload(decode=True)
        name = part.get_param("name", header="content-disposition")
        if not isinstance(content, bytes) or not isinstance(name, str):
            raise Refusal(422, "form", "each field of a form must have a name and one value")
        if part.get_filename() is None and name != "image":
            fields[name] = content.decode("utf-8", "replace")
        else:
            images.append(content)
    if len(images) != 1:
        raise Refusal(422, "form", f"a form must have one image, got {len(images)}")
    return fields, images[0]


def read_upload(content: bytes, card: ModelCard, limits: Limits) -> Tensor:
    """The pixels that the model sees, (channels, height, width) uint8."""
    if not content.startswith(_SIGNATURES):
        raise Refusal(415, "image", "the image must be a PNG or JPEG file")
    try:
        with opened_image(_NAME, content, most=limits.pixels) as image:
            return model_input(image, card)
    except Mistake as mistake:
        is_large = f"at most {limits.pixels:,} pixels" in str(mistake)
        status, kind = (413, "pixels") if is_large else (422, "image")
        raise Refusal(status, kind, str(mistake)) from None

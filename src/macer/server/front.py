"""Headers and counts for every answer, and a refusal of pages of other sites."""

import json
import time
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from macer.server.metrics import Metrics

# No other host is asked for anything, and no page of another site frames or reads this one.
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
PATHS = ("/", "/predict", "/stream", "/attack", "/models", "/health", "/metrics", "/openapi.json")


class Front:
    """The application within its headers and counts."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 499  # the client left before there was an answer

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            if self._from_elsewhere(scope):
                self.metrics.errors["site"] += 1
                answer = error_answer(403, "site", "a page of another site may not ask")
                await answer(scope, receive, with_headers)
            else:
                await self.app(scope, receive, with_headers)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self.metrics.answered(path, status, time.monotonic() - started)

    def _from_elsewhere(self, scope: Scope) -> bool:
        """Whether a browser sends this for a page of another site, except by a link."""
        sent = {name: value for name, value in scope["headers"] if name.startswith(b"sec-fetch-")}
        is_link = sent.get(b"sec-fetch-mode") == b"navigate" and scope["method"] == "GET"
        return sent.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not is_link


def error_answer(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as one line of JSON."""
    text = json.dumps({"error": {"kind": kind, "message": message}}) + "\n"
    more = dict(headers or {})
    if status in (429, 503):
        more["retry-after"] = "1"
    if status == 401:
        more["www-authenticate"] = "Bearer"
    return Response(text, status, more, media_type="application/json")

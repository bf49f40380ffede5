"""The service: its addresses, and what each answers."""

import asyncio
import sys
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from fastapi.telemetry import TelemetryConfig
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from torch import Tensor

from macer import __version__
from macer.certification.anytime import first_look
from macer.server.answers import Answer, Attacked, ErrorAnswer, answer_of, attacked_of
from macer.server.attack import attacked
from macer.server.examples import example_png, examples
from macer.server.front import Front, error_answer
from macer.server.job import Job
from macer.server.limits import Admission, Keys, Limits, Refusal
from macer.server.memory import keep_trimmed
from macer.server.metrics import Metrics
from macer.server.parameters import (
    AnyParameters,
    AttackParameters,
    Parameters,
    StreamParameters,
    checked,
    complaint,
    with_fields,
)
from macer.server.served import Seed, Served
from macer.server.uploads import body_of, form_of, read_upload
from macer.server.waiting import ClientLeft, Events, answered, result_of
from macer.server.worker import Worker

STATIC = Path(__file__).parent / "static"
_DECODING = 4  # images that are decoded at once

# Nothing is sent to another host, whatever the environment says.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False,
    "auto_configure": False,
}  # fmt: skip

_IMAGE = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"image": _IMAGE}, "required": ["image"]}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/png": {"schema": _IMAGE},
            "image/jpeg": {"schema": _IMAGE},
            "multipart/form-data": {"schema": _FORM},
        },
    }
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": why}
    for status, why in {
        401: "no key",
        404: "nothing at this address",
        408: "a body that came too slowly",
        413: "too many bytes or pixels",
        415: "neither PNG nor JPEG",
        422: "a parameter or an image that cannot be used",
        429: "too many requests of one client",
        503: "no place, or no time left",
    }.items()
}


class Service:
    """The state of a service, and its application `front`."""

    def __init__(
        self, models: Mapping[str, Served], *, limits: Limits, seed: Seed, keys: Keys
    ) -> None:
        self.models, self.limits, self.seed, self.keys = models, limits, seed, keys
        self.worker = Worker(seed, at_once=limits.at_once)
        self.admission = Admission(limits)
        self.metrics = Metrics()
        self._decoding = asyncio.Semaphore(_DECODING)
        app = FastAPI(
            title="macer", version=__version__, docs_url=None, redoc_url=None,
            lifespan=self._lifespan, telemetry=_NO_TELEMETRY,
        )  # fmt: skip
        self._add_errors(app)
        self._add_routes(app)
        app.mount("/", StaticFiles(directory=STATIC, html=True))
        self.front = Front(app, self.metrics)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.worker.start()
        trimming = asyncio.create_task(keep_trimmed())
        try:
            yield
        finally:
            trimming.cancel()
            self.worker.stop()
            await run_in_threadpool(self.worker.join)

    def _add_routes(self, app: FastAPI) -> None:
        more: dict[str, Any] = {"responses": _ERRORS, "openapi_extra": _BODY}
        app.post("/predict", response_model=Answer, **more)(self.predict)
        events = {200: {"description": "events", "content": {Events.media_type: {}}}}
        more_of_stream = more | {"responses": _ERRORS | events}
        app.post("/stream", response_class=Response, **more_of_stream)(self.stream)
        app.post("/attack", response_model=Attacked, **more)(self.attack)
        for path in ("/predict", "/stream", "/attack"):
            app.get(path, include_in_schema=False)(self.ask_by_post)
        app.get("/models")(self.list_models)
        app.get("/health")(self.health)
        key: dict[int | str, dict[str, Any]] = {401: _ERRORS[401]}
        app.get("/metrics", response_class=PlainTextResponse, responses=key)(self.count)
        png: dict[int | str, dict[str, Any]] = {
            200: {"description": "an image", "content": {"image/png": {}}},
            404: _ERRORS[404],
            422: _ERRORS[422],
        }
        app.get("/examples/{number}.png", response_class=Response, responses=png)(self.example)

    def _add_errors(self, app: FastAPI) -> None:
        async def refused(_: Request, error: Exception) -> Response:
            refusal = self._refusal(error)
            return error_answer(refusal.status, refusal.kind, str(refusal))

        kinds = (Refusal, RequestValidationError, HTTPException, ClientDisconnect, ClientLeft)
        for kind in (*kinds, Exception):
            app.add_exception_handler(kind, refused)

    def _refusal(self, error: Exception) -> Refusal:
        """The refusal for an exception, counted; an exception that nobody expected is a bug."""
        match error:
            case Refusal():
                refusal = error
            case RequestValidationError():
                refusal = Refusal(422, "parameter", complaint(error.errors()))
            case HTTPException():
                refusal = Refusal(error.status_code, "address", str(error.detail))
            case ClientLeft() | ClientDisconnect():
                refusal = Refusal(499, "left", "the client left")
            case _:
                refusal = Refusal(500, "bug", "a bug; the service's log has it")
                sys.stderr.write("".join(traceback.format_exception(error)))
        self.metrics.errors[refusal.kind] += 1
        return refusal

    def _client(self, request: Request) -> str:
        address = request.client.host if request.client else "unknown"
        return self.keys.client(request.headers.get("authorization"), address)

    def _place(self, request: Request) -> ExitStack:
        """The request's place among those that are answered, until it is closed."""
        place = ExitStack()
        place.enter_context(self.admission.admitted(self._client(request)))
        return place

    async def _upload(
        self, request: Request, parameters: AnyParameters
    ) -> tuple[AnyParameters, Served, int, Tensor]:
        """All parameters of a request, its model, the most samples, and its image."""
        body = await body_of(request, self.limits)
        content_type = request.headers.get("content-type", "")
        async with self._decoding:
            fields, content = await run_in_threadpool(form_of, content_type, body)
            parameters = with_fields(parameters, request.query_params, fields)
            served, n = checked(parameters, self.models, self.limits)
            await run_in_threadpool(first_look, n, parameters.alpha)  # a job finds it again at once
            pixels = await run_in_threadpool(read_upload, content, served.card, self.limits)
        return parameters, served, n, pixels

    def _job(
        self, parameters: Parameters, served: Served, n: int, pixels: Tensor, **more: Any
    ) -> Job:
        return Job(
            served=served, pixels=pixels, number=self.seed.number(pixels), n=n,
            alpha=parameters.alpha, deadline=parameters.deadline, asked=parameters.radius, **more,
        )  # fmt: skip

    async def predict(
        self, request: Request, parameters: Annotated[Parameters, Query()]
    ) -> Response:
        """Label an image, with a certified radius, or abstain."""
        with self._place(request):
            job = self._job(*await self._upload(request, parameters))
            await answered(self.worker, job, request.receive)
        return JSONResponse(asdict(answer_of(job, self.seed)))

    async def stream(
        self, request: Request, parameters: Annotated[StreamParameters, Query()]
    ) -> Response:
        """The same as server-sent events: `look` whenever more is known, then `end` or `error`."""
        place = self._place(request)
        try:
            parameters, served, n, pixels = await self._upload(request, parameters)
            job = self._job(parameters, served, n, pixels, show=parameters.copies)
        except BaseException:
            place.close()
            raise
        return Events(self.worker, job, self.seed, place, self._refusal)

    async def attack(
        self, request: Request, parameters: Annotated[AttackParameters, Query()]
    ) -> Response:
        """Attack an image to a given length by PGD through the noise, and label what it finds."""
        with self._place(request):
            parameters, served, n, pixels = await self._upload(request, parameters)
            came = time.monotonic()
            classes = len(served.card.classes)
            if parameters.label >= classes:
                message = f"label must be below {classes}, got {parameters.label}"
                raise Refusal(422, "parameter", message)
            act = partial(
                attacked, served, pixels, parameters.label, length=parameters.length, seed=self.seed
            )
            future = self.worker.call(act, due=came + parameters.deadline)
            found = await result_of(request, asyncio.wrap_future(future))
            job = self._job(parameters, served, n, found, came=came, begun=True)
            await answered(self.worker, job, request.receive)
        return JSONResponse(asdict(attacked_of(job, self.seed, pixels, length=parameters.length)))

    async def ask_by_post(self) -> Response:
        """Say how to ask, to whoever opens the address in a browser."""
        raise HTTPException(405, "send the image by POST; GET / is a page that does")

    async def list_models(self) -> dict[str, Any]:
        """The models, the limits, and the test images that come with macer."""
        models = [
            {
                "name": served.name, "sigma": served.card.sigma, "shape": served.card.shape,
                "classes": served.card.classes, "dataset": served.card.dataset,
                "sha256": served.model.target.weights_sha256, "precision": served.model.precision,
                "examples": examples(served.card),
            }
            for served in self.models.values()
        ]  # fmt: skip
        return {"models": models, "limits": asdict(self.limits), "key_needed": self.keys.needed}

    async def health(self) -> dict[str, str]:
        """Whether the service answers."""
        return {"status": "ok", "macer": __version__}

    async def count(self, request: Request) -> Response:
        """Counts in the text format of Prometheus."""
        self._client(request)
        gauges = {
            "requests_inside": ("Requests that are being answered.", self.admission.inside.total()),
            "jobs_flying": ("Images that are being sampled.", len(self.worker.flying)),
            "queue_length": ("Images and attacks that wait.", self.worker.waiting),
            "samples_total": ("Noisy images that the networks have seen.", self.worker.samples),
        }
        return PlainTextResponse(self.metrics.text(gauges))

    async def example(self, number: int) -> Response:
        """A test image that comes with macer."""
        return Response(await run_in_threadpool(example_png, number), media_type="image/png")

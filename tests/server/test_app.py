"""The service over HTTP: answers are those of certify_anytime, and nothing kills it."""

import base64
import io
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient
from tiny_service import IMAGES, SEED, bands, png, service
from torch import nn

from macer.certification.anytime import certify_anytime
from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.predict_files import noise_number
from macer.server.limits import Keys
from macer.smoothing.copies import Chunks, NoisyCopies
from macer.smoothing.streams import Purpose

KEY = "correct-horse-battery"
Start = Callable[..., TestClient]


def looks_of(
    image: np.ndarray, *, sigma: float = 0.5, n: int, alpha: float = 0.001
) -> list[Certificate]:
    """What certify_anytime yields for the same seed and image, look after look."""
    pixels = torch.from_numpy(image)
    looks = certify_anytime(
        bands(), pixels[None], sigma=sigma, n=n, alpha=alpha, seed=SEED,
        indices=[noise_number(pixels)],
    )  # fmt: skip
    return [certificate for [certificate] in looks]


def events_of(client: TestClient, query: str, body: bytes) -> list[tuple[str, Any]]:
    with client.stream("POST", f"/stream?{query}", content=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join(response.iter_text())
    blocks = [block.split("\n", 1) for block in text.split("\n\n") if block]
    return [(a.removeprefix("event: "), json.loads(b.removeprefix("data: "))) for a, b in blocks]


def agrees(answer: dict[str, Any], certificate: Certificate) -> None:
    """The answer is the certificate, bit for bit; its radius is rounded down."""
    abstained = certificate.label == ABSTAIN
    assert answer["label"] == (None if abstained else certificate.label)
    assert (answer["abstained"], answer["selected"]) == (abstained, certificate.selected)
    assert answer["drawn"] == certificate.drawn
    if answer["drawn"] == answer["samples"]:
        assert tuple(answer["votes"]) == certificate.estimation
    shown, exact = Decimal(str(answer["radius"])), Decimal(certificate.radius)
    assert shown <= exact < shown + Decimal("0.0001")
    assert Decimal(str(answer["p_a"])) <= Decimal(certificate.p_a)


# reference


@pytest.mark.medium
@pytest.mark.parametrize("i", range(4))
@pytest.mark.parametrize(("model", "sigma"), [("a", 0.5), ("b", 1.0)])
def test_an_answer_is_that_of_certify_anytime(
    client: TestClient, i: int, model: str, sigma: float
) -> None:
    query = f"model={model}&n=1130&alpha=0.01&deadline=30"
    answer = client.post(f"/predict?{query}", content=png(IMAGES[i])).json()
    agrees(answer, looks_of(IMAGES[i], sigma=sigma, n=1130, alpha=0.01)[-1])
    assert (answer["samples"], answer["ended"], answer["n"]) == (1130, "samples", 1130)
    assert (answer["sigma"], answer["alpha"], answer["bound"]) == (sigma, 0.01, "anytime")
    assert (answer["seed"], answer["model"], answer["exact"]) == (SEED, model, True)
    assert (answer["model_sha256"], answer["precision"]) == (f"{model}b" * 32, "fp32")


def test_a_stream_has_the_looks_of_certify_anytime(client: TestClient) -> None:
    events = events_of(client, "n=2000&deadline=30", png(IMAGES[1]))
    looks = looks_of(IMAGES[1], n=2000)
    assert [kind for kind, _ in events] == ["look"] * (len(events) - 1) + ["end"]
    by_samples = dict(zip(range(200, 2001, 200), looks, strict=True))
    for _, answer in events:  # several looks may have become one event, but never another
        agrees(answer, by_samples[answer["samples"]])
    assert events[-1][1]["samples"] == 2000
    radii = [answer["radius"] for _, answer in events]
    assert radii == sorted(radii) and radii[-1] > radii[0]


def test_copies_are_noisy_images_that_voted(client: TestClient) -> None:
    _, answer = events_of(client, "n=400&copies=3&deadline=30", png(IMAGES[0]))[-1]
    pixels = torch.from_numpy(IMAGES[0])
    copies = NoisyCopies(
        pixels[None], [noise_number(pixels)], sigma=0.5, seed=SEED, purpose=Purpose.ESTIMATION,
        rows=100, dtype=torch.float32,
    )  # fmt: skip
    batch, _ = copies.draw(Chunks(np.array([0]), np.array([2]), np.array([3])))
    expected = (batch[:3, 0].clamp(0, 1) * 255).round()
    shown = [np.asarray(Image.open(io.BytesIO(base64.b64decode(c)))) for c in answer["copies"]]
    assert np.array_equal(np.stack(shown), expected.numpy())


# law


@pytest.mark.slow
def test_requests_at_once_have_the_answers_of_single_ones(client: TestClient) -> None:
    """Different images, models, levels and numbers of samples, all in flight together."""
    asked = [
        (i % 8, f"model={'ab'[i % 2]}&n={400 + 130 * (i % 5)}&alpha={(0.001, 0.05)[i % 3 == 0]}")
        for i in range(40)
    ]

    def ask(case: tuple[int, str]) -> dict[str, Any]:
        answer = client.post(f"/predict?{case[1]}&deadline=30", content=png(IMAGES[case[0]])).json()
        return {key: value for key, value in answer.items() if key != "seconds"}

    alone = [ask(case) for case in asked]
    with ThreadPoolExecutor(40) as pool:
        together = list(pool.map(ask, asked))
    assert together == alone
    assert len({json.dumps(answer) for answer in alone}) > 20


@pytest.mark.medium
def test_a_deadline_ends_the_answer_and_the_first_look_is_finished(started: Start) -> None:
    client = started(n=10**7)
    answer = client.post("/predict?deadline=0.5", content=png(IMAGES[0])).json()
    assert answer["ended"] == "deadline" and 200 <= answer["samples"] < 10**7
    assert answer["seconds"] >= 0.5
    agrees(answer, looks_of(IMAGES[0], n=answer["drawn"])[-1])
    at_once = client.post("/predict?deadline=0.000001", content=png(IMAGES[0]))
    assert at_once.status_code == 503 or at_once.json()["samples"] == 200


def test_a_radius_that_is_enough_ends_the_answer(client: TestClient) -> None:
    answer = client.post("/predict?radius=1&deadline=30", content=png(IMAGES[0])).json()
    assert (answer["ended"], answer["asked"]) == ("radius", 1.0)
    assert answer["radius"] >= 1 and answer["samples"] < 2000


@pytest.mark.medium
def test_a_secret_seed_is_in_no_answer(started: Start) -> None:
    running = service(seed=None, n=1000)
    with TestClient(running.front) as client:
        texts = [client.get(path).text for path in ("/models", "/health", "/metrics", "/")]
        response = client.post("/predict?deadline=30", content=png(IMAGES[0]))
        again = client.post("/predict?deadline=30", content=png(IMAGES[0]))
        texts += [response.text, *map(str, response.headers.items())]
    assert response.json()["seed"] == "secret"
    assert response.json()["votes"] == again.json()["votes"]  # asking again is no second try
    assert running.seed.secret and not any(str(running.seed.value) in text for text in texts)
    other = service(seed=None)
    assert other.seed.value != running.seed.value
    pixels = torch.from_numpy(IMAGES[0])
    assert other.seed.number(pixels) != running.seed.number(pixels) != noise_number(pixels)


@pytest.mark.medium
def test_an_attack_stays_within_its_length_and_may_deceive_outside_only(
    client: TestClient,
) -> None:
    body = png(IMAGES[0])
    certified = client.post("/predict?deadline=30", content=body).json()
    assert certified["radius"] > 0.5
    for length in (0.0, 0.9 * certified["radius"], 6.0):
        query = f"label={certified['label']}&length={length}&deadline=30"
        found = client.post(f"/attack?{query}", content=body).json()
        image = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["image"]))), np.float64)
        exact = np.linalg.norm(image - IMAGES[0][0]) / 255
        assert exact <= length and exact <= found["distance"] < exact + 0.0002
        assert found["length"] == length
        inside = found["distance"] <= certified["radius"]
        assert not inside or found["answer"]["label"] in (certified["label"], None)
    assert not inside and found["answer"]["label"] not in (certified["label"], None)


def test_the_same_image_by_every_way_has_the_same_answer(client: TestClient) -> None:
    body, query = png(IMAGES[2]), "n=600&model=b&deadline=30"
    raw = client.post(f"/predict?{query}", content=body).json()
    form = client.post(
        "/predict?model=b",
        files={"image": ("a.png", body, "image/png")},
        data={"n": "600", "deadline": "30"},
    ).json()
    [*_, (kind, streamed)] = events_of(client, query, body)
    assert kind == "end"
    for answer in (form, streamed):
        assert answer | {"seconds": 0} == raw | {"seconds": 0}


def test_every_answer_has_the_headers_that_keep_a_browser_here(client: TestClient) -> None:
    for path in ("/", "/health", "/nowhere", "/style.css", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    for path in ("/docs", "/redoc"):  # their pages would load scripts from another host
        assert client.get(path).status_code == 404


def test_the_description_names_every_address(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/predict", "/stream", "/attack", "/models", "/health", "/metrics"} <= paths.keys()
    parameters = {one["name"] for one in paths["/predict"]["post"]["parameters"]}
    assert parameters == {"model", "deadline", "alpha", "radius", "n"}


def test_the_description_names_the_statuses_that_come(client: TestClient) -> None:
    """And what stands in the body of a refusal."""
    paths = client.get("/openapi.json").json()["paths"]
    for path, status in (("/examples/12345.png", 404), ("/examples/x.png", 422)):
        assert client.get(path).status_code == status
        described = paths["/examples/{number}.png"]["get"]["responses"][str(status)]
        schema = described["content"]["application/json"]["schema"]["$ref"]
        assert schema.endswith("/ErrorAnswer")
    assert "image/png" in paths["/examples/{number}.png"]["get"]["responses"]["200"]["content"]
    assert "401" in paths["/metrics"]["get"]["responses"]


def test_metrics_count_requests_errors_and_samples(client: TestClient) -> None:
    client.post("/predict?n=400&deadline=30", content=png(IMAGES[0]))
    client.post("/predict", content=b"text")
    lines = client.get("/metrics").text.splitlines()
    assert 'macer_requests_total{path="/predict",status="200"} 1' in lines
    assert 'macer_requests_total{path="/predict",status="415"} 1' in lines
    assert 'macer_errors_total{kind="image"} 1' in lines
    assert "macer_samples_total 500" in lines
    assert "macer_queue_length 0" in lines and "macer_requests_inside 0" in lines
    assert any(line.startswith("macer_request_seconds_sum ") for line in lines)


class Slow(nn.Module):
    """Waits until it may go on, so that requests pile up."""

    def __init__(self) -> None:
        super().__init__()
        self.bands, self.go = bands(), threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.go.wait(20)
        return self.bands(x)

    def __deepcopy__(self, _: object) -> "Slow":
        return self


@pytest.fixture
def slow() -> Iterator[Slow]:
    network = Slow()
    yield network
    network.go.set()


def patiently(happened: Callable[[], bool]) -> None:
    """Wait until something has happened, or for so long that it will not."""
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_a_hundred_requests_at_once_are_answered_or_refused_in_one_line(
    started: Start, slow: Slow
) -> None:
    client = started(network=slow, n=400, at_once=8, queue=24, per_client=1000)

    def ask(i: int) -> tuple[int, dict[str, Any], str]:
        response = client.post("/predict?deadline=30", content=png(IMAGES[i % 8]))
        return response.status_code, response.json(), response.text

    with ThreadPoolExecutor(100) as pool:
        futures = [pool.submit(ask, i) for i in range(100)]
        # All that cannot enter are refused while nothing moves.
        patiently(lambda: sum(future.done() for future in futures) >= 100 - 32)
        slow.go.set()
        results = [future.result() for future in futures]
    assert sorted(status for status, _, _ in results) == [200] * 32 + [503] * 68
    for i, (status, answer, text) in enumerate(results):
        if status == 503:
            assert answer["error"]["kind"] == "busy" and text.count("\n") == 1
        else:
            agrees(answer, looks_of(IMAGES[i % 8], n=400)[-1])
    assert client.get("/health").json()["status"] == "ok"


def test_a_client_has_so_many_places_and_no_more(started: Start, slow: Slow) -> None:
    client = started(network=slow, n=400, per_client=2, keys=Keys([KEY, KEY[::-1]]))

    def ask(key: str) -> int:
        head = {"authorization": f"Bearer {key}"}
        return client.post("/predict", content=png(IMAGES[0]), headers=head).status_code

    with ThreadPoolExecutor(4) as pool:
        first = [pool.submit(ask, KEY) for _ in range(3)]
        patiently(lambda: any(future.done() for future in first))
        other = pool.submit(ask, KEY[::-1])
        slow.go.set()
        assert sorted(future.result() for future in first) == [200, 200, 429]
        assert other.result() == 200


def test_a_network_that_fails_is_a_bug_in_one_line_and_the_service_lives(
    started: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("the secret of the house")

    client = started(network=Failing())
    response = client.post("/predict", content=png(IMAGES[0]))
    assert (response.status_code, response.json()["error"]["kind"]) == (500, "bug")
    assert "secret" not in response.text and "secret of the house" in capsys.readouterr().err
    [(kind, error)] = events_of(client, "", png(IMAGES[0]))
    assert (kind, error["error"]["kind"]) == ("error", "bug")
    assert client.get("/health").status_code == 200


# refusal


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("model=c", "unknown model 'c'; choose from a, b"),
        ("deadline=0", "deadline must be greater than 0, got '0'"),
        ("deadline=31", "deadline must be at most 30 seconds, got 31"),
        ("deadline=nan", "deadline must be a finite number, got 'nan'"),
        ("alpha=1", "alpha must be less than 1, got '1'"),
        ("alpha=0", "alpha must be greater than or equal to 0.000000001, got '0'"),
        ("n=2001", "n must be at most 2000, got 2001"),
        ("n=5", "n must be at least 1"),
        ("n=2.5", "n must be a valid integer"),
        ("radius=-1", "radius must be greater than or equal to 0, got '-1'"),
        ("sigma=1", "unknown parameter 'sigma'"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_422_in_one_line(
    client: TestClient, query: str, message: str
) -> None:
    response = client.post(f"/predict?{query}", content=png(IMAGES[0]))
    assert response.status_code == 422
    assert response.json()["error"]["message"].startswith(message)
    assert response.text.count("\n") == 1


def test_an_attack_on_a_class_that_is_none_is_refused(client: TestClient) -> None:
    response = client.post("/attack?label=3&length=1", content=png(IMAGES[0]))
    assert response.json()["error"]["message"] == "label must be below 3, got 3"


@pytest.mark.medium
def test_an_attack_whose_turn_comes_too_late_is_refused() -> None:
    made, free = service(n=2000), threading.Event()
    address, body = "/attack?label=0&length=1&deadline=0.3", png(IMAGES[0])
    with TestClient(made.front) as client, ThreadPoolExecutor(1) as pool:
        assert client.post(address, content=body).json()["answer"]["samples"] >= 200
        made.worker.call(lambda: free.wait(20), due=math.inf)
        late = pool.submit(client.post, address, content=body)
        time.sleep(0.6)
        free.set()
        response = late.result(20)
    assert response.status_code == 503 and response.json()["error"]["kind"] == "busy"


@pytest.mark.parametrize("path", ["/predict", "/stream", "/attack"])
def test_an_address_that_is_opened_in_a_browser_says_how_to_ask(
    client: TestClient, path: str
) -> None:
    response = client.get(path)
    assert response.status_code == 405 and "POST" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "given",
    [
        {}, {"authorization": KEY}, {"authorization": f"Basic {KEY}"}, {"authorization": "Bearer"},
        {"authorization": f"Bearer {KEY[:-1]}"}, {"authorization": f"Bearer {KEY}x"},
        {"authorization": "Bearer "}, {"authorization": b"Bearer \xff\xfe"},
    ],
)  # fmt: skip
def test_without_a_right_key_nothing_is_answered(started: Start, given: dict[str, Any]) -> None:
    client = started(keys=Keys([KEY]))
    for path in ("/predict", "/stream", "/attack?label=0&length=1"):
        response = client.post(path, content=png(IMAGES[0]), headers=given)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/metrics", headers=given).status_code == 401
    right = {"authorization": f"bearer {KEY}"}
    assert client.post("/predict?n=200", content=png(IMAGES[0]), headers=right).is_success
    assert client.get("/models").json()["key_needed"] is True


def test_a_page_of_another_site_may_not_ask(client: TestClient) -> None:
    head = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    response = client.post("/predict", content=png(IMAGES[0]), headers=head)
    assert response.status_code == 403
    assert client.get("/", headers=head | {"sec-fetch-mode": "navigate"}).status_code == 200

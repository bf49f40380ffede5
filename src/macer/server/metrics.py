"""Counts of a service in the text format of Prometheus."""

from collections import Counter
from collections.abc import Iterable, Mapping

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Metrics:
    """What was answered so far; the event loop's thread alone counts."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[str] = Counter()
        self.buckets: Counter[float] = Counter()
        self.seconds = 0.0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[path, status] += 1
        self.seconds += seconds
        self.buckets.update(bucket for bucket in BUCKETS if seconds <= bucket)

    def text(self, gauges: Mapping[str, tuple[str, int]]) -> str:
        """All of it; gauges are given by name, with their meaning and value."""
        total = self.requests.total()
        requests = ((f'path="{p}",status="{s}"', n) for (p, s), n in sorted(self.requests.items()))
        errors = ((f'kind="{kind}"', n) for kind, n in sorted(self.errors.items()))
        lines = [
            *_family("requests_total", "counter", "Requests answered.", requests),
            *_family("errors_total", "counter", "Requests refused or failed, by kind.", errors),
            *_family("request_seconds", "histogram", "Seconds until the answer's end.", ()),
            *(f'macer_request_seconds_bucket{{le="{b:g}"}} {self.buckets[b]}' for b in BUCKETS),
            f'macer_request_seconds_bucket{{le="+Inf"}} {total}',
            f"macer_request_seconds_sum {self.seconds:.6f}",
            f"macer_request_seconds_count {total}",
        ]
        for name, (meaning, value) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _family(name, kind, meaning, [("", value)])
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, meaning: str, values: Iterable[tuple[str, int]]) -> list[str]:
    lines = [f"# HELP macer_{name} {meaning}", f"# TYPE macer_{name} {kind}"]
    return lines + [f"macer_{name}{{{at}}} {n}" if at else f"macer_{name} {n}" for at, n in values]

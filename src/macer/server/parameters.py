"""The parameters of a request: what it asks for."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from macer.certification.anytime import ANYTIME
from macer.certification.settings import check_settings
from macer.server.limits import Limits, Refusal
from macer.server.served import Served
from macer.system.errors import Mistake

_LEAST_ALPHA = 1e-9  # a smaller one takes long to find its first look

Number = Annotated[float, Field(allow_inf_nan=False)]


class Parameters(BaseModel):
    """The parameters of a request; in the address, or as fields of a form."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="one of GET /models; the first by default")
    deadline: Number = Field(2.0, gt=0, description="seconds until the answer")
    alpha: Number = Field(
        0.001, ge=_LEAST_ALPHA, lt=1, description="probability that a certificate is ever false"
    )
    radius: Number | None = Field(None, ge=0, description="a radius that is enough: stop there")
    n: int | None = Field(None, ge=1, description="most samples; the service's limit by default")


class StreamParameters(Parameters):
    """The parameters of a stream."""

    copies: int = Field(0, ge=0, le=8, description="noisy images to show in each event")


class AttackParameters(Parameters):
    """The parameters of an attack; deadline and n are of the answer for the image it finds."""

    n: int | None = Field(2000, ge=1, description="most samples that label the attacked image")
    label: int = Field(ge=0, description="number of the class to lead away from")
    length: Number = Field(ge=0, le=1000, description="how far it may go, in ℓ₂ for pixels in 0…1")


AnyParameters = TypeVar("AnyParameters", bound=Parameters)


def with_fields(
    parameters: AnyParameters, query: Mapping[str, str], fields: Mapping[str, str]
) -> AnyParameters:
    """The parameters of the address and of a form together."""
    if not fields:
        return parameters
    if both := sorted(set(query) & set(fields)):
        raise Refusal(422, "parameter", f"{both[0]} must be given once, got two values")
    try:
        return type(parameters).model_validate({**query, **fields})
    except ValidationError as error:
        raise Refusal(422, "parameter", complaint(error.errors())) from None


def complaint(errors: Any) -> str:
    """The first error of pydantic in one line."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    match first["type"]:
        case "extra_forbidden":
            return f"unknown parameter {place[:80]!r}"
        case "missing":
            return f"{place} must be given"
    requirement = first["msg"].removeprefix("Input should be ")
    return f"{place} must be {requirement}, got {str(first.get('input'))[:80]!r}"


def checked(
    parameters: Parameters, models: Mapping[str, Served], limits: Limits
) -> tuple[Served, int]:
    """The model and the most samples; what the service does not admit is refused."""
    name = parameters.model if parameters.model is not None else next(iter(models))
    if name not in models:
        known = ", ".join(models)
        raise Refusal(422, "parameter", f"unknown model {name[:80]!r}; choose from {known}")
    if parameters.deadline > limits.seconds:
        message = (
            f"deadline must be at most {limits.seconds:g} seconds, got {parameters.deadline:g}"
        )
        raise Refusal(422, "parameter", message)
    n = limits.n if parameters.n is None else parameters.n
    if n > limits.n:
        raise Refusal(422, "parameter", f"n must be at most {limits.n}, got {n}")
    try:
        sigma = models[name].card.sigma
        check_settings(sigma=sigma, n0=1, n=n, alpha=parameters.alpha, bound=ANYTIME)
    except Mistake as mistake:
        raise Refusal(422, "parameter", str(mistake)) from None
    return models[name], n

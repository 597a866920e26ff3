"""The routes' documentation: what the app's OpenAPI says of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field
from starlette.routing import BaseRoute

from osmosis_ai.rollout.server._admission import IDEMPOTENCY_HEADER
from osmosis_ai.rollout.server._refusals import RefusalBody
from osmosis_ai.rollout.server._routes import DirectRoute, Routes
from osmosis_ai.rollout.types import (
    POLLING_LEASE_HEADER,
    CancelRolloutsResponse,
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutStatus,
    RolloutStatusResponse,
)

# A schema can say most of what check_path_segment wants: no separator, no control character, no
# name of the server's own.
_SEGMENT: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^(?!\.{1,2}$)(?!\.server)[^/\\\x00-\x1f\x7f-\x9f]+$",
}
_URL: dict[str, Any] = {"type": "string", "format": "uri", "pattern": "^https?://[^ ]+$"}
_KEY: dict[str, Any] = {"type": "string", "pattern": "^[!-~]+( +[!-~]+)*$"}

_REFUSALS = {
    400: "The client left while it sent the body.",
    401: "The server has an API key, and the request does not show it.",
    403: "The lease token is another rollout's.",
    404: "No rollout of this id is known.",
    408: "The client stopped while it sent the body.",
    409: "The id is taken.",
    413: "The body is too large.",
    422: "The request cannot be read or makes no sense.",
    429: "There is no capacity; `Retry-After` says when to try again.",
    503: "The server is shutting down, or its backend cannot tell whether it takes the rollout.",
}

_UNWELL: dict[str, Any] = {
    "description": "The backend cannot tell its health.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Health"}}},
}


class WireSample(BaseModel):
    """A sample as trainers see it; one that cannot be encoded has its verdict alone."""

    messages: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    label: str | None = None
    reward: float | None = None
    remove_sample: bool = False
    metrics: dict[str, Any] = Field(default_factory=dict)
    extra_fields: dict[str, Any] = Field(default_factory=dict)


class RolloutResult(BaseModel):
    """Where a rollout stands, and what came of it once it has ended."""

    rollout_id: str
    status: RolloutStatus
    sample: WireSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None
    grading_skipped: str | None = None
    omitted: list[str] | None = None


class Lifecycle(BaseModel):
    """What the server does now."""

    accepting_rollouts: bool
    active_rollouts: int


class Health(BaseModel):
    """The backend's own health, and the server's."""

    instance_id: str
    process_id: str
    lifecycle: Lifecycle


def documented(routes: Routes) -> list[BaseRoute]:
    """Return an app's routes, with their documentation; what is called most comes first."""
    key = _header(IDEMPOTENCY_HEADER, required=False)
    lease = _header(POLLING_LEASE_HEADER, required=True)
    rollout_id = {"name": "rollout_id", "in": "path", "required": True, "schema": _SEGMENT}
    one = "/rollout/{rollout_id:rollout_id}"
    accepted = _Answer(
        RolloutInitResponse, status=202, refusals=(400, 408, 409, 413, 422, 429, 503)
    )
    result = _Answer(RolloutResult, refusals=(403, 404, 422))
    status = _Answer(RolloutStatusResponse, refusals=(422,))
    cancelled = _Answer(CancelRolloutsResponse, refusals=(400, 408, 413, 422))
    create, cancel = {"parameters": [key], **_body(_init_schema())}, _body(_cancel_schema())
    polled, asked = {"parameters": [rollout_id, lease]}, {"parameters": [rollout_id]}
    return [
        _route("GET", f"{one}/result", routes.rollout_result, result, polled),
        _route("POST", "/rollout", routes.create_rollout, accepted, create),
        _route("GET", f"{one}/status", routes.rollout_status, status, asked),
        _route("POST", "/rollout/cancel", routes.cancel_rollouts, cancelled, cancel),
        _route("GET", "/health", routes.health, _Answer(Health), {"responses": {"503": _UNWELL}}),
    ]


@dataclass(frozen=True)
class _Answer:
    model: type[BaseModel]
    status: int = 200
    refusals: tuple[int, ...] = ()


def _route(
    method: str,
    path: str,
    endpoint: Callable[[Request], Awaitable[Response]],
    answer: _Answer,
    extra: dict[str, Any],
) -> DirectRoute:
    refused: dict[int | str, dict[str, Any]] = {
        code: {"model": RefusalBody, "description": _REFUSALS[code]}
        for code in (401, *answer.refusals)
    }
    return DirectRoute(
        path,
        endpoint,
        methods=[method],
        status_code=answer.status,
        response_model=answer.model,
        responses=refused,
        operation_id=endpoint.__name__,
        openapi_extra=extra,
    )


def _header(name: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "schema": {"type": "string"}}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _init_schema() -> dict[str, Any]:
    schema = RolloutInitRequest.model_json_schema()
    nothing: dict[str, Any] = {"type": "null"}
    fields: dict[str, Any] = schema["properties"]
    fields["chat_completions_url"] |= _URL
    fields["rollout_id"] |= {"anyOf": [_SEGMENT, nothing]}
    fields["llm_api_key"] |= {"anyOf": [_KEY, nothing]}
    fields["controller_api_key"] |= {"anyOf": [_KEY, {"type": "string", "maxLength": 0}, nothing]}
    for name in ("completion_callback_url", "grader_callback_url"):
        fields[name] |= {"anyOf": [_URL, nothing]}
    return schema


def _cancel_schema() -> dict[str, Any]:
    ids = {"type": "array", "items": _SEGMENT}
    prefix = {"type": "string", "minLength": 1}
    nothing: dict[str, Any] = {"type": "null"}
    unset = {"ids": nothing, "prefix": nothing, "all": {"const": False}}
    chosen = {"ids": ids, "prefix": prefix, "all": {"const": True}}
    return {
        "type": "object",
        "oneOf": [
            {"required": [name], "properties": {**unset, name: schema}}
            for name, schema in chosen.items()
        ],
    }

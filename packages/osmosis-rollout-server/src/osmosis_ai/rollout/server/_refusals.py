"""Refusals: what was wrong with a request, where, and never what was submitted."""

from collections.abc import Mapping

import orjson
from fastapi import Response
from pydantic import BaseModel, ValidationError

type Location = tuple[str | int, ...]


class RefusalDetail(BaseModel):
    """One thing that was wrong with a request.

    Attributes:
        loc: Where: `body`, `path`, `header` or `server`, then the way to the value.
        msg: What was wrong and what to do, for people.
        type: The kind of problem, for programs.
    """

    loc: list[str | int]
    msg: str
    type: str


class RefusalBody(BaseModel):
    """Body of every answer with a status of 400 or above that a route of ours gives."""

    detail: list[RefusalDetail]


class Refusal(Exception):
    """A request is refused; the routes turn it into the answer.

    Attributes:
        status: The HTTP status.
        details: What was wrong.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        *details: RefusalDetail,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"refused with status {status}")
        self.status = status
        self.details = details
        self.headers = headers

    def response(self) -> Response:
        """Return the answer."""
        body = {"detail": [detail.model_dump() for detail in self.details]}
        return Response(
            orjson.dumps(body), self.status, headers=self.headers, media_type="application/json"
        )


def refuse(
    status: int,
    loc: Location,
    msg: str,
    kind: str,
    *,
    headers: Mapping[str, str] | None = None,
) -> Refusal:
    """Make a refusal with one detail."""
    return Refusal(status, RefusalDetail(loc=list(loc), msg=msg, type=kind), headers=headers)


def refuse_invalid(error: ValidationError, model: type[BaseModel]) -> Refusal:
    """Make the 422 that says what a model found in a body."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return Refusal(
        422,
        *(
            RefusalDetail(
                loc=["body", *_known_parts(problem["loc"], model)],
                msg=_message(problem["type"], problem["msg"]),
                type=problem["type"],
            )
            for problem in problems
        ),
    )


def _message(kind: str, text: str) -> str:
    # Where pydantic would name our models and Python's types.
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return "must be a JSON object"
    return text.removeprefix("Value error, ")


def _known_parts(loc: Location, model: type[BaseModel]) -> list[str | int]:
    # Keys of free-form objects are submitted values too: only our own field names are repeated.
    return [part for part in loc if isinstance(part, int) or part in model.model_fields]

"""Documents as strict readers take them, proved before they replace earlier ones."""

from typing import Final

from pydantic import BaseModel, ValidationError

from osmosis_ai.rollout.trajectory._json import JsonObject
from osmosis_ai.rollout.trajectory._models import Step, Trajectory
from osmosis_ai.rollout.trajectory._numbers import Numbers

# What every step has; with a text for a message nothing in them can be wrong.
_TEXT_STEP: Final = ("step_id", "source", "message")


class RefusedDocumentError(ValueError):
    """A document that strict readers would not take; its text says where and why, and no value."""


def check_document(document: JsonObject, *where: str | int) -> None:
    """Refuse a document that strict readers would not take.

    Models of a whole document would be a second copy of it in memory, for nothing; the steps are
    therefore checked one by one, and their numbers when they are written.

    Args:
        document: The document as plain JSON, as `build_document` makes it.
        where: The path to it in the document that holds it.

    Raises:
        RefusedDocumentError: it would not be taken; the text names the step (`steps.<index>`, from
            0) and the field.
    """
    steps, subagents = document["steps"], document.get("subagent_trajectories", ())
    for index, step in enumerate(steps):
        if not _is_text_alone(step):
            _validate(Step, _without_numbers(step), *where, "steps", index)
    for index, subagent in enumerate(subagents):
        check_document(subagent, *where, "subagent_trajectories", index)
    head = {**document, "steps": [_without_numbers(steps[0])], "subagent_trajectories": None}
    _validate(Trajectory, head, *where)


def _validate(model: type[BaseModel], data: JsonObject, *where: str | int) -> None:
    try:
        model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(map(str, (*where, *first["loc"])))
        msg = f"{path}: {first['msg']}" if path else first["msg"]
        raise RefusedDocumentError(msg) from error


def _is_text_alone(step: JsonObject) -> bool:
    return len(step) == len(_TEXT_STEP) and isinstance(step["message"], str)


def _without_numbers(step: JsonObject) -> JsonObject:
    # They are proved by writing them, and a large document is little else.
    if "metrics" not in step:
        return step
    metrics = step["metrics"]
    return {**step, "metrics": {k: v for k, v in metrics.items() if not isinstance(v, Numbers)}}

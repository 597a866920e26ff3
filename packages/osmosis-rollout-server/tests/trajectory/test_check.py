"""What is said of a document that is refused before it is written."""

from typing import Any

import pytest

from osmosis_ai.rollout.trajectory._check import RefusedDocumentError, check_document

SECRET = "sek-ret"


def document(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    said = [{"step_id": index + 1, "source": "agent", **step} for index, step in enumerate(steps)]
    agent = {"name": "a", "version": "1"}
    return {"schema_version": "ATIF-v1.7", "agent": agent, "steps": said, **fields}


FINE = {"message": "fine"}
CALL: dict[str, Any] = {"tool_call_id": "c", "function_name": SECRET, "arguments": {}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a field of a later step": (
        document(FINE, FINE, {"message": "", "metrics": {"prompt_tokens": SECRET}}),
        "steps.2.metrics.prompt_tokens: ",
    ),
    "a rule about a step": (
        document(FINE, {"message": "", "tool_calls": [CALL, CALL]}),
        "steps.1: .*tool_calls.1.tool_call_id must be unique",
    ),
    "a step of a subagent": (
        document(
            FINE,
            subagent_trajectories=[
                document(FINE),
                document(FINE, {**FINE, "extra": SECRET}, trajectory_id="b"),
            ],
        ),
        "subagent_trajectories.1.steps.1.extra: ",
    ),
    "a field of the document": (
        document(FINE, final_metrics={"total_steps": SECRET}),
        "final_metrics.total_steps: ",
    ),
}


@pytest.mark.parametrize(("refused", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_names_the_step_and_the_field(refused: dict[str, Any], said: str) -> None:
    """But no value, since it becomes a line in the log."""
    with pytest.raises(RefusedDocumentError, match=f"^{said}") as caught:
        check_document(refused)
    assert SECRET not in str(caught.value)

"""The app's OpenAPI document, and the package's public names."""

import re
from typing import Any

import osmosis_ai.rollout.server as package
from osmosis_ai.rollout.server import ControllerAuth, create_rollout_server
from osmosis_ai.rollout.types import RolloutInitRequest

from .harness import HeldBackend

ROUTES = {
    ("/rollout", "post", "202"),
    ("/rollout/cancel", "post", "200"),
    ("/rollout/{rollout_id}/result", "get", "200"),
    ("/rollout/{rollout_id}/status", "get", "200"),
    ("/health", "get", "200"),
}


def document() -> dict[str, Any]:
    return create_rollout_server(backend=HeldBackend()).openapi()


def test_every_route_is_documented_with_its_answers() -> None:
    found: set[tuple[str, str, str]] = set()
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            good = [code for code in operation["responses"] if code < "300"]
            found.add((path, method, *good))
            for code, answer in operation["responses"].items():
                schema = answer["content"]["application/json"]["schema"]["$ref"]
                is_refusal = code >= "400" and (path, code) != ("/health", "503")
                assert schema.endswith("RefusalBody") == is_refusal
            variables = re.findall(r"{(\w+)}", path)
            described = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert described == variables
    assert found == ROUTES


def test_the_request_body_is_documented_whole() -> None:
    operation = document()["paths"]["/rollout"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(RolloutInitRequest.model_fields)
    assert schema["required"] == ["initial_messages", "chat_completions_url"]


def test_trajectory_messages_are_no_part_of_the_wire() -> None:
    assert "trajectory_messages" not in str(document())


def test_the_public_names_are_those_of_the_contract() -> None:
    assert package.__all__ == ["ControllerAuth", "create_rollout_server"]


def test_controller_auth_hides_its_key() -> None:
    auth = ControllerAuth("sek-ret")
    assert auth.as_bearer_headers() == {"Authorization": "Bearer sek-ret"}
    assert "sek-ret" not in repr(auth)
    for empty in (ControllerAuth(), ControllerAuth(None), ControllerAuth("")):
        assert empty.as_bearer_headers() == {}

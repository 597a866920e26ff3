"""What `POST /rollout` accepts, what it refuses, and how."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout import ExecutionOutcome, ExecutionRequest, get_rollout_context
from osmosis_ai.rollout.server import _bodies, create_rollout_server
from osmosis_ai.rollout.server._bodies import parse_body
from osmosis_ai.rollout.server._refusals import Refusal
from osmosis_ai.rollout.types import RolloutInitRequest

from .harness import BODY, HeldBackend, ScriptedBackend, serving, succeeded

SECRET = "sek-ret"


def with_raw(field: str, raw: str) -> bytes:
    """A good body with one more field, whose JSON text is given."""
    return json.dumps(BODY).encode()[:-1] + f', "{field}": {raw}}}'.encode()


def locs(answer: httpx.Response) -> list[list[str | int]]:
    assert answer.status_code == 422, answer.text
    for detail in answer.json()["detail"]:
        assert set(detail) == {"loc", "msg", "type"}
    return [detail["loc"] for detail in answer.json()["detail"]]


async def test_the_answer_tells_what_polling_needs() -> None:
    app = create_rollout_server(
        backend=HeldBackend(), result_wait_timeout_sec=7, polling_lease_timeout_sec=70
    )
    async with serving(app) as client:
        answer = await client.post("r-1")
    assert answer.status_code == 202
    body = answer.json()
    assert len(body.pop("polling_lease_token")) >= 20
    assert body == {
        "rollout_id": "r-1",
        "status": "queued",
        "result_wait_timeout_sec": 7.0,
        "polling_lease_timeout_sec": 70.0,
    }


async def test_the_request_reaches_the_backend_whole() -> None:
    backend = ScriptedBackend(lambda _: _context_seen())
    seen: list[tuple[str, str | None, str]] = []

    async def _context_seen() -> ExecutionOutcome:
        context = get_rollout_context()
        assert context is not None
        seen.append((context.chat_completions_url, context.api_key, context.rollout_id))
        return succeeded()

    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start(
            "r-1",
            metadata={"n": 2**70, "deep": [{"x": None}]},
            grade=False,
            agent_timeout_sec=5,
            grader_timeout_sec=-0.5,
            llm_api_key="llm",
            controller_api_key="ctl",
            extra_fields={"any": 1},
            unknown_key="ignored",
        )
        await client.start("r-2", controller_api_key="ctl")
        await client.start("r-3", controller_api_key="")
        for rollout_id in ("r-1", "r-2", "r-3"):
            await client.result(rollout_id)
    assert backend.requests[0] == ExecutionRequest(
        id="r-1",
        prompt=BODY["initial_messages"],
        label="4",
        metadata={"n": 2**70, "deep": [{"x": None}]},
        grade=False,
        agent_timeout_sec=5,
        grader_timeout_sec=-0.5,
    )
    url = BODY["chat_completions_url"]
    assert seen == [(url, "llm", "r-1"), (url, "ctl", "r-2"), (url, None, "r-3")]


async def test_an_id_is_made_up_where_there_is_none() -> None:
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        ids = {(await client.post()).json()["rollout_id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(len(rollout_id) == 32 for rollout_id in ids)


@pytest.mark.parametrize(
    "rollout_id",
    [
        "../x",
        "a/b",
        "a\\b",
        ".",
        "..",
        "",
        "\x00",
        "x\x00.json",
        "a\n",
        "x" * 300,
        "\u2024\u2024/x",
        ".server",
    ],
)
async def test_b12_ids_that_could_lead_elsewhere_are_refused_everywhere(rollout_id: str) -> None:
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        assert locs(await client.post(rollout_id)) == [["body", "rollout_id"]]
        if rollout_id not in {".", ".."}:  # URL parsers resolve these before they are sent
            quoted = httpx.URL("/", params={"x": rollout_id}).query.decode()[2:].replace("+", "%20")
            status = await client.http.get(f"/rollout/{quoted}/status")
            assert locs(status) == [["path", "rollout_id"]]
        cancel = await client.http.post("/rollout/cancel", json={"ids": ["ok", rollout_id]})
        assert locs(cancel) == [["body", "ids", 1]]
    assert backend.requests == []


@pytest.mark.parametrize("rollout_id", ["C:x", "~", "%2e%2e%2f", "a b", "ключ", "x" * 255])
async def test_b12_odd_ids_are_ordinary_names(rollout_id: str) -> None:
    backend = HeldBackend()
    backend.release.set()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start(rollout_id)
        quoted = httpx.URL("/", params={"x": rollout_id}).query.decode()[2:].replace("+", "%20")
        token = client.leases[rollout_id]
        answer = await client.poll(quoted, token)
        while answer.json()["status"] == "queued":
            answer = await client.poll(quoted, token)
    assert answer.json()["rollout_id"] == rollout_id
    assert answer.json()["status"] == "success"


UNREADABLE = {
    "empty": b"",
    "blank": b" ",
    "no JSON": b"hello",
    "binary": b"\x89PNG\xff",
    "cut": b'{"initial_messages": [',
    "two documents": json.dumps(BODY).encode() * 2,
    "a list": b"[]",
    "null": b"null",
    "NaN for a number": with_raw("agent_timeout_sec", "NaN"),
    "infinite number": with_raw("agent_timeout_sec", "1e999"),
    "NaN in metadata": with_raw("metadata", '{"a": [NaN]}'),
    "infinite in metadata": with_raw("metadata", '{"a": -1e999}'),
    "infinite in an unknown key": with_raw("junk", "1e999"),
    "lone surrogate": with_raw("metadata", '{"a": "\\ud83d"}'),
    "lone surrogate as a key": with_raw("metadata", '{"\\ud83d": 1}'),
    "3000 deep": with_raw("metadata", '{"a":' + "[" * 3000 + "]" * 3000 + "}"),
    "300 deep": with_raw("metadata", '{"a":' + "[" * 300 + "]" * 300 + "}"),
    "invalid UTF-8": with_raw("metadata", '{"a": "x"}').replace(b"x", b"\xed\xa0\xbd"),
    "surrogate beside a missing field": b'{"initial_messages": [{"content": "\\ud83d"}]}',
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_b25_unreadable_bodies_are_422(body: bytes) -> None:
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        for path in ("/rollout", "/rollout/cancel"):
            answer = await client.http.post(path, content=body)
            assert locs(answer)[0][0] == "body"
        assert (await client.http.get("/health")).json()["lifecycle"]["active_rollouts"] == 0
    assert backend.requests == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", 4),
        ("initial_messages", None),
        ("initial_messages", ["text"]),
        ("initial_messages", {SECRET: 1}),
        ("chat_completions_url", f"ftp://{SECRET}"),
        ("chat_completions_url", f"http://{SECRET} x"),
        ("metadata", [SECRET]),
        ("extra_fields", SECRET),
        ("grade", SECRET),
        ("agent_timeout_sec", SECRET),
        ("agent_timeout_sec", True),
        ("llm_api_key", ""),
        ("llm_api_key", " "),
        ("llm_api_key", f"{SECRET}\n"),
        ("llm_api_key", "ключ"),
        ("controller_api_key", f"{SECRET}\n"),
        ("controller_api_key", " "),
        ("controller_api_key", f"{SECRET}ключ"),
        ("completion_callback_url", f"/{SECRET}"),
        ("grader_callback_url", f"http://{SECRET}:port/"),
    ],
)
async def test_b24_b26_a_refusal_names_the_field_and_never_the_value(
    field: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        answer = await client.post("r-1", **{field: value})
        assert locs(answer)[0][:2] == ["body", field]
    assert SECRET not in answer.text
    assert SECRET not in "".join(r.getMessage() for r in caplog.records if r.name != "httpx")


async def test_b24_a_missing_field_does_not_show_the_others() -> None:
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        body: dict[str, Any] = {
            "initial_messages": [],
            "controller_api_key": SECRET,
            SECRET: SECRET,
        }
        answer = await client.http.post("/rollout", json=body)
    assert locs(answer) == [["body", "chat_completions_url"]]
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", ["/rollout", "/rollout/cancel"])
async def test_b30_a_body_over_the_limit_is_413(path: str) -> None:
    app = create_rollout_server(backend=HeldBackend(), max_body_bytes=1000)

    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(3):
            yield b" " * 500

    async with serving(app) as client:
        for content in (b" " * 1001, b"x" * 3000, b"x" * 10_000_000, chunks()):
            answer = await client.http.post(path, content=content)
            assert answer.status_code == 413
            assert answer.json()["detail"][0]["loc"] == ["body"]
        assert (await client.post("r-1")).status_code == 202


async def test_a_body_may_come_slowly_but_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses count, not the whole: a slow body is accepted, one that stops is a 408."""
    monkeypatch.setattr(_bodies, "STALL_SEC", 2.0)
    content = json.dumps({**BODY, "rollout_id": "r-1"}).encode()

    async def slowly() -> AsyncGenerator[bytes]:
        for start in range(0, len(content), len(content) // 10):
            yield content[start : start + len(content) // 10]
            await asyncio.sleep(0.3)

    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        slow = await client.http.post("/rollout", content=slowly())
        host, port = client.http.base_url.host, client.http.base_url.port
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /rollout HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content[:-1])
        answer = (await reader.readuntil(b"}]}")).decode()
        writer.close()
    assert slow.status_code == 202
    assert answer.startswith("HTTP/1.1 408 ")
    assert "body_stalled" in answer


async def test_b30_the_limit_is_64_mib_where_none_is_chosen() -> None:
    largest = json.dumps(BODY).encode().ljust(64 * 1024 * 1024)
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        assert (await client.http.post("/rollout", content=largest)).status_code == 202
        assert (await client.http.post("/rollout", content=largest + b" ")).status_code == 413


async def test_b30_a_large_body_under_the_limit_is_accepted() -> None:
    backend = HeldBackend()
    backend.release.set()
    text = "x" * 20_000_000
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1", initial_messages=[{"role": "tool", "content": text}] * 2)
        await client.result("r-1")
    assert backend.requests[0].prompt[1]["content"] == text


async def test_a_known_id_is_409_while_it_runs_and_while_it_is_retained() -> None:
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        running = await client.post("r-1")
        backend.release.set()
        await client.result("r-1")
        retained = await client.post("r-1")
    for answer in (running, retained):
        assert answer.status_code == 409
        assert answer.json()["detail"][0]["loc"] == ["body", "rollout_id"]
    assert len(backend.requests) == 1


async def test_b17_a_repeat_with_the_same_key_gets_the_first_answer() -> None:
    backend = HeldBackend()
    headers = {"Idempotency-Key": "k-1"}
    async with serving(create_rollout_server(backend=backend)) as client:
        first = await client.http.post("/rollout", json=BODY, headers=headers)
        again = await client.http.post("/rollout", json=BODY, headers=headers)
        backend.release.set()
        await client.poll(first.json()["rollout_id"], first.json()["polling_lease_token"])
        later = await client.http.post("/rollout", json=BODY, headers=headers)
        other_body = await client.http.post(
            "/rollout", json={**BODY, "label": "5"}, headers=headers
        )
        other_key = await client.http.post("/rollout", json=BODY, headers={"Idempotency-Key": "k"})
    assert first.status_code == again.status_code == later.status_code == 202
    assert first.content == again.content == later.content
    assert locs(other_body) == [["header", "Idempotency-Key"]]
    assert other_key.json()["rollout_id"] != first.json()["rollout_id"]
    assert len(backend.requests) == 2


class FullBackend(HeldBackend):
    """Takes two rollouts at most; it counts one when it begins to execute it."""

    def has_capacity(self) -> bool:
        return len(self.running) < 2


async def test_no_capacity_is_429_and_comes_after_validation() -> None:
    backend = FullBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        first = await client.http.post(
            "/rollout", json={**BODY, "rollout_id": "r-2"}, headers={"Idempotency-Key": "k"}
        )
        full = await client.post("r-3")
        repeat = await client.http.post(
            "/rollout", json={**BODY, "rollout_id": "r-2"}, headers={"Idempotency-Key": "k"}
        )
        assert locs(await client.post("r-3", label=4)) == [["body", "label"]]
        assert (await client.post("r-1")).status_code == 409
        backend.release.set()
        await client.result("r-1")
        assert (await client.post("r-3")).status_code == 202
    assert full.status_code == 429
    assert full.headers["Retry-After"] == "5"
    assert repeat.content == first.content


class CapacityUnknown(HeldBackend):
    """Fails when it is asked for its capacity."""

    def has_capacity(self) -> bool:
        msg = "sek-ret"
        raise RuntimeError(msg)


class IdsUnknown(HeldBackend):
    """Fails when it is asked for an id."""

    def is_in_use(self, rollout_id: str, /) -> bool:
        msg = "sek-ret"
        raise RuntimeError(msg)


@pytest.mark.parametrize("kind", [CapacityUnknown, IdsUnknown])
async def test_a_backend_that_cannot_tell_whether_it_takes_a_rollout_is_503(
    kind: type[HeldBackend], caplog: pytest.LogCaptureFixture
) -> None:
    backend = kind()
    async with serving(create_rollout_server(backend=backend)) as client:
        answer = await client.post("r-1")
    assert answer.status_code == 503
    (detail,) = answer.json()["detail"]
    assert (detail["loc"], detail["type"]) == (["server"], "backend_error")
    assert backend.requests == []
    assert "RuntimeError" in caplog.text
    assert "sek-ret" not in answer.text + caplog.text


@pytest.mark.parametrize("names", [False, True], ids=["made up", "given"])
async def test_the_capacity_is_exact_for_requests_that_come_together(
    names: bool, artifact_root: Path
) -> None:
    """Also when files of earlier rollouts have to be moved out of the way first."""
    ids = [f"r-{number}" if names else None for number in range(20)]
    for number in range(10):
        (artifact_root / f"r-{number}" / "old").mkdir(parents=True)
    backend = FullBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        answers = await asyncio.gather(*map(client.post, ids))
        assert sorted(answer.status_code for answer in answers) == [202] * 2 + [429] * 18
        backend.release.set()


async def test_b17_the_same_request_twice_in_one_moment_starts_one_rollout() -> None:
    backend = HeldBackend()
    headers = {"Idempotency-Key": "k-1"}
    body = {**BODY, "rollout_id": "r-1"}
    async with serving(create_rollout_server(backend=backend)) as client:
        posts = [client.http.post("/rollout", json=body, headers=headers) for _ in range(8)]
        answers = await asyncio.gather(*posts)
        plain = await asyncio.gather(*(client.post("r-2") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.status_code for answer in plain) == [202] + [409] * 7
    assert [request.id for request in backend.requests] == ["r-1", "r-2"]


async def test_retry_after_is_the_pace_at_which_rollouts_end() -> None:
    """The average time between two endings, in whole seconds; 5 when nothing has ended yet."""
    backend = FullBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        await client.start("r-2")
        assert (await client.post()).headers["Retry-After"] == "5"
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        await client.start("r-3")
        assert int((await client.post()).headers["Retry-After"]) < 5
        # One rollout ended in all this time.
        await asyncio.sleep(5.2)
        assert int((await client.post()).headers["Retry-After"]) > 5


@pytest.mark.parametrize("key", [None, "wrong", "k\u00e9y"])
async def test_every_route_wants_the_key(key: str | None) -> None:
    app = create_rollout_server(backend=HeldBackend(), api_key="right")
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    async with serving(app) as client:
        refused = [
            await client.http.request(method, path, headers=headers)  # type: ignore[arg-type]
            for method, path in [
                ("POST", "/rollout"),
                ("POST", "/rollout/cancel"),
                ("GET", "/rollout/x/result"),
                ("GET", "/rollout/x/status"),
                ("GET", "/health"),
                ("GET", "/openapi.json"),
                ("GET", "/nowhere"),
            ]
        ]
        client.http.headers["Authorization"] = "Bearer right"
        assert (await client.post("r-1")).status_code == 202
        assert (await client.http.get("/health")).status_code == 200
    assert {answer.status_code for answer in refused} == {401}
    assert {answer.headers["WWW-Authenticate"] for answer in refused} == {"Bearer"}


@pytest.mark.parametrize("api_key", ["", " ", "k\n", "a b", "ключ"])
def test_a_key_that_no_client_can_send_is_refused(api_key: str) -> None:
    with pytest.raises(ValueError, match="api_key") as caught:
        create_rollout_server(backend=HeldBackend(), api_key=api_key)
    assert "ключ" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        {"result_wait_timeout_sec": -1},
        {"polling_lease_timeout_sec": 0},
        {"result_retention_sec": float("nan")},
        {"max_body_bytes": 0},
    ],
)
def test_times_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        create_rollout_server(backend=HeldBackend(), **option)


def outcome(body: bytes) -> tuple[RolloutInitRequest | None, Refusal | None]:
    try:
        return parse_body(RolloutInitRequest, body), None
    except Refusal as refusal:
        return None, refusal


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
fields = st.sampled_from(sorted([*RolloutInitRequest.model_fields, "unknown"]))


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(fields, json_values) | json_values)
def test_any_json_is_a_request_or_a_refusal(value: Any) -> None:
    body = json.dumps(value).encode()
    parsed, refusal = outcome(body)
    if parsed is not None:
        assert parsed.metadata == value.get("metadata")
        assert parsed.initial_messages == value["initial_messages"]
    else:
        assert refusal is not None
        assert refusal.status == 422
        for detail in refusal.details:
            assert detail.loc[0] == "body"
            names = {part for part in detail.loc[1:] if isinstance(part, str)}
            assert names <= set(RolloutInitRequest.model_fields)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_refused_with_422(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        parse_body(RolloutInitRequest, body)
    assert caught.value.status == 422


@settings(deadline=None)
@given(
    json_values.filter(
        lambda value: "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value)
    )
)
def test_free_form_values_arrive_as_they_were_sent(value: Any) -> None:
    text = json.dumps({**BODY, "metadata": {"value": value}}, ensure_ascii=True)
    parsed, refusal = outcome(text.encode())
    if parsed is not None:
        assert parsed.metadata == {"value": value}
    else:
        # Lone surrogates, and integers that no float can hold.
        assert refusal is not None
        assert refusal.details[0].type == "json_invalid"


@pytest.mark.parametrize("path", ["/rollout", "/rollout/cancel"])
@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"null"])
async def test_a_body_that_is_no_object_is_told_so_in_the_words_of_json(
    path: str, body: bytes
) -> None:
    async with serving(create_rollout_server(backend=HeldBackend())) as client:
        answer = await client.http.post(path, content=body)
    assert locs(answer) == [["body"]]
    assert answer.json()["detail"][0]["msg"] == "must be a JSON object"

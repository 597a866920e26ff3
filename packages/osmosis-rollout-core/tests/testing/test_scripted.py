"""The scripted policy, asked over real sockets by an ordinary HTTP client."""

import asyncio
import http.client
import json
import socket
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from osmosis_ai.rollout.testing import (
    Comment,
    Cut,
    Gate,
    Pause,
    PolicyRequest,
    Reply,
    ScriptedPolicy,
    ScriptError,
    Step,
    ToolCall,
    chunk,
    error_reply,
    raw_reply,
    reply,
    stream_reply,
)

QUESTION = {"role": "user", "content": "2+2?"}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=20) as http:
        yield http


def ask(client: httpx.Client, policy: ScriptedPolicy, *, stream: bool = True) -> httpx.Response:
    body = {"model": "osmosis-rollout", "stream": stream, "messages": [QUESTION]}
    return client.post(f"{policy.url}/chat/completions", json=body)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def deltas(response: httpx.Response) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events(response) if event["choices"]]


@contextmanager
def connected(policy: ScriptedPolicy) -> Generator[socket.socket]:
    port = urlsplit(policy.url).port
    with closing(socket.create_connection(("127.0.0.1", port or 0), timeout=20)) as sock:
        yield sock


def post_bytes(body: bytes, *, path: str = "/v1/chat/completions") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


BODY = json.dumps({"messages": [QUESTION], "stream": True}).encode()


class TestReplies:
    def test_replies_come_in_order_over_one_connection(self, client: httpx.Client) -> None:
        with ScriptedPolicy("one", reply("two")) as policy:
            texts = [
                "".join(delta.get("content") or "" for delta in deltas(ask(client, policy)))
                for _ in range(2)
            ]
        assert texts == ["one", "two"]

    def test_text_is_a_stream_of_well_formed_chunks(self, client: httpx.Client) -> None:
        with ScriptedPolicy(reply(["4", "2"], usage={"total_tokens": 3})) as policy:
            response = ask(client, policy)
        assert response.headers["content-type"].startswith("text/event-stream")
        first, *_, finish, usage = found = events(response)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert [delta.get("content") for delta in deltas(response)][1:3] == ["4", "2"]
        assert finish["choices"][0]["finish_reason"] == "stop"
        assert (usage["choices"], usage["usage"]) == ([], {"total_tokens": 3})
        assert {event["id"] for event in found} == {"chatcmpl-1"}
        assert {event["model"] for event in found} == {"osmosis-rollout"}
        assert len({event["created"] for event in found}) == 1

    def test_the_same_script_gives_the_same_bytes(self, client: httpx.Client) -> None:
        bodies: set[bytes] = set()
        for _ in range(2):
            with ScriptedPolicy("4") as policy:
                bodies.add(ask(client, policy).content)
        assert len(bodies) == 1

    def test_usage_may_come_on_the_finish_chunk_or_not_at_all(self, client: httpx.Client) -> None:
        usage = {"prompt_tokens": 1}
        with ScriptedPolicy(reply("4", usage=usage, usage_on_finish=True), "4") as policy:
            with_usage, without = (events(ask(client, policy)) for _ in range(2))
        assert with_usage[-1]["usage"] == usage
        assert with_usage[-1]["choices"][0]["finish_reason"] == "stop"
        assert not any("usage" in event for event in without)

    def test_tool_calls_in_fragments_one_after_the_other(self, client: httpx.Client) -> None:
        calls = [ToolCall("f", ['{"a"', ": 1}"], id="x"), ToolCall("g", {"b": 2})]
        with ScriptedPolicy(reply(tool_calls=calls)) as policy:
            response = ask(client, policy)
        pieces = [delta["tool_calls"][0] for delta in deltas(response) if "tool_calls" in delta]
        assert pieces == [
            {
                "index": 0,
                "id": "x",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a"'},
            },
            {"index": 0, "function": {"arguments": ": 1}"}},
            {
                "index": 1,
                "id": "call_1",
                "type": "function",
                "function": {"name": "g", "arguments": '{"b": 2}'},
            },
        ]
        assert events(response)[-1]["choices"][0]["finish_reason"] == "tool_calls"

    def test_tool_calls_interleaved(self, client: httpx.Client) -> None:
        calls = [ToolCall("f", ["1", "2", "3"]), ToolCall("g", ["4", "5"])]
        with ScriptedPolicy(reply(tool_calls=calls, interleaved=True)) as policy:
            response = ask(client, policy)
        pieces = [delta["tool_calls"][0] for delta in deltas(response) if "tool_calls" in delta]
        assert [(piece["index"], piece["function"]["arguments"]) for piece in pieces] == [
            (0, "1"),
            (1, "4"),
            (0, "2"),
            (1, "5"),
            (0, "3"),
        ]

    def test_one_chunk_holds_everything(self, client: httpx.Client) -> None:
        whole = reply(
            "4",
            reasoning="easy",
            tool_calls=[ToolCall("f")],
            usage={"total_tokens": 1},
            token_ids=[7],
            one_chunk=True,
        )
        with ScriptedPolicy(whole) as policy:
            (event,) = events(ask(client, policy))
        (choice,) = event["choices"]
        assert choice["delta"]["content"] == "4"
        assert choice["delta"]["reasoning_content"] == "easy"
        assert choice["delta"]["tool_calls"][0]["index"] == 0
        assert choice["finish_reason"] == "tool_calls"
        assert choice["token_ids"] == [7]
        assert event["usage"] == {"total_tokens": 1}

    def test_token_ids_and_logprobs_are_spread_over_the_chunks(self, client: httpx.Client) -> None:
        logprobs = [{"token": t, "logprob": -0.5, "bytes": None} for t in "abc"]
        scripted = reply(
            ["a", "bc"], prompt_token_ids=[1, 2], token_ids=[3, 4, 5], logprobs=logprobs
        )
        with ScriptedPolicy(scripted) as policy:
            found = events(ask(client, policy))
        assert found[0]["prompt_token_ids"] == [1, 2]
        spread = [event["choices"][0].get("token_ids") for event in found]
        assert [ids for ids in spread if ids] == [[3], [4, 5]]
        entries = [event["choices"][0].get("logprobs") for event in found]
        assert [e for entry in entries if entry for e in entry["content"]] == logprobs

    def test_reasoning_comes_before_content(self, client: httpx.Client) -> None:
        with ScriptedPolicy(reply("4", reasoning=["e", "asy"])) as policy:
            found = deltas(ask(client, policy))
        assert found[1:4] == [
            {"reasoning_content": "e"},
            {"reasoning_content": "asy"},
            {"content": "4"},
        ]

    def test_a_request_without_stream_gets_one_json_object(self, client: httpx.Client) -> None:
        scripted = reply(
            ["4", "2"],
            reasoning="r",
            tool_calls=[ToolCall("f", {"a": 1})],
            usage={"total_tokens": 1},
            prompt_token_ids=[1],
            token_ids=[2],
        ).insert(0, Pause(0.01))
        with ScriptedPolicy(scripted) as policy:
            response = ask(client, policy, stream=False)
        assert response.headers["content-type"] == "application/json"
        answer = response.json()
        assert answer["object"] == "chat.completion"
        assert answer["model"] == "osmosis-rollout"
        assert answer["usage"] == {"total_tokens": 1}
        assert answer["prompt_token_ids"] == [1]
        assert answer["choices"] == [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "42",
                    "reasoning_content": "r",
                    "tool_calls": [
                        {
                            "id": "call_0",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
                "token_ids": [2],
            }
        ]

    def test_hand_written_streams_are_sent_as_they_are(self, client: httpx.Client) -> None:
        odd: list[Step] = [
            Comment("ping"),
            chunk(tool_calls=[{"index": 0, "id": "null", "function": {"name": "f"}}]),
            chunk(content=[{"type": "text", "text": "4"}], finish_reason="stop"),
            b"data: {not json}\n\n",
            {"error": {"message": "out of memory"}},
            {"choices": [], "id": "mine"},
        ]
        with ScriptedPolicy(stream_reply(*odd, done=False)) as policy:
            lines = ask(client, policy).text.split("\n\n")
        assert lines.pop() == ""
        assert lines[0] == ": ping"
        assert lines[3] == "data: {not json}"
        assert lines[4] == 'data: {"error": {"message": "out of memory"}}'
        assert json.loads(lines[5].removeprefix("data: "))["id"] == "mine"
        assert len(lines) == 6


class TestFailures:
    def test_errors_before_the_stream(self, client: httpx.Client) -> None:
        html = "<html>bad gateway</html>"
        with ScriptedPolicy(
            error_reply(429, "slow down", headers={"Retry-After": "3"}),
            error_reply(502, html),
            error_reply(400, {"detail": "no"}),
            error_reply(499),
        ) as policy:
            busy, page, own, odd = (ask(client, policy) for _ in range(4))
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "3")
        assert busy.json()["error"]["message"] == "slow down"
        assert (page.status_code, page.text) == (502, html)
        assert page.headers["content-type"].startswith("text/html")
        assert (own.status_code, own.json()) == (400, {"detail": "no"})
        assert odd.status_code == 499

    @pytest.mark.parametrize(
        ("after", "reset", "error"),
        [
            (1, False, httpx.RemoteProtocolError),
            (1, True, httpx.ReadError),
            (0, False, httpx.RemoteProtocolError),
            (0, True, httpx.ReadError),
        ],
    )
    def test_a_cut_stream_breaks_in_the_middle(
        self, client: httpx.Client, after: int, reset: bool, error: type[Exception]
    ) -> None:
        """An orderly close and a reset both arrive after what was sent before them."""
        received: list[str] = []
        with ScriptedPolicy(reply("4").cut(after, reset=reset)) as policy:
            with pytest.raises(error):  # noqa: PT012 - the stream breaks while it is read
                body = {"messages": [QUESTION], "stream": True}
                url = f"{policy.url}/chat/completions"
                with client.stream("POST", url, json=body) as response:
                    received.extend(response.iter_lines())
            assert policy.requests[0].wait() == "cut"
        assert [line.startswith("data: ") for line in received if line] == [True] * after

    def test_a_cut_answers_a_request_without_stream_too(self, client: httpx.Client) -> None:
        with (
            ScriptedPolicy(stream_reply(chunk(content="4"), Cut())) as policy,
            pytest.raises(httpx.RemoteProtocolError),
        ):
            ask(client, policy, stream=False)

    def test_raw_replies_are_written_to_the_socket(self, client: httpx.Client) -> None:
        with ScriptedPolicy(raw_reply(b"HTTP/1.1 200 OK\r\n\r\nhello"), raw_reply(b"x")) as policy:
            assert ask(client, policy).text == "hello"
            with pytest.raises(httpx.RemoteProtocolError):
                ask(client, policy)


class TestScript:
    def test_running_out_is_told_to_the_client_and_to_the_test(self, client: httpx.Client) -> None:
        policy = ScriptedPolicy("4")
        problem = "request 2: the script has no reply"
        answers: list[httpx.Response] = []
        with pytest.raises(ScriptError, match=problem), policy:
            answers += [ask(client, policy), ask(client, policy)]
        assert [answer.status_code for answer in answers] == [200, 400]
        assert problem in answers[1].json()["error"]["message"]

    def test_running_out_is_noted_on_the_tests_own_error(self, client: httpx.Client) -> None:
        policy = ScriptedPolicy()
        with pytest.raises(KeyError) as caught, policy:
            _ = ask(client, policy).json()["choices"]
        assert "request 1" in caught.value.__notes__[0]

    def test_a_function_answers_each_request(self, client: httpx.Client) -> None:
        def respond(request: PolicyRequest) -> Reply | str:
            return f"{request.number}: {request.messages[0]['content']}"

        with ScriptedPolicy("first", respond=respond) as policy:
            answers = [deltas(ask(client, policy))[1]["content"] for _ in range(3)]
        assert answers == ["first", "2: 2+2?", "3: 2+2?"]

    def test_a_function_that_raises_fails_the_test(self, client: httpx.Client) -> None:
        def respond(request: PolicyRequest) -> str:
            return str(request.body["temperature"])

        with (
            pytest.raises(ScriptError, match="KeyError: 'temperature'"),
            ScriptedPolicy(respond=respond) as policy,
        ):
            assert ask(client, policy).status_code == 400

    def test_a_function_that_forgets_to_return_fails_the_test(self, client: httpx.Client) -> None:
        def respond(_: PolicyRequest) -> Any:
            return None

        policy = ScriptedPolicy(respond=respond)
        with pytest.raises(ScriptError, match="respond failed: TypeError: a reply"), policy:
            assert ask(client, policy).status_code == 400

    @pytest.mark.parametrize(
        ("step", "problem"), [("text", "type str"), (None, "NoneType"), ({"bad": {1}}, "type set")]
    )
    def test_a_step_that_cannot_be_sent_is_refused_where_it_is_written(
        self, step: Any, problem: str
    ) -> None:
        with pytest.raises(TypeError, match=problem):
            stream_reply(step)

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [(None, "not NoneType"), (b"4", "not bytes"), (lambda _: "4", "into respond=")],
    )
    def test_what_is_no_reply_is_refused_where_it_is_written(
        self, answer: Any, problem: str
    ) -> None:
        with pytest.raises(TypeError, match=problem):
            ScriptedPolicy("first", answer)
        with pytest.raises(TypeError, match=problem):
            ScriptedPolicy().add(answer)

    def test_replies_can_be_added_while_it_runs(self, client: httpx.Client) -> None:
        with ScriptedPolicy() as policy:
            policy.add("4")
            assert ask(client, policy).status_code == 200

    def test_the_url_needs_a_running_policy(self) -> None:
        with pytest.raises(RuntimeError, match="with statement"):
            _ = ScriptedPolicy().url


class TestRecording:
    def test_requests_are_recorded_whole(self, client: httpx.Client) -> None:
        body = {"messages": [QUESTION], "stream": True, "temperature": 0.5}
        with ScriptedPolicy("4") as policy:
            url = policy.url.replace("/v1", "/v1/rollouts/r-1")
            headers = {"Authorization": "Bearer k"}
            client.post(f"{url}/chat/completions?x=1", json=body, headers=headers)
            (request,) = policy.requests
            assert request.wait() == "answered"
        assert request.path == "/v1/rollouts/r-1/chat/completions"
        assert request.headers["authorization"] == "Bearer k"
        assert request.body == body
        assert request.messages == [QUESTION]

    def test_a_gate_holds_a_stream_until_it_is_opened(self, client: httpx.Client) -> None:
        gate = Gate()
        with (
            ScriptedPolicy(reply("4").insert(1, gate)) as policy,
            ThreadPoolExecutor() as pool,
        ):
            answer = pool.submit(ask, client, policy)
            gate.wait()
            (request,) = policy.wait_for_requests(1)
            assert request.outcome == "open"
            assert not answer.done()
            gate.open()
            assert answer.result().status_code == 200
            assert request.wait() == "answered"
        assert gate.arrivals == 1

    @pytest.mark.parametrize("step", [Gate(), Pause(3600)], ids=["gate", "pause"])
    def test_a_client_that_leaves_is_noticed(self, step: Gate | Pause) -> None:
        with ScriptedPolicy(reply("4").insert(1, step)) as policy:
            with connected(policy) as sock:
                sock.sendall(post_bytes(BODY))
                sock.recv(1)
                (request,) = policy.requests
            assert request.wait() == "disconnected"

    def test_a_client_that_leaves_a_gate_does_not_open_it(self, client: httpx.Client) -> None:
        gate = Gate()
        held = reply("4").insert(0, gate)
        with ScriptedPolicy(held, held) as policy, ThreadPoolExecutor() as pool:
            answer = pool.submit(ask, client, policy)
            gate.wait(1)
            with connected(policy) as sock:
                sock.sendall(post_bytes(BODY))
                gate.wait(2)
            assert policy.requests[1].wait() == "disconnected"
            assert not answer.done()
            gate.open()
            assert answer.result().status_code == 200

    def test_leaving_the_block_ends_held_streams(self) -> None:
        gate = Gate()
        with ExitStack() as outer:
            with ScriptedPolicy(reply("4").insert(0, gate)) as policy:
                sock = outer.enter_context(connected(policy))
                sock.sendall(post_bytes(BODY))
                gate.wait()
            assert policy.requests[0].wait() == "cut"
            assert sock.recv(1) == b""

    def test_waiting_in_vain_is_a_timeout(self) -> None:
        with ScriptedPolicy() as policy:
            with pytest.raises(TimeoutError, match="0 of 1 requests"):
                policy.wait_for_requests(1, timeout=0.01)
            with pytest.raises(TimeoutError, match="0 of 1 replies"):
                Gate().wait(timeout=0.01)


class TestBadRequests:
    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"hello\r\n\r\n", 400),
            (b"GET /v1/chat/completions HTTP/1.0\r\n\r\n", 505),
            (b"GET /v1/chat/completions HTTP/1.1\r\nbad header\r\n\r\n", 400),
            (b"GET /v1/chat/completions HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
            (b"GET /v1/chat/completions HTTP/1.1\r\n\r\n", 405),
            (post_bytes(BODY, path="/v1/models"), 404),
            (b"POST /chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST /chat/completions HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", 413),
            (b"POST /chat/completions HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            (b"POST /chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400),
            (
                b"POST /chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
                400,
            ),
            (post_bytes(b""), 400),
            (post_bytes(b"\xff"), 400),
            (post_bytes(b"[" * 100_000), 400),
            (post_bytes(b"[]"), 400),
            (post_bytes(b"{}"), 400),
            (post_bytes(b'{"messages": ["hi"]}'), 400),
        ],
    )
    def test_a_wrong_request_gets_its_4xx_or_5xx(self, data: bytes, status: int) -> None:
        """It says why, is not recorded and takes no reply from the script."""
        with ScriptedPolicy() as policy:
            with connected(policy) as sock:
                sock.sendall(data)
                response = http.client.HTTPResponse(sock)
                response.begin()
                assert response.status == status
                assert json.loads(response.read())["error"]["message"]
            assert policy.requests == []

    def test_a_connection_that_breaks_off_harms_nobody(self, client: httpx.Client) -> None:
        with ScriptedPolicy("4") as policy:
            for data in (b"", b"POST", post_bytes(BODY)[:-1]):
                with connected(policy) as sock:
                    sock.sendall(data)
            assert ask(client, policy).status_code == 200

    def test_chunked_bodies_and_expect_continue_are_understood(self) -> None:
        head = (
            b"POST /chat/completions HTTP/1.1\r\nExpect: 100-continue\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        pieces = b"%x;ext=1\r\n%b\r\n%x\r\n%b\r\n" % (5, BODY[:5], len(BODY) - 5, BODY[5:])
        with ScriptedPolicy("4") as policy, connected(policy) as sock:
            sock.sendall(head)
            assert sock.recv(64) == b"HTTP/1.1 100 Continue\r\n\r\n"
            sock.sendall(pieces + b"0\r\nTrailer: x\r\n\r\n")
            response = http.client.HTTPResponse(sock)
            response.begin()
            assert response.status == 200
            assert policy.requests[0].messages == [QUESTION]

    def test_connection_close_is_honoured(self) -> None:
        with ScriptedPolicy("4") as policy, connected(policy) as sock:
            sock.sendall(post_bytes(BODY).replace(b"Host: x", b"Connection: close"))
            received = b""
            while data := sock.recv(65536):
                received += data
            assert received.endswith(b"0\r\n\r\n")


async def test_many_streams_are_open_at_once() -> None:
    """512 clients are all in the middle of their streams before the first one ends."""
    gate = Gate()
    total = 512

    async def converse(policy: ScriptedPolicy) -> bytes:
        port = urlsplit(policy.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post_bytes(BODY))
        received = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return received

    with ScriptedPolicy(respond=lambda _: reply("4").insert(2, gate)) as policy:
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(converse(policy)) for _ in range(total)]
            await asyncio.to_thread(gate.wait, total, timeout=50)
            gate.open()
        assert all(b"[DONE]" in stream.result() for stream in streams)
        assert sorted(request.number for request in policy.requests) == list(range(1, total + 1))

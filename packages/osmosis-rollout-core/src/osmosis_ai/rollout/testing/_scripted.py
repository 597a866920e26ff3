"""A policy that says what a test tells it to."""

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from osmosis_ai.rollout.testing._endpoint import ChatEndpoint, PolicyRequest
from osmosis_ai.rollout.testing._http import HttpError
from osmosis_ai.rollout.testing._replies import Reply, reply

type Respond = Callable[[PolicyRequest], Reply | str]
"""Makes the reply to a request; it runs in the server's thread and must not block."""


class ScriptError(AssertionError):
    """A request came for which the script had no reply."""


class ScriptedPolicy(ChatEndpoint):
    """A real chat-completions endpoint that answers as scripted and records what it was asked.

        with ScriptedPolicy("Let me see.", error_reply(503), reply("4")) as policy:
            ...  # run an agent against policy.url
        assert policy.requests[0].messages[-1]["content"] == "2+2?"

    Requests get the replies in order of arrival. One for which there is none is answered with a
    400 that says so, and leaving the `with` block raises the same as `ScriptError`.

    Args:
        replies: What to answer, in order; text stands for `reply(text)`.
        respond: Makes the replies that come after those.

    Attributes:
        respond: The same; it may be set while the policy runs.

    Raises:
        TypeError: something else was given for a reply.
    """

    def __init__(self, *replies: Reply | str, respond: Respond | None = None) -> None:
        super().__init__()
        self.respond = respond
        self._replies = deque[Reply]()
        self._requests: list[PolicyRequest] = []
        self._arrived = threading.Condition()
        self._problem: str | None = None
        self.add(*replies)

    @property
    def url(self) -> str:
        """The base URL, to be used as `chat_completions_url`.

        Raises:
            RuntimeError: the policy is not running.
        """
        return f"{self.root_url}/v1"

    @property
    def requests(self) -> list[PolicyRequest]:
        """The valid requests so far, in order of arrival."""
        return list(self._requests)

    def add(self, *replies: Reply | str) -> None:
        """Append replies to the script.

        Raises:
            TypeError: something else was given for a reply.
        """
        self._replies.extend(map(_as_reply, replies))

    def wait_for_requests(self, count: int, *, timeout: float = 10.0) -> list[PolicyRequest]:
        """Block until `count` requests have arrived in all and return them.

        In an async test, call it through `asyncio.to_thread`.

        Raises:
            TimeoutError: they have not within `timeout` seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._requests) >= count, timeout):
                msg = f"{len(self._requests)} of {count} requests arrived in {timeout} s"
                raise TimeoutError(msg)
        return self.requests

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc, traceback)
        if self._problem is None:
            return
        if exc is None:
            raise ScriptError(self._problem)
        exc.add_note(self._problem)

    def _answer(self, request: PolicyRequest) -> Reply:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()
        if self._replies:
            return self._replies.popleft()
        if self.respond is None:
            raise self._failure(request, "the script has no reply for it")
        try:
            return _as_reply(self.respond(request))
        except Exception as error:  # the test's own code: it may raise anything
            problem = f"respond failed: {type(error).__name__}: {error}"
            raise self._failure(request, problem) from error

    def _failure(self, request: PolicyRequest, problem: str) -> HttpError:
        message = f"scripted policy, request {request.number}: {problem}"
        self._problem = self._problem or message
        # A status that no client retries, so that the cause shows at once.
        return HttpError(400, message)


def _as_reply(answer: object) -> Reply:
    if isinstance(answer, str):
        return reply(answer)
    if isinstance(answer, Reply):
        return answer
    hint = "; a function goes into respond=" if callable(answer) else ""
    msg = f"a reply must be a Reply or text, not {type(answer).__name__}{hint}"
    raise TypeError(msg)

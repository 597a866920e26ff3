"""HTTP to one rollout server: addresses, the key, timeouts, and what unexpected answers mean.

httpx is imported at the first request.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from osmosis_ai.rollout.client._errors import RolloutProtocolError
from osmosis_ai.rollout.types.protocol import ApiKey, HttpUrl

if TYPE_CHECKING:
    import httpx

# How long the server may take to answer what needs no waiting, in seconds.
_ANSWER_TIMEOUT_SEC = 30.0
_MAX_DETAIL_CHARS = 500


class Connection:
    """Sends requests to one server; owns its HTTP client unless one was passed in."""

    def __init__(
        self, url: str, http_client: "httpx.AsyncClient | None", api_key: str | None
    ) -> None:
        parts = urlsplit(TypeAdapter[str](HttpUrl).validate_python(url))
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        self._headers: dict[str, str] = {}
        self._secrets: list[str] = []
        if parts.username or parts.password:
            from osmosis_ai.rollout.policy.transport import basic_authorization

            # What httpx and aiohttp would each make of it collides.
            self._headers["Authorization"] = basic_authorization(parts) or ""
            self._secrets.append(unquote(parts.password or parts.username or ""))
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {_checked_key(api_key)}"
            self._secrets.append(api_key)
        self._owned = http_client is None
        self._http = http_client

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        wait_sec: float = 0.0,
    ) -> "httpx.Response":
        """Send one request, once.

        Args:
            method: The HTTP method.
            path: The route, with its leading slash.
            body: JSON to go along, or None.
            headers: Further headers.
            wait_sec: How long the server may hold the request before it answers, in seconds.

        Raises:
            RolloutProtocolError: no answer came; its `status_code` is None.
        """
        import httpx

        sent_headers = self._headers | (headers or {})
        if body is not None:
            sent_headers["Content-Type"] = "application/json"
        try:
            return await self._http_client().request(
                method,
                self._url + path,
                content=body,
                headers=sent_headers,
                # Waiting for one of a pool's connections is no failure of the server.
                timeout=httpx.Timeout(_ANSWER_TIMEOUT_SEC + wait_sec, pool=None),
                follow_redirects=False,
            )
        except httpx.RequestError as error:
            raise _no_answer(method, path, error) from error

    async def ask(self, method: str, path: str, *, body: bytes | None = None) -> "httpx.Response":
        """Send one request and return its 200 answer.

        Raises:
            RolloutProtocolError: no answer came, or another one.
        """
        response = await self.send(method, path, body=body)
        if response.status_code != HTTPStatus.OK:
            raise self.refusal(response)
        return response

    def refusal(
        self, response: "httpx.Response", secrets: tuple[str, ...] = ()
    ) -> RolloutProtocolError:
        """Return the error for an answer with an unexpected status; `secrets` stay out of it."""
        detail = _detail(response)
        for secret in (*self._secrets, *secrets):
            detail = detail.replace(secret, "***")
        detail = f": {detail[:_MAX_DETAIL_CHARS]}" if detail else ""
        msg = f"the rollout server answered {_route(response)} with {response.status_code}{detail}"
        return RolloutProtocolError(msg, status_code=response.status_code)

    def decoded(self, response: "httpx.Response") -> Any:
        """Return the JSON of an answer.

        Raises:
            RolloutProtocolError: the answer is no JSON.
        """
        try:
            return response.json()
        except (ValueError, RecursionError):
            msg = f"the rollout server's answer to {_route(response)} is no JSON"
            raise RolloutProtocolError(msg, status_code=response.status_code) from None

    def parsed[TModel: BaseModel](self, response: "httpx.Response", model: type[TModel]) -> TModel:
        """Return an answer's JSON as `model`.

        Raises:
            RolloutProtocolError: the answer does not fit the model.
        """
        try:
            return model.model_validate(self.decoded(response))
        except ValidationError as error:
            where = ", ".join(".".join(map(str, item["loc"])) or "body" for item in error.errors())
            msg = f"the rollout server's answer to {_route(response)} does not fit at: {where}"
            raise RolloutProtocolError(msg, status_code=response.status_code) from None

    async def aclose(self) -> None:
        """Close the HTTP client, unless it was passed in."""
        if self._http and self._owned:
            await self._http.aclose()

    def _http_client(self) -> "httpx.AsyncClient":
        # Made at the first request: connections belong to an event loop, clients are made anywhere.
        if self._http is None:
            import httpx

            from osmosis_ai.rollout.client._transport import PooledTransport

            # One long poll is open per rollout, and their number is the caller's to bound.
            self._http = httpx.AsyncClient(transport=PooledTransport(), trust_env=False)
        return self._http


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a body as strict JSON.

    Raises:
        ValueError: it holds NaN or an infinity, or is nested too deeply.
        TypeError: it holds a value that JSON has no form for.
    """
    try:
        return json.dumps(body, allow_nan=False).encode()
    except RecursionError:
        msg = "the request is nested too deeply for JSON"
        raise ValueError(msg) from None


def _no_answer(method: str, path: str, error: "httpx.RequestError") -> RolloutProtocolError:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RolloutProtocolError(f"no answer from the rollout server to {method} {path}: {reason}")


def _checked_key(api_key: str) -> str:
    try:
        return TypeAdapter[str](ApiKey).validate_python(api_key)
    except ValidationError:
        msg = "api_key must be usable in a header: visible ASCII characters, at least one"
        raise ValueError(msg) from None


def _route(response: "httpx.Response") -> str:
    return f"{response.request.method} {response.request.url.path}"


def _detail(response: "httpx.Response") -> str:
    # Some servers repeat the whole request, keys included: take only where and what of an error.
    try:
        detail = response.json()["detail"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
    if isinstance(detail, str):
        return detail
    try:
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in detail)
    except (TypeError, KeyError):
        return ""

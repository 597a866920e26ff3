"""Bearer keys: the one that callers must show, and the one that we show to a controller."""

import hmac
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Receive, Scope, Send

from osmosis_ai.rollout.server._refusals import refuse


@dataclass(frozen=True)
class ControllerAuth:
    """How a rollout server shows itself to the controller that it calls back.

    Attributes:
        api_key: The controller's key; None or empty sends none.
    """

    api_key: str | None = field(default=None, repr=False)

    def as_bearer_headers(self) -> dict[str, str]:
        """Return the headers to send: `Authorization` if there is a key, else nothing."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class BearerGate:
    """ASGI middleware that lets only requests with the right bearer key through."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an authorized request on, and answer 401 to any other."""
        if scope["type"] == "lifespan" or self._is_authorized(scope):
            await self._app(scope, receive, send)
            return
        refusal = refuse(
            401,
            ("header", "Authorization"),
            "send the server's API key as: Authorization: Bearer <key>",
            "unauthorized",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal.response()(scope, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        sent = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, key = sent.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._api_key)


def check_api_key(api_key: str) -> str:
    """Return the server's own key if a client can send it.

    Raises:
        ValueError: the key is empty, or cannot be a header's value.
    """
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        msg = (
            "api_key must be visible ASCII text without spaces; "
            "pass None to serve without authentication"
        )
        raise ValueError(msg)
    return api_key

"""The proxies that the environment names, and when they do not apply."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from osmosis_ai.rollout.policy._endpoint import basic_authorization


class Proxy(NamedTuple):
    """A proxy's URL without credentials, and the value of the header that carries them.

    What names no host is shown as such instead: it may hold credentials wherever it is wrong.
    """

    url: str
    authorization: str | None


_NO_URL: Final = Proxy("[no URL]", None)


def environment_proxy(scheme: str, host: str) -> Proxy | None:
    """Return the proxy for a host, by `HTTP_PROXY`, `NO_PROXY` and their like.

    Loopback addresses never go through a proxy, whatever `NO_PROXY` says: the proxy's own loopback
    is another machine.
    """
    if is_loopback(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        parts = None
    if not (parts and parts.hostname):
        return _NO_URL
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return Proxy(urlunsplit(bare), basic_authorization(parts))


@lru_cache
def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

"""The parts that read a policy's answer, for whoever passes answers on and reads along."""

from osmosis_ai.rollout.policy._assembly import Assembly
from osmosis_ai.rollout.policy._chunks import DONE, chunk_in
from osmosis_ai.rollout.policy._endpoint import Endpoint
from osmosis_ai.rollout.policy._proxies import is_loopback
from osmosis_ai.rollout.policy._refusals import bounded, refusal_message
from osmosis_ai.rollout.policy._sse import EventDecoder
from osmosis_ai.rollout.policy._values import as_array, as_object

__all__ = [
    "DONE",
    "Assembly",
    "Endpoint",
    "EventDecoder",
    "as_array",
    "as_object",
    "bounded",
    "chunk_in",
    "is_loopback",
    "refusal_message",
]

"""Real chat-completions endpoints on loopback, for tests of workflows, servers and clients.

`ScriptedPolicy` answers what a test tells it to, however broken; `ReplayPolicy` answers with
recorded solutions of real models. Both need nothing but the standard library.
"""

from osmosis_ai.rollout.testing._endpoint import PolicyRequest
from osmosis_ai.rollout.testing._message import ToolCall
from osmosis_ai.rollout.testing._recordings import RecordingError
from osmosis_ai.rollout.testing._replay import ReplayPolicy
from osmosis_ai.rollout.testing._replies import (
    DONE,
    Reply,
    chunk,
    error_reply,
    raw_reply,
    reply,
    stream_reply,
)
from osmosis_ai.rollout.testing._scripted import ScriptedPolicy, ScriptError
from osmosis_ai.rollout.testing._steps import Comment, Cut, Gate, Pause, Step

__all__ = [
    "DONE",
    "Comment",
    "Cut",
    "Gate",
    "Pause",
    "PolicyRequest",
    "RecordingError",
    "ReplayPolicy",
    "Reply",
    "ScriptError",
    "ScriptedPolicy",
    "Step",
    "ToolCall",
    "chunk",
    "error_reply",
    "raw_reply",
    "reply",
    "stream_reply",
]

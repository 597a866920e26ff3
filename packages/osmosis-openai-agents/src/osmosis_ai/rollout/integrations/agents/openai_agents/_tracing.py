"""Traces of rollouts: spans for the SDK's processors, and nothing for OpenAI's servers."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from agents.models.interface import ModelTracing
from agents.tracing import AgentSpanData, SpanError, generation_span, get_current_span
from agents.tracing.processors import BackendSpanExporter, default_exporter, default_processor

from osmosis_ai.rollout import MessageDict, get_rollout_context
from osmosis_ai.rollout.integrations.agents.openai_agents._sdk import MODEL_NAME
from osmosis_ai.rollout.integrations.agents.openai_agents._usage import chat_usage
from osmosis_ai.rollout.policy import PolicyReply

_UNTOLD: Final = ("extra_headers", "extra_query")


@contextmanager
def policy_span(
    tracing: ModelTracing, messages: Sequence[MessageDict], params: Mapping[str, Any]
) -> Generator[Callable[[PolicyReply], None]]:
    """Trace one call to the policy; what the block gets is told the reply."""
    with generation_span(model=MODEL_NAME, disabled=tracing.is_disabled()) as span:
        data = span.span_data
        if tracing.include_data():
            data.input = messages
            # Headers and queries hold keys, which are nothing to keep.
            data.model_config = {name: params[name] for name in params if name not in _UNTOLD}

        def tell(reply: PolicyReply) -> None:
            if tracing.include_data():
                data.output = [reply.message]
            if counts := chat_usage(reply.usage):
                data.usage = {
                    "input_tokens": counts["prompt_tokens"],
                    "output_tokens": counts["completion_tokens"],
                }

        try:
            yield tell
        except Exception as error:
            details = {"error": str(error)} if tracing.include_data() else None
            span.set_error(SpanError(message="The policy gave no reply", data=details))
            raise


def agent_name() -> str | None:
    """Return the name of the agent that the code works for; its span tells, also of no trace."""
    data: object = getattr(get_current_span(), "span_data", None)
    name: object = data.name if isinstance(data, AgentSpanData) else getattr(data, "agent_name", "")
    return name if isinstance(name, str) and name else None


@cache
def keep_traces_at_home() -> None:
    """Keep traces of rollouts from OpenAI's servers, where the SDK sends them by default.

    The SDK's own exporter takes any `OPENAI_API_KEY` of the host for a permission. For what happens
    inside a rollout it needs a key that was meant: `set_tracing_export_api_key()`, or
    `RunConfig(tracing={"api_key": ...})`. Traces from outside of rollouts are left alone, and so
    are all other processors.
    """
    processor, gate = default_processor(), _Gate(default_exporter())
    # On this one object: a processor of our own would have to push out those of the user.
    vars(processor).update(
        on_trace_start=gate.before(processor.on_trace_start),
        on_span_end=gate.before(processor.on_span_end),
    )


class _Gate:
    """Decides what the SDK's own exporter gets."""

    def __init__(self, exporter: BackendSpanExporter) -> None:
        # Later the exporter may hold the environment's key there.
        self._has_key: bool = vars(exporter).get("_api_key") is not None
        self._set_api_key = exporter.set_api_key
        vars(exporter)["set_api_key"] = self._set_key

    def before[T](self, export: Callable[[T], None]) -> Callable[[T], None]:
        """Return `export` without what has to stay."""

        def export_if_wanted(item: T) -> None:
            is_wanted = self._has_key or getattr(item, "tracing_api_key", None)
            if is_wanted or get_rollout_context() is None:
                export(item)

        return export_if_wanted

    def _set_key(self, api_key: str) -> None:
        self._has_key = True
        self._set_api_key(api_key)

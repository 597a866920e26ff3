"""Samples of a run for training: one record per rollout, all with the same columns.

| column | content |
| --- | --- |
| `row`, `attempt`, `rollout_id` | which rollout it is |
| `prompt`, `messages` | lists of chat messages, all with the keys of `as_chat` |
| `reward`, `passed` | null where there was no grading |
| `label` | the reference answer |
| `metadata`, `metrics` | JSON, since rows differ in their keys and tables cannot |
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import batched
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.eval._arrow import load_arrow
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._files import replace_file
from osmosis_ai.rollout.eval._journal import Entry
from osmosis_ai.rollout.eval._messages import as_chat, read_messages
from osmosis_ai.rollout.eval._outcomes import OutcomeStatus
from osmosis_ai.rollout.eval._stored import StoredRun

_BATCH_ROWS = 256

type Record = dict[str, Any]


def export_samples(run: StoredRun, path: Path) -> int:
    """Write the samples of a run's successful rollouts, and return how many these are.

    Samples that their graders set aside (`remove_sample`) are left out.

    Args:
        run: The run.
        path: The file, `.parquet` or `.jsonl`.

    Raises:
        EvalError: the name ends otherwise, the file cannot be written, there is nothing to write,
            or pyarrow is not installed.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        msg = f"{path}: the name must end in one of: {', '.join(_WRITERS)}"
        raise EvalError(msg)
    count = sum(1 for _ in _samples(run))
    if not count:
        msg = f"run {run.name} has no sample of a successful rollout"
        raise EvalError(msg)
    try:
        writer(path, map(_record, _samples(run)))
    except OSError as error:
        msg = f"{path}: cannot be written: {error.strerror or error}"
        raise EvalError(msg) from None
    return count


def _samples(run: StoredRun) -> Iterator[Entry]:
    for entry in run.entries():
        sample = entry.sample
        if sample and entry.outcome.status is OutcomeStatus.SUCCESS and not sample["remove_sample"]:
            yield entry


def _record(entry: Entry) -> Record:
    outcome, sample = entry.outcome, entry.sample or {}
    return {
        "row": outcome.row,
        "attempt": outcome.attempt,
        "rollout_id": outcome.rollout_id,
        "prompt": [as_chat(message) for message in read_messages(entry.prompt)],
        "messages": [as_chat(message) for message in read_messages(sample["messages"])],
        "reward": outcome.reward,
        "passed": outcome.passed,
        "label": entry.label,
        "metadata": None if entry.metadata is None else json.dumps(entry.metadata),
        "metrics": json.dumps(sample["metrics"]),
    }


def _write_jsonl(path: Path, records: Iterable[Record]) -> None:
    replace_file(path, map(json.dumps, records))


def _write_parquet(path: Path, records: Iterable[Record]) -> None:
    arrow, parquet = load_arrow(), load_arrow("pyarrow.parquet")
    half = path.with_name(f".{path.name}.half")
    schema = _schema(arrow)
    with parquet.ParquetWriter(half, schema) as writer:
        for batch in batched(records, _BATCH_ROWS):
            writer.write_table(arrow.Table.from_pylist(list(batch), schema=schema))
    half.replace(path)


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    function = arrow.struct({"name": text, "arguments": text})
    call = arrow.struct({"id": text, "type": text, "function": function})
    message = arrow.struct(
        {
            "role": text,
            "content": text,
            "reasoning_content": text,
            "tool_calls": arrow.list_(call),
            "tool_call_id": text,
        }
    )
    return arrow.schema(
        {
            "row": arrow.int64(),
            "attempt": arrow.int64(),
            "rollout_id": text,
            "prompt": arrow.list_(message),
            "messages": arrow.list_(message),
            "reward": arrow.float64(),
            "passed": arrow.bool_(),
            "label": text,
            "metadata": text,
            "metrics": text,
        }
    )


_WRITERS: dict[str, Callable[[Path, Iterable[Record]], None]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}

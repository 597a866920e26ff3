"""Parquet, read as a stream."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from osmosis_ai.rollout.eval._arrow import load_arrow
from osmosis_ai.rollout.eval._errors import DatasetError
from osmosis_ai.rollout.eval._records import COLUMNS, Record, fault_of_header

_BATCH_ROWS = 256
_READ_BUFFER_BYTES = 1 << 16


class _Refused(ValueError):
    """A cell that JSON has no form for."""


def parquet_records(path: Path) -> Iterator[Record | DatasetError]:
    """Yield the rows of a file, and an error for each that holds what JSON has no form for.

    Arrow gives every struct the keys of all others and fills them with null, so keys that are null
    are dropped from structs at any depth.

    Raises:
        OSError: the file cannot be read.
        EvalError: pyarrow is not installed.
    """
    arrow, parquet = load_arrow(), load_arrow("pyarrow.parquet")
    with path.open("rb") as source:
        try:
            # Neither option is the default: a file is often one single row group, and would be
            # read whole.
            file = parquet.ParquetFile(source, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
            faults = _faults_of_schema(path, file.schema_arrow)
            yield from faults
            if not faults:
                yield from _rows(path, file)
        except (arrow.ArrowException, EOFError) as error:
            yield DatasetError(path, f"not a Parquet file that can be read ({error})")


def _faults_of_schema(path: Path, schema: Any) -> list[DatasetError]:
    if fault := fault_of_header(path, list(schema.names)):
        return [fault]
    problem = "holds {}, which JSON has no form for: store it as text or numbers"
    return [
        DatasetError(path, problem.format(unfit), column=field.name)
        for field in schema
        if field.name in COLUMNS and (unfit := _unfit(field.type))
    ]


def _unfit(kind: Any) -> str | None:
    """Return the first type at or inside of `kind` that JSON cannot hold."""
    types = load_arrow().types
    if types.is_dictionary(kind):
        return _unfit(kind.value_type)
    if types.is_struct(kind):
        return next(filter(None, (_unfit(field.type) for field in kind)), None)
    if any(is_it(kind) for is_it in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return _unfit(kind.value_type)
    fits = (
        types.is_null,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_string,
        types.is_large_string,
        types.is_string_view,
    )
    return None if any(is_it(kind) for is_it in fits) else str(kind)


def _rows(path: Path, file: Any) -> Iterator[Record | DatasetError]:
    names = [name for name in file.schema_arrow.names if name in COLUMNS]
    index = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
        columns = {name: batch.column(name) for name in names}
        for place in range(batch.num_rows):
            yield _record(path, index, {name: columns[name][place] for name in names})
            index += 1


def _record(path: Path, index: int, cells: dict[str, Any]) -> Record | DatasetError:
    fields: dict[str, Any] = {}
    for name, cell in cells.items():
        try:
            fields[name] = _json_value(cell.as_py())
        except UnicodeDecodeError:
            return DatasetError(path, "not UTF-8", row=index, column=name)
        except _Refused as refused:
            return DatasetError(path, str(refused), row=index, column=name)
    return Record(index, None, fields)


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: _json_value(item) for key, item in pairs if item is not None}
    if isinstance(value, list):
        return [_json_value(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"{value} is not JSON: leave the cell null, or store text"
        raise _Refused(msg)
    return value

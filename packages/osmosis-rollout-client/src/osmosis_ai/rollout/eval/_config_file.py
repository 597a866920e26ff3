"""Options in a TOML file.

Each option of `osmosis-rollout eval` may stand at the top of the file by its name, with `-` or `_`
between words; paths are relative to the file. Beside them, or alone, stand the tables of files
that were written for evaluations on the Osmosis platform:

- `[experiment]`: `rollout` and `entrypoint` lead to a script, `rollouts/<rollout>/<entrypoint>` in
  the file's folder or one above it. `dataset` counts where it is a file, and `model_path` is the
  model where `base-url` names its endpoint. `branch` and `commit_sha` have no effect: what is
  evaluated is what lies there.
- `[evaluation]`: `limit`, `n`, `batch_size`, `pass_threshold`, `agent_workflow_timeout_s`,
  `grader_timeout_s`.
- `[env]`: environment variables of the entrypoint's process.
- `[secrets]`: `required` names those that must be set when the run starts.
- `[advanced]` has no effect.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._options import EvalOptions

_KEYS = {"server_key", "chat_key", "upstream_key"}
_EXPERIMENT = ("rollout", "entrypoint", "model_path", "dataset", "branch", "commit_sha")
_EVALUATION = {
    "limit": "limit",
    "n": "attempts",
    "batch_size": "max_in_flight",
    "pass_threshold": "pass_threshold",
    "agent_workflow_timeout_s": "agent_timeout_sec",
    "grader_timeout_s": "grader_timeout_sec",
}
_TABLES = ("experiment", "evaluation", "env", "secrets", "advanced")
# The command's options are shorter than the names of what they set.
_SHORT = {"agent_timeout": "agent_timeout_sec", "grader_timeout": "grader_timeout_sec"}


@dataclass(slots=True)
class ConfigFile:
    """What a file says.

    Attributes:
        path: The file.
        options: Arguments of `EvalOptions`, and perhaps `name`, the run's.
        notes: What had no effect, for people.
    """

    path: Path
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])
    _problems: list[str] = field(default_factory=list[str])

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Read a file.

        Raises:
            EvalError: it cannot be read, has unknown keys, all of which are named, or values that
                cannot be used.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            msg = f"{path}: cannot be read: {error.strerror or error}"
            raise EvalError(msg) from None
        except ValueError as error:
            msg = f"{path}: not TOML: {error}"
            raise EvalError(msg) from None
        config = cls(path)
        config._take(content)
        if config._problems:
            msg = f"{path}: {'; '.join(config._problems)}"
            raise EvalError(msg)
        return config

    def _take(self, content: dict[str, Any]) -> None:
        tables = {name: self._table(content, name) for name in _TABLES}
        for name, value in content.items():
            if name not in _TABLES:
                self._set_own(name, value)
        self._take_experiment(tables["experiment"])
        self._name_unknown(tables["evaluation"], _EVALUATION, "evaluation.")
        for name, option in _EVALUATION.items():
            if name in tables["evaluation"]:
                self._set(f"evaluation.{name}", option, tables["evaluation"][name])
        if tables["env"]:
            self._set("env", "env", tables["env"])
        self._take_secrets(tables["secrets"])
        if tables["advanced"]:
            self.notes.append("[advanced] has no effect here")

    def _table(self, content: Mapping[str, Any], name: str) -> dict[str, Any]:
        value = content.get(name, {})
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._problems.append(f"{name} must be a table")
        return {}

    def _set_own(self, name: str, value: Any) -> None:
        plain = name.replace("-", "_")
        option = _SHORT.get(plain, plain)
        kinds = _kinds()
        if option not in kinds:
            self._name_unknown({name: value}, [*kinds, *_SHORT, *_TABLES])
            return
        if kinds[option] in {Path, Path | None} or option == "entrypoint":
            value = self._from_here(value)
        self._set(name, option, value)

    def _from_here(self, value: Any) -> Any:
        # A module is looked up from the working directory, as Python itself does.
        is_path = isinstance(value, str) and ("/" in value or ".py" in value or ":" not in value)
        return str(self.path.parent / value) if is_path else value

    def _set(self, key: str, option: str, value: Any) -> None:
        if option in self.options:
            self._problems.append(f"{key} says again what another key says")
            return
        kind = _kinds()[option]
        if kind in {Path, Path | None} and isinstance(value, str):
            value = Path(value)
        elif kind == list[str] and isinstance(value, str):
            value = [value]
        try:
            self.options[option] = TypeAdapter[Any](kind).validate_python(value, strict=True)
        except ValidationError as error:
            self._problems.append(f"{key}: {error.errors()[0]['msg']}")

    def _name_unknown(
        self, table: Mapping[str, Any], known: Mapping[str, Any] | list[str], prefix: str = ""
    ) -> None:
        for name in table:
            if name not in known:
                close = get_close_matches(name.replace("-", "_"), known, 1)
                guess = f", perhaps {prefix}{close[0]} is meant" if close else ""
                self._problems.append(f"unknown key {prefix}{name}{guess}")

    def _take_experiment(self, table: dict[str, Any]) -> None:
        self._name_unknown(table, list(_EXPERIMENT), "experiment.")
        words = {name: value for name, value in table.items() if isinstance(value, str)}
        for name in set(table) - set(words):
            self._problems.append(f"experiment.{name} must be text")
        if entrypoint := words.get("entrypoint"):
            self._set("experiment.entrypoint", "entrypoint", self._script(words, entrypoint))
        if dataset := words.get("dataset"):
            self._take_dataset(dataset)
        if model := words.get("model_path"):
            self._set("experiment.model_path", "model", model)
        unused = sorted({"branch", "commit_sha"} & set(words))
        self.notes += [f"experiment.{name} has no effect here" for name in unused]

    def _script(self, words: Mapping[str, str], entrypoint: str) -> str:
        within = Path("rollouts", words.get("rollout", "."), entrypoint)
        folders = [Path.cwd(), *self.path.absolute().parents]
        for folder in folders:
            if (script := folder / within).is_file():
                return str(script)
        self._problems.append(f"experiment.entrypoint: there is no {within} here or above")
        return entrypoint

    def _take_dataset(self, name: str) -> None:
        for folder in (self.path.parent, Path.cwd()):
            if (path := folder / name).is_file():
                self._set("experiment.dataset", "dataset", str(path))
                return
        self.notes.append("experiment.dataset is no file, so it has no effect here")

    def _take_secrets(self, table: dict[str, Any]) -> None:
        self._name_unknown(table, ["required"], "secrets.")
        required = table.get("required", [])
        try:
            names = TypeAdapter(list[str]).validate_python(required, strict=True)
        except ValidationError:
            self._problems.append("secrets.required must be a list of names")
            return
        missing = [name for name in names if not os.environ.get(name)]
        if missing:
            self._problems.append(f"the environment lacks a secret: {', '.join(missing)}")


def _kinds() -> dict[str, Any]:
    """Return the types of all that a file may set, by name."""
    hints = get_type_hints(EvalOptions)
    kinds = {item.name: hints[item.name] for item in fields(EvalOptions) if item.name not in _KEYS}
    return kinds | {"name": str, "api_key_env": str}

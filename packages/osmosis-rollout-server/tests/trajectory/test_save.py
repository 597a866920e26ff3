"""What `save_trajectory` leaves on disk, and what it never does."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from chats import convert

from osmosis_ai.rollout import ExecutionResult, RolloutErrorCategory, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import Trajectory, read_trajectory, save_trajectory

QUESTION = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


def finished(*messages: Any, **sample: Any) -> ExecutionResult:
    return ExecutionResult(
        status=RolloutStatus.SUCCESS, sample=RolloutSample(messages=messages, **sample)
    )


def names_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def load(path: Path) -> Any:
    """Read strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(path.read_bytes(), parse_constant=refuse)


async def test_saves_the_document_and_the_diagnostics(tmp_path: Path) -> None:
    """Both files lie in the rollout's folder; the document is one that readers accept."""
    result = finished(QUESTION, ANSWER, reward=1.0, label="4", metrics={"n": 1})
    result.extra_fields = {"host": "a"}
    await save_trajectory(
        rollout_id="r-1",
        result=result,
        request_label="5",
        request_metadata={"row": 3},
        request_extra_fields={"epoch": 1},
        artifact_root=tmp_path,
    )
    document = load(tmp_path / "r-1" / "trajectory.json")
    trajectory = Trajectory.model_validate(document)
    assert trajectory.session_id == trajectory.trajectory_id == "r-1"
    assert trajectory.agent.name == "osmosis-rollout-sdk"
    assert [step.message for step in trajectory.steps] == ["2+2?", "4"]
    assert document["extra"] == {
        "osmosis": {
            "rollout_id": "r-1",
            "label": "4",
            "reward": 1.0,
            "sample_metrics": {"n": 1},
            "request_metadata": {"row": 3},
            "request_extra_fields": {"epoch": 1},
            "status": "success",
        }
    }
    assert load(tmp_path / "r-1" / "diagnostics.json") == {"host": "a"}


async def test_a_failed_rollouts_partial_transcript(tmp_path: Path) -> None:
    """It is saved with how the rollout ended, and without a reward."""
    result = finished(QUESTION)
    result.status = RolloutStatus.FAILURE
    result.err_category = RolloutErrorCategory.TIMEOUT
    await save_trajectory(
        rollout_id="r-1", result=result, request_label="4", artifact_root=str(tmp_path)
    )
    assert load(tmp_path / "r-1" / "trajectory.json")["extra"]["osmosis"] == {
        "rollout_id": "r-1",
        "label": "4",
        "status": "failure",
        "err_category": "timeout",
    }


async def test_later_results_replace_what_they_have_and_nothing_else(tmp_path: Path) -> None:
    """A result without a sample, or without diagnostics, leaves the earlier file alone."""
    first = finished(QUESTION)
    first.extra_fields = {"n": 1}
    bare = ExecutionResult(status=RolloutStatus.FAILURE)
    for result in (first, bare, finished(QUESTION, ANSWER), finished()):
        await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    assert len(load(tmp_path / "r-1" / "trajectory.json")["steps"]) == 2
    assert load(tmp_path / "r-1" / "diagnostics.json") == {"n": 1}


async def test_diagnostics_without_a_sample(tmp_path: Path) -> None:
    """They are saved alone; those given win over the result's."""
    result = ExecutionResult(status=RolloutStatus.FAILURE, extra_fields={"n": 1})
    await save_trajectory(
        rollout_id="r-1", result=result, artifact_root=tmp_path, diagnostics={"n": {1, 2}}
    )
    assert load(tmp_path / "r-1" / "diagnostics.json") == {"n": [1, 2]}
    assert not (tmp_path / "r-1" / "trajectory.json").exists()


async def test_nothing_to_save_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty conversation has no document; a sample that asks for none is an info line."""
    with caplog.at_level(logging.INFO):
        await save_trajectory(rollout_id="r-1", result=finished(), artifact_root=tmp_path)
        assert not caplog.records
        declined = finished(QUESTION, trajectory_messages=None)
        await save_trajectory(rollout_id="r-1", result=declined, artifact_root=tmp_path)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "r-1" in record.getMessage()
    assert names_below(tmp_path) == []


async def test_the_root_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom harness need not name the root."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "root"))
    await save_trajectory(rollout_id="r-1", result=finished(QUESTION))
    assert (tmp_path / "root" / "r-1" / "trajectory.json").is_file()


@pytest.mark.parametrize("rollout_id", ["../x", "a/b", "..", "", "a\n", "x" * 300, "\ud83d"])
async def test_b12_ids_that_are_no_name(
    rollout_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written anywhere, and a warning says why without the id."""
    root = tmp_path / "root"
    root.mkdir()
    await save_trajectory(
        rollout_id=rollout_id, result=finished(QUESTION), artifact_root=root, diagnostics={"n": 1}
    )
    assert names_below(tmp_path) == ["root"]
    (record,) = caplog.records
    assert "rollout id" in record.getMessage()
    assert not rollout_id or rollout_id not in record.getMessage()


async def test_b13_b14_our_files_win_over_links_and_fakes(tmp_path: Path) -> None:
    """What user code put in their place is replaced, never written through."""
    secret = tmp_path / "secret"
    secret.write_text("keep", encoding="utf-8")
    folder = tmp_path / "root" / "r-1"
    folder.mkdir(parents=True)
    (folder / "trajectory.json").symlink_to(secret)
    (folder / "diagnostics.json").write_text('{"reward": 1}', encoding="utf-8")
    await save_trajectory(
        rollout_id="r-1",
        result=finished(QUESTION),
        artifact_root=tmp_path / "root",
        diagnostics={"n": 1},
    )
    assert secret.read_text(encoding="utf-8") == "keep"
    assert not (folder / "trajectory.json").is_symlink()
    assert load(folder / "trajectory.json")["steps"][0]["message"] == "2+2?"
    assert load(folder / "diagnostics.json") == {"n": 1}


async def test_an_unwritable_root_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the rollout and the reason, once for each file."""
    root = tmp_path / "file"
    root.write_text("", encoding="utf-8")
    await save_trajectory(
        rollout_id="r-1", result=finished(QUESTION), artifact_root=root, diagnostics={"n": 1}
    )
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all("r-1" in record.getMessage() for record in caplog.records)


class Hostile(Mapping[str, Any]):
    """A mapping that raises, whatever is asked of it, and notes the thread that asked."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.threads: set[int] = set()

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        self.threads.add(threading.get_ident())
        raise self.error

    def __len__(self) -> int:
        return 1


async def test_a_value_that_raises_is_replaced(tmp_path: Path) -> None:
    """One object with an error in it does not cost the document."""
    odd = {**QUESTION, "odd": [1, Hostile(ValueError("sek-ret"))]}
    result = finished(trajectory_messages=[odd])
    await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    (step,) = load(tmp_path / "r-1" / "trajectory.json")["steps"]
    assert step["extra"] == {"odd": [1, "<Hostile>"]}


@pytest.mark.parametrize("error", [SystemExit("sek-ret"), KeyboardInterrupt()])
async def test_values_that_want_to_stop_the_process_are_a_warning(
    error: BaseException, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of a sample can stop the server, its text is not logged, the other file is saved."""
    hostile = Hostile(error)
    result = finished(trajectory_messages=[{**QUESTION, "odd": hostile}])
    await save_trajectory(
        rollout_id="r-1", result=result, artifact_root=tmp_path, diagnostics={"n": 1}
    )
    (record,) = caplog.records
    assert "r-1" in record.getMessage()
    assert "sek-ret" not in record.getMessage()
    assert names_below(tmp_path) == ["diagnostics.json", "r-1"]
    assert threading.get_ident() not in hostile.threads


async def test_a_result_that_is_none_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A harness that hands over something else is told, not stopped."""
    await save_trajectory(rollout_id="r-1", result=None, artifact_root=tmp_path)  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_b22_b23_b45_what_json_cannot_hold(tmp_path: Path) -> None:
    """The file is strict JSON, and the sample is as it was."""
    result = finished(
        {"role": "tool", "content": "a\ud83d"},
        {
            "role": "user",
            "content": [{"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}],
        },
        {"role": "user", "content": "x", "nan": float("nan"), "huge": 2**70, "raw": b"abc"},
        metrics={"loss": float("nan"), "n": 1},
    )
    await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    document = load(tmp_path / "r-1" / "trajectory.json")
    _, picture, odd = document["steps"]
    path = tmp_path / "r-1" / picture["message"][0]["source"]["path"]
    assert path.read_bytes() == b"\x89PNG"
    assert odd["extra"] == {"nan": None, "huge": str(2**70), "raw": "<3 bytes>"}
    assert document["extra"]["osmosis"]["sample_metrics"] == {"loss": None, "n": 1}
    assert result.sample is not None
    assert result.sample.messages[0]["content"] == "a\ud83d"


async def test_documents_are_laid_out_for_people(tmp_path: Path) -> None:
    """Indented, lists of numbers on one line, texts untouched, no nulls, a newline at the end."""
    text = "[\n  1,\n  2\n]"
    answer = {**ANSWER, "content": text, "token_ids": [1, 2, 3], "logprobs": [-0.5, -1.0, -2.0]}
    await save_trajectory(rollout_id="r-1", result=finished(answer), artifact_root=tmp_path)
    written = (tmp_path / "r-1" / "trajectory.json").read_text(encoding="utf-8")
    assert '        "completion_token_ids": [1, 2, 3],\n' in written
    assert '"logprobs": [-0.5, -1.0, -2.0]\n' in written
    assert "null" not in written
    assert written.endswith("}\n")
    assert json.loads(written)["steps"][0]["message"] == text


async def test_large_documents_are_compact(tmp_path: Path) -> None:
    """Nobody reads them in an editor."""
    ids = list(range(300_000))
    answer = {**ANSWER, "token_ids": ids}
    await save_trajectory(rollout_id="r-1", result=finished(answer), artifact_root=tmp_path)
    written = (tmp_path / "r-1" / "trajectory.json").read_bytes()
    assert b"\n" not in written
    assert json.loads(written)["steps"][0]["metrics"]["completion_token_ids"] == ids


@pytest.mark.parametrize(
    "tokens",
    [
        {"token_ids": [1, "x"], "logprobs": [-1, -0.5]},
        {"token_ids": [1, True], "logprobs": [-0.5, float("nan")]},
        {"token_ids": [1, 2.5], "logprobs": [-0.5, None]},
        {"token_ids": [1, 2**64], "logprobs": [-0.5, 2**64]},
        {"token_ids": [1, [2]], "logprobs": [0.5, {}]},
        {"token_ids": [], "prompt_token_ids": [1, False, Hostile(ValueError("sek-ret"))]},
        {"token_ids": [*range(50_000), 1.5], "logprobs": [*[-0.5] * 50_000, 1]},
    ],
    ids=["text", "bool", "float", "huge", "nested", "hostile", "many"],
)
async def test_lists_that_only_begin_with_numbers(tokens: dict[str, Any], tmp_path: Path) -> None:
    """What is written is what the conversion gives, whatever hides behind the first number."""
    turns = [{**ANSWER, **tokens}, {**ANSWER, "prompt_token_ids": [1]}]
    result = finished(trajectory_messages=turns)
    await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    saved = Trajectory.model_validate(load(tmp_path / "r-1" / "trajectory.json"))
    assert saved.steps == convert(*turns).steps


async def test_large_subagents_are_written_piece_by_piece(tmp_path: Path) -> None:
    """Their steps are part of the document like its own."""
    inner = {"messages": [QUESTION, {**ANSWER, "token_ids": list(range(300_000))}]}
    call = {"id": "x", "type": "function", "function": {"name": "ask"}}
    turns = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "4", "subagents": [inner, inner]},
    ]
    result = finished(trajectory_messages=turns)
    await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
    saved = read_trajectory(tmp_path / "r-1" / "trajectory.json")
    assert saved.subagent_trajectories == convert(*turns).subagent_trajectories


async def test_the_operator_may_have_documents_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file at a time, of the chosen form; what user code put in the other's place is gone."""
    folder = tmp_path / "r-1"
    folder.mkdir()
    (folder / "trajectory.json").write_text('{"reward": 1}', encoding="utf-8")
    for form, name in [("gzip", "trajectory.json.gz"), ("none", "trajectory.json")]:
        monkeypatch.setenv("_OSMOSIS_ROLLOUT_TRAJECTORY_COMPRESSION", form)
        result = finished(QUESTION, {**ANSWER, "token_ids": list(range(300_000))})
        await save_trajectory(rollout_id="r-1", result=result, artifact_root=tmp_path)
        assert names_below(folder) == [name]
        assert read_trajectory(folder / name).steps[0].message == "2+2?"


async def test_an_unknown_form_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The document is saved as it is."""
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_TRAJECTORY_COMPRESSION", "zip")
    await save_trajectory(rollout_id="r-1", result=finished(QUESTION), artifact_root=tmp_path)
    assert names_below(tmp_path / "r-1") == ["trajectory.json"]
    assert "_OSMOSIS_ROLLOUT_TRAJECTORY_COMPRESSION" in caplog.text


async def test_user_code_that_takes_all_threads_holds_nothing_up(tmp_path: Path) -> None:
    """Saving does not wait for the loop's own executor."""
    executor = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(executor)
    blocked = threading.Event()
    waiting = loop.run_in_executor(None, blocked.wait)
    await save_trajectory(rollout_id="r-1", result=finished(QUESTION), artifact_root=tmp_path)
    assert (tmp_path / "r-1" / "trajectory.json").is_file()
    blocked.set()
    await waiting


def test_importing_the_part_imports_no_web_framework() -> None:
    """A custom harness saves trajectories without a server."""
    program = (
        "import sys, osmosis_ai.rollout.trajectory;"
        "print({'fastapi', 'starlette', 'uvicorn', 'httpx'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"

"""Evaluation without a server: options, bad input, and the numbers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.eval import EvalError, EvalOptions, evaluate

ROW = '{"user_prompt": "2+2?", "ground_truth": "4"}'
RECORDING = '{"question": "2+2?", "small": {"solution": "A: 4"}, "large": {"solution": "A: 5"}}'

GATEWAY: dict[str, Any] = {
    "replay": None,
    "base_url": ["http://127.0.0.1:9/v1"],
    "model": "real",
}


def options(tmp_path: Path, **changes: Any) -> EvalOptions:
    """Return options that are good but for the changes; no server listens at their URL."""
    (tmp_path / "data.jsonl").write_text(ROW)
    (tmp_path / "recorded.jsonl").write_text(RECORDING)
    good: dict[str, Any] = {
        "dataset": tmp_path / "data.jsonl",
        "output": tmp_path / "run",
        "url": "http://127.0.0.1:9",
        "replay": tmp_path / "recorded.jsonl",
    }
    return EvalOptions(**{**good, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": None}, "give either an entrypoint to serve"),
        ({"entrypoint": "main.py:app"}, "give either an entrypoint to serve"),
        ({"replay": None}, "give the policy"),
        ({"chat_url": "http://127.0.0.1:9/v1"}, "give the policy"),
        ({"base_url": ["http://127.0.0.1:9/v1"], "model": "real"}, "give the policy"),
        ({"replay": None, "base_url": ["http://127.0.0.1:9/v1"]}, "go together"),
        ({"model": "real"}, "go together"),
        ({"record": True}, "need the gateway"),
        ({"token_ids": True}, "need the gateway"),
        (GATEWAY | {"base_url": ["localhost:8080"]}, "--base-url must be an http://"),
        (GATEWAY | {"url": "http://gpu-1:8000"}, "cannot reach it: give --chat-url"),
        (GATEWAY | {"max_calls": 0}, "at least 1"),
        (GATEWAY | {"upstream_key": "k\n"}, "the upstream's key must be usable"),
        ({"attempts": 0}, "at least 1"),
        ({"max_in_flight": 0}, "at least 1"),
        ({"limit": 0}, "at least 1"),
        ({"rows": "3-1"}, "selects no rows"),
        ({"url": "nonsense"}, "--url must be an http:// or https:// URL"),
        ({"replay": None, "chat_url": "localhost:8080"}, "--chat-url must be an http://"),
        ({"server_key": "k\n"}, "the rollout server's key must be usable in a header"),
        ({"chat_key": "ключ"}, "the policy's key must be usable in a header"),
    ],
)
def test_options_that_do_not_fit_together(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """They are refused when they are made, with what to do."""
    with pytest.raises(EvalError, match=words):
        options(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset": Path("gone.jsonl")}, "gone.jsonl: cannot be read"),
        ({"replay": Path("gone.jsonl")}, "gone.jsonl: cannot be read"),
        ({"replay": Path(__file__)}, r"test_eval.py, line 1"),
        ({"attempts": 3}, "the file holds 2: small, large"),
        ({"output": Path(__file__).parent}, "is not empty"),
        ({"output": Path(__file__)}, "cannot be written"),
        ({}, "no answer from the rollout server to GET /health"),
    ],
)
async def test_bad_input_is_found_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(EvalError, match=words):
        await evaluate(options(tmp_path, **changes))


async def test_the_manifest_holds_no_secret_of_a_url(tmp_path: Path) -> None:
    """It says where the server and the policy were, and no more."""
    urls: dict[str, Any] = {
        "url": "http://user:sek-ret@127.0.0.1:9/base",
        "chat_url": "http://sek-ret@127.0.0.1:9/v1?key=sek-ret#part",
    }
    with pytest.raises(EvalError, match="no answer from the rollout server") as caught:
        await evaluate(options(tmp_path, replay=None, **urls))
    manifest = (tmp_path / "run" / "manifest.json").read_text()
    assert "sek-ret" not in manifest + str(caught.value)
    inputs = json.loads(manifest)["inputs"]
    assert inputs["server"] == "http://127.0.0.1:9/base"
    assert inputs["policy"] == {"chat_url": "http://127.0.0.1:9/v1"}


def test_options_hide_their_keys(tmp_path: Path) -> None:
    """Options may be logged."""
    keys = {"server_key": "server-key", "chat_key": "chat-key", "upstream_key": "upstream-key"}
    shown = repr(options(tmp_path, **keys))
    assert "-key" not in shown


def command(*arguments: str | Path, code: str = "") -> subprocess.CompletedProcess[str]:
    """Run `osmosis-rollout`, after some code in the same process."""
    start = f"{code}\nfrom osmosis_ai.rollout.eval.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *map(str, arguments)], capture_output=True, text=True
    )


def test_the_command_refuses_bad_input_with_status_2(tmp_path: Path) -> None:
    """One line on stderr says why; nothing is left behind."""
    (tmp_path / "data.jsonl").write_text(ROW + "\n<oops>")
    run = tmp_path / "run"
    url = "http://127.0.0.1:9"
    done = command(
        "eval", tmp_path / "data.jsonl", "--url", url, "--chat-url", url, f"--output={run}"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("osmosis-rollout: ")
    assert "data.jsonl, row 1, line 2, column 1: not JSON" in done.stderr
    assert not run.exists()


def test_the_command_explains_itself() -> None:
    """Its help names the options and the exit status."""
    done = command("eval", "--help")
    assert done.returncode == 0
    for word in ("--replay", "--chat-url", "--pass-threshold", "Exit status", "OSMOSIS_API_KEY"):
        assert word in done.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_is_named_with_its_command(missing: str) -> None:
    """The exact pip line, and status 2."""
    done = command(code=f"import sys; sys.modules['{missing}'] = None")
    assert done.returncode == 2
    assert "pip install 'osmosis-rollout-client[eval]'" in done.stderr
    assert "Traceback" not in done.stderr

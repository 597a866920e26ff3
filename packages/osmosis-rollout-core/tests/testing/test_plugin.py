"""The pytest plugin, loaded by a pytest of its own as in a user's project."""

import subprocess
import sys
from pathlib import Path

USER_TESTS = """
import json
import sys
import urllib.request


def ask(url, content):
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    with urllib.request.urlopen(f"{url}/chat/completions", body, timeout=20) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_unused_plugin_imports_nothing():
    assert not {"osmosis_ai.rollout", "pydantic"} & set(sys.modules)


def test_scripted(scripted_policy):
    scripted_policy.add("4")
    assert ask(scripted_policy.url, "2+2?") == "4"


def test_replay(replay_policy, tmp_path):
    path = tmp_path / "recorded.jsonl"
    path.write_text(json.dumps({"question": "2+2?", "m": {"solution": "A: 4"}}))
    assert ask(replay_policy(path).url_for("m"), "2+2?") == "A: 4"


def test_script_too_short(scripted_policy):
    try:
        ask(scripted_policy.url, "2+2?")
    except OSError:
        pass
"""


def test_fixtures_are_there_without_further_setup(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USER_TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-v"]
    run = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], capture_output=True, text=True, check=False
    )
    assert "4 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert "ERROR at teardown of test_script_too_short" in run.stdout
    assert "request 1: the script has no reply for it" in run.stdout

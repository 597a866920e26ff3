"""Options in TOML files: ours, and those of existing users."""

from pathlib import Path
from typing import Any

import pytest

from osmosis_ai.rollout.eval import EvalError
from osmosis_ai.rollout.eval._config_file import ConfigFile
from osmosis_ai.rollout.eval._eval_command import options_of


def read(tmp_path: Path, text: str) -> ConfigFile:
    path = tmp_path / "eval.toml"
    path.write_text(text)
    return ConfigFile.read(path)


def test_options_by_their_names(tmp_path: Path) -> None:
    """With - or _, as on the command line; paths are relative to the file, modules are not."""
    config = read(
        tmp_path,
        'dataset = "data.csv"\nentrypoint = "sub/main.py:app"\nmax-in-flight = 4\n'
        "pass_threshold = 1\nagent-timeout = 2.5\nretry-failed = true\n",
    )
    assert config.options == {
        "dataset": tmp_path / "data.csv",
        "entrypoint": str(tmp_path / "sub" / "main.py:app"),
        "max_in_flight": 4,
        "pass_threshold": 1.0,
        "agent_timeout_sec": 2.5,
        "retry_failed": True,
    }
    assert read(tmp_path, 'entrypoint = "package.module:app"').options == {
        "entrypoint": "package.module:app"
    }


def test_the_policy_of_a_file(tmp_path: Path) -> None:
    """One upstream is as good as a list of them; the model of older files has its own place."""
    config = read(tmp_path, 'base-url = "http://a/v1"\nmodel = "m"\napi-key-env = "K"\n')
    assert config.options == {"base_url": ["http://a/v1"], "model": "m", "api_key_env": "K"}
    config = read(
        tmp_path, 'base_url = ["http://a/v1", "http://b/v1"]\n[experiment]\nmodel_path = "m"'
    )
    assert config.options == {"base_url": ["http://a/v1", "http://b/v1"], "model": "m"}


@pytest.mark.parametrize(
    "policy", [{"chat_url": "http://a/v1"}, {"replay": Path("solutions.jsonl")}]
)
def test_the_model_of_a_file_counts_for_a_base_url_alone(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    """Another policy, in the file or as a flag, takes the place of all that belongs to it."""
    run = {"dataset": Path("data.jsonl"), "url": "http://127.0.0.1:9"}
    gateway = {"base_url": ["http://127.0.0.1:9/v1"], "token_ids": True, "max_calls": 3}
    assert options_of(gateway | {"model": "m"}, run).model == "m"
    for file in (policy | {"model": "m"}, gateway | {"model": "m"}):
        options = options_of(file, run | policy)
        assert (options.model, options.base_url, options.token_ids) == (None, [], False)


@pytest.mark.parametrize(
    ("urls", "flags", "key"),
    [
        (["https://api.example/v1"], {}, "usual"),
        (["http://127.0.0.1:9/v1", "http://localhost:9/v1"], {}, "usual"),
        (["http://127.0.0.1:9/v1", "http://gpu-1:8000/v1"], {}, None),
        (["http://gpu-1:8000/v1"], {"api_key_env": "GPU_KEY"}, "named"),
    ],
)
def test_which_key_goes_to_the_upstreams(
    monkeypatch: pytest.MonkeyPatch, urls: list[str], flags: dict[str, str], key: str | None
) -> None:
    """The usual one goes where nobody can listen; one that is named goes where it is wanted."""
    monkeypatch.setenv("OPENAI_API_KEY", "usual")
    monkeypatch.setenv("GPU_KEY", "named")
    run: dict[str, Any] = {"dataset": Path("data.jsonl"), "url": "http://127.0.0.1:9"}
    options = options_of({}, run | {"base_url": urls, "model": "m"} | flags)
    assert options.upstream_key == key


def test_a_key_that_is_named_and_not_there() -> None:
    """It is told before anything runs."""
    flags: dict[str, Any] = {"dataset": Path("d.jsonl"), "base_url": ["http://a/v1"], "model": "m"}
    with pytest.raises(EvalError, match="the environment lacks NO_SUCH_KEY"):
        options_of({}, flags | {"url": "http://127.0.0.1:9", "api_key_env": "NO_SUCH_KEY"})


def test_every_unknown_key_is_named(tmp_path: Path) -> None:
    """With the one that may be meant; also what stands in tables."""
    with pytest.raises(EvalError) as caught:
        read(
            tmp_path,
            "limt = 3\nserver_key = 'k3y'\n[evaluation]\nbatchsize = 1\n[secrets]\nneeded = []\n"
            "[experiment]\nentry = 'x'\n",
        )
    told = str(caught.value)
    for words in (
        "unknown key limt, perhaps limit is meant",
        "unknown key server_key",
        "unknown key evaluation.batchsize, perhaps evaluation.batch_size is meant",
        "unknown key secrets.needed",
        "unknown key experiment.entry",
    ):
        assert words in told
    assert "k3y" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("attempts = '3'", "attempts: Input should be a valid integer"),
        ("limit = true", "limit: Input should be a valid integer"),
        ("env = 3", "env must be a table"),
        ("[env]\nA = 3", "env: Input should be a valid string"),
        ("limit = 1\n[evaluation]\nlimit = 2", "evaluation.limit says again"),
        ("limit = ", "not TOML"),
        ("[experiment]\nentrypoint = 'gone.py'", "there is no rollouts/gone.py here or above"),
        ("[secrets]\nrequired = 'KEY'", "secrets.required must be a list of names"),
    ],
)
def test_values_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    """The key is named."""
    with pytest.raises(EvalError, match=words):
        read(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(EvalError, match=r"gone\.toml: cannot be read"):
        ConfigFile.read(tmp_path / "gone.toml")

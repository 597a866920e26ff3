"""Options in TOML files: ours, and those of existing users."""

from pathlib import Path

import pytest

from osmosis_ai.rollout.eval import EvalError
from osmosis_ai.rollout.eval._config_file import ConfigFile


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

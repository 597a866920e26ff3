"""What people see: on terminals, in pipes, and on a run's page."""

import json
import os
import pty
import re
from collections.abc import Callable, Generator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, override
from urllib.parse import unquote

import pytest

from osmosis_ai.rollout.testing import PolicyRequest, Reply, ScriptedPolicy, reply

PROJECT = Path(__file__).parent / "projects" / "moods.py"
APP = f"{PROJECT}:app"
HOSTILE = "<script>alert(1)</script> \x1b[31m\u202eevil"
FOREIGN = "\u65e5\u672c\u3000caf\u00e9\u00a0\U0001f468\u200d\U0001f469\u200d\U0001f467"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

pytestmark = pytest.mark.timeout(300)


def answer(request: PolicyRequest) -> Reply:
    return reply("4 " + HOSTILE, reasoning=FOREIGN)


@pytest.fixture
def policy() -> Generator[ScriptedPolicy]:
    """A policy that says what could mislead terminals and pages."""
    with ScriptedPolicy(respond=answer) as policy:
        yield policy


def on_a_terminal(line: list[str], folder: Path, **environment: str) -> str:
    """Run a command on a terminal, and return all that it wrote there."""
    screen = bytearray()

    def read(terminal: int) -> bytes:
        screen.extend(shown := os.read(terminal, 65536))
        return shown

    settings = {"TERM": "xterm-256color", "COLUMNS": "80"} | environment
    command = ["env", f"--chdir={folder}", *(f"{k}={v}" for k, v in settings.items()), *line]
    pty.spawn(command, read)
    return screen.decode()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_has_a_bar_a_table_and_a_histogram(
    run_eval: Any, dataset: Callable[..., Path], columns: int
) -> None:
    """None of it is wider than the terminal."""
    answers = iter(["4", "5", "4", "4"])
    with ScriptedPolicy(respond=lambda request: next(answers)) as policy:
        command = (dataset({}, {"do": "raise"}, {}), APP, "--chat-url", policy.url)
        line = run_eval.line(*command, "--attempts", "2")
        screen = on_a_terminal(line, run_eval.folder, COLUMNS=str(columns))
    shown = [part.rstrip() for part in re.split("[\r\n]", ESCAPES.sub("", screen))]
    shown = [part for part in shown if str(run_eval.folder) not in part]
    assert any(part.startswith("rollouts ") and "6/6 " in part for part in shown)
    [numbers] = [part for part in shown if "all attempts" in part]
    assert "3/4 (75.0 %)" in numbers
    bars = [part.split() for part in shown if "\u2588" in part]
    assert [(bar[0], len(bar[1]), bar[2]) for bar in bars] == [("0", 13, "1"), ("1", 40, "3")]
    assert "failures by origin: 2 workflow" in shown
    assert max(map(len, shown)) <= columns


@pytest.mark.parametrize("way", ["--plain", "a pipe"])
def test_plain_text_has_no_escapes(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy, way: str
) -> None:
    """A terminal gets with --plain what a pipe gets anyway: one line for each number."""
    command = (dataset({}, {"do": "raise"}), APP, "--chat-url", policy.url)
    if way == "--plain":
        shown = on_a_terminal(run_eval.line(*command, "--plain"), run_eval.folder)
    else:
        run = run_eval(*command)
        shown = run.stdout + run.stderr
    assert "\x1b" not in shown
    assert "all attempts 0/1 (0.0 %), 1 failure" in shown
    assert "2/2 done, 0 of 1 passed (0.0 %), 1 agent_error" in shown
    assert "\u2501" not in shown


def test_no_color_leaves_a_terminal_without_colours(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """The bar still moves, in the terminal's own colours: bold and dim are none."""
    line = run_eval.line(dataset({}, {"do": "raise"}), APP, "--chat-url", policy.url)
    screen = on_a_terminal(line, run_eval.folder, NO_COLOR="1")
    styles = {
        code for codes in re.findall(r"\x1b\[([0-9;]*)m", screen) for code in codes.split(";")
    }
    assert styles <= {"", "0", "1", "2", "3"}


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"FORCE_COLOR": "1"}])
def test_nothing_moves_where_nothing_can(
    run_eval: Any,
    dataset: Callable[..., Path],
    policy: ScriptedPolicy,
    environment: dict[str, str],
) -> None:
    """A dumb terminal, and a pipe that is to have colours, get lines on the progress."""
    command = (dataset({}, {}), APP, "--chat-url", policy.url)
    if "TERM" in environment:
        shown = on_a_terminal(run_eval.line(*command), run_eval.folder, **environment)
        assert "\x1b" not in shown
    else:
        run = run_eval(*command, **environment)
        shown = run.stdout + run.stderr
    assert "2/2 done, 0 of 2 passed (0.0 %)" in shown
    assert not re.search(r"\x1b\[[0-9;?]*[^m0-9;?]", shown)


def test_trajectories_are_named_where_there_are_some(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """And not where every workflow failed before it said anything."""
    run = run_eval(dataset({"do": "raise"}), APP, "--chat-url", policy.url)
    assert not list((run.output / "rollouts").glob("*/trajectory.json"))
    assert "trajectories:" not in run.stdout
    run = run_eval(dataset({}), APP, "--chat-url", policy.url, "--fresh")
    assert f"trajectories: {run.output}/rollouts/<rollout_id>/trajectory.json" in run.stdout


def transcript_of(run_eval: Any, **environment: str) -> str:
    line = [*run_eval.line()[:-2], "show", "0", "--run", "run"]
    return on_a_terminal(line, run_eval.folder, **environment)


def test_a_transcript_on_a_terminal(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """Foreign text steers nothing, in any language it stays as it is, and lines stay indented."""
    run_eval(dataset({"note": "word " * 40}), APP, "--chat-url", policy.url)
    screen = transcript_of(run_eval)
    shown = ESCAPES.sub("", screen).replace("\r", "")
    assert f"    {FOREIGN}" in shown
    assert "\x1b[31m" not in screen.split("assistant")[1]
    assert "  4 <script>alert(1)</script> \ufffd[31m\ufffdevil" in shown
    wrapped = [line for line in shown.split("\n") if "word word" in line]
    assert len(wrapped) > 1
    assert all(line.startswith("  ") and len(line.rstrip()) <= 80 for line in wrapped)
    assert "trajectory.json" in shown


class Page(HTMLParser):
    """The tags, the ids and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        assert not any(name.startswith("on") for name in values)
        self.ids |= {values["id"] or ""} if "id" in values else set()
        self.links |= {values["href"] or ""} if "href" in values else set()


def test_a_page_may_be_moved_with_its_run(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """Its links lead to transcripts on it, and to files beside it; all that is foreign is text."""
    data = dataset({"note": HOSTILE}, {"do": "raise"})
    run = run_eval(data, APP, "--chat-url", policy.url, "--attempts", "2")
    moved = run_eval.folder / "elsewhere"
    run.output.rename(moved)
    page = Page(moved / "report.html")
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert not set("\x1b\u202e") & set(page.text)
    assert FOREIGN in page.text
    rollouts = {result["rollout_id"] for result in map(json.loads, lines(moved / "index.jsonl"))}
    assert page.ids >= rollouts
    inner = {link[1:] for link in page.links if link.startswith("#")}
    assert inner == rollouts
    outer = page.links - {f"#{name}" for name in inner}
    assert len(outer) == 2
    assert all((moved / unquote(link)).is_file() for link in outer)
    assert page.text.count("agent_error, workflow: the search index is gone") == 2
    assert "4 of 4 rollouts have ended: 2 success, 2 failure" in page.text


def test_a_page_has_room_for_so_much(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """What comes after 50 million characters of transcripts is named with its command."""
    data = dataset({}, *({"long": "x" * 13_000_000} for _ in range(4)))
    run = run_eval(data, APP, "--chat-url", policy.url, "--max-in-flight", "1")
    page = (run.output / "report.html").read_text()
    last = run.results[-1]["rollout_id"]
    assert page.count("This page has no room for it") == 1
    assert f"osmosis-rollout show {last} --run {run.output}" in page
    assert len(page) < 50_000_000


def test_the_page_of_a_run_in_which_nothing_has_ended(
    run_eval: Any, dataset: Callable[..., Path], policy: ScriptedPolicy
) -> None:
    """It says so."""
    run = run_eval(dataset({}), APP, "--chat-url", policy.url)
    (run.output / "results.jsonl").write_bytes(b"")
    report = on_a_terminal([*run_eval.line()[:-2], "report", "run"], run_eval.folder)
    assert "report.html" in report
    assert "0 of 1 rollouts have ended: none yet" in Page(run.output / "report.html").text


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]

"""Directories of rollouts, and trees that user code filled with traps."""

import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from osmosis_ai.rollout.artifacts import (
    RolloutFolder,
    Writer,
    artifact_root_from_env,
    copy_tree,
    list_artifacts,
    list_files,
    prove_writable,
    provision,
    read_file,
    rollout_dir,
    set_aside,
)


def replace_file(root: Path, rollout_id: str, name: str, data: bytes | Writer) -> Path:
    with RolloutFolder(root, rollout_id) as folder:
        folder.replace(name, data)
    return root / rollout_id / name


def remove_file(root: Path, rollout_id: str, name: str) -> None:
    with RolloutFolder(root, rollout_id) as folder:
        folder.remove(name)


def displace_files(root: Path, rollout_id: str, names: list[str]) -> None:
    with RolloutFolder(root, rollout_id) as folder:
        folder.displace(names)


BAD_IDS = [
    "../x",
    "a/b",
    "a\\b",
    ".",
    "..",
    "",
    "\x00",
    "x\x00.json",
    "a\n",
    "x" * 300,
    "\u2024\u2024/x",
    ".server-x",
    "\udc80",
]
PLAIN_IDS = ["C:x", "~", "%2e", "%2e%2e%2f", "x" * 255, "ключ", " "]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An artifact root that does not exist yet."""
    return tmp_path / "deep" / "root"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with a file that no test may reach through a link."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def put_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def put_file_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret")


def put_dangling_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def put_loop(path: Path, outside: Path) -> None:
    path.symlink_to(path)


def put_pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def put_file(path: Path, outside: Path) -> None:
    path.write_text("user's")


type Trap = Callable[[Path, Path], None]

TRAPS: list[Trap] = [put_link, put_file_link, put_dangling_link, put_loop, put_pipe, put_file]
traps = pytest.mark.parametrize("put", TRAPS)


class TestRoot:
    """Where the folders lie."""

    def test_variable(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The variable names the root."""
        monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(root))
        assert artifact_root_from_env() == root

    @pytest.mark.parametrize("value", ["", None, "~/.osmosis"])
    def test_default_is_in_the_home_directory(
        self, value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the variable, or with an empty one, it is `~/.osmosis`; `~` is expanded."""
        monkeypatch.setenv("HOME", str(tmp_path))
        if value is None:
            monkeypatch.delenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT")
        else:
            monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", value)
        assert artifact_root_from_env() == tmp_path / ".osmosis"

    def test_relative_root_does_not_move_with_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A relative root is resolved when it is read."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", "out")
        assert artifact_root_from_env() == tmp_path / "out"

    def test_unknown_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A home directory that nobody knows is no reason to fail, nor to make a `~` folder."""
        monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", "~nobody-has-this-name/x")
        assert artifact_root_from_env() == Path("/x")

    def test_proof_leaves_nothing_behind(self, root: Path) -> None:
        """The real write is removed again."""
        prove_writable(root)
        assert list(root.iterdir()) == []

    def test_proof_fails_on_a_file(self, root: Path) -> None:
        """A root that cannot be a directory is an OSError."""
        root.parent.mkdir()
        root.write_text("")
        with pytest.raises(OSError, match="exists"):
            prove_writable(root)


class TestIds:
    """B12: every sink checks the id for itself."""

    @pytest.mark.parametrize("rollout_id", BAD_IDS)
    def test_b12_bad_ids_reach_no_path(self, rollout_id: str, root: Path) -> None:
        """A bad id is refused before anything is created."""
        for sink in (rollout_dir, provision, set_aside):
            with pytest.raises(ValueError, match="path segment"):
                sink(root, rollout_id)
        with pytest.raises(ValueError, match="path segment"):
            replace_file(root, rollout_id, "trajectory.json", b"{}")
        with pytest.raises(ValueError, match="path segment"):
            replace_file(root, "r-1", f"images/{rollout_id}/..", b"")
        with pytest.raises(ValueError, match="path segment"):
            list_files(root, f"../{rollout_id}")
        assert not root.exists()

    @pytest.mark.parametrize("rollout_id", PLAIN_IDS)
    def test_b12_plain_ids_are_taken_literally(self, rollout_id: str, root: Path) -> None:
        """Nothing is decoded or expanded."""
        assert provision(root, rollout_id) == root / rollout_id / "artifacts"
        replace_file(root, rollout_id, "trajectory.json", b"{}")
        assert tree(root) == {
            rollout_id,
            f"{rollout_id}/artifacts",
            f"{rollout_id}/trajectory.json",
        }


class TestProvision:
    """The directory that a rollout starts with."""

    def test_is_empty_and_leaves_no_marker(self, root: Path) -> None:
        """Two directories, nothing else."""
        assert provision(root, "r-1") == root / "r-1" / "artifacts"
        assert tree(root) == {"r-1", "r-1/artifacts"}

    def test_earlier_runs_are_set_aside(self, root: Path, caplog: pytest.LogCaptureFixture) -> None:
        """An id that is used again never mixes two runs."""
        for run in ("first", "second", "third"):
            (provision(root, "r-1") / "log").write_text(run)
            replace_file(root, "r-1", "trajectory.json", run.encode())
        folder = root / "r-1"
        assert (folder / "trajectory.json").read_text() == "third"
        assert (folder / "previous-1/trajectory.json").read_text() == "first"
        assert (folder / "previous-2/artifacts/log").read_text() == "second"
        assert not (folder / "previous-3").exists()
        assert "r-1 was used before" in caplog.text

    def test_set_aside_without_an_earlier_run(self, root: Path) -> None:
        """Nothing to move is no error."""
        assert set_aside(root, "r-1") is None
        (root / "r-1").mkdir(parents=True)
        assert set_aside(root, "r-1") is None

    @traps
    def test_b13_traps_from_an_earlier_run(self, put: Trap, root: Path, outside: Path) -> None:
        """What is in the place of the rollout's folder is removed, not followed."""
        root.mkdir(parents=True)
        put(root / "r-1", outside)
        directory = provision(root, "r-1")
        assert directory.resolve() == root / "r-1/artifacts"
        assert list(directory.iterdir()) == []
        assert tree(outside) == {"secret"}

    def test_links_are_set_aside_as_links(self, root: Path, outside: Path) -> None:
        """Moving old content never touches what its links point to."""
        (provision(root, "r-1") / "hop").symlink_to(outside)
        provision(root, "r-1")
        assert (root / "r-1/previous-1/artifacts/hop").is_symlink()
        assert tree(outside) == {"secret"}


class TestReplaceFile:
    """The server's own files."""

    def test_replaces_atomically(self, root: Path) -> None:
        """An open reader keeps the old content; no temporary file stays."""
        path = replace_file(root, "r-1", "trajectory.json", b"old")
        with path.open() as reader:
            replace_file(root, "r-1", "trajectory.json", b"new")
            assert reader.read() == "old"
        assert path.read_text() == "new"
        assert tree(root / "r-1") == {"trajectory.json"}

    def test_parts_of_the_name_become_folders(self, root: Path) -> None:
        """Images lie in a folder of their own."""
        replace_file(root, "r-1", "images/a.png", b"x")
        assert (root / "r-1/images/a.png").read_bytes() == b"x"

    @traps
    @pytest.mark.parametrize("where", ["r-1", "r-1/images", "r-1/images/a.png"])
    def test_b13_b14_traps_are_replaced(
        self, put: Trap, where: str, root: Path, outside: Path
    ) -> None:
        """Wherever on the path user code put something, the server's file wins."""
        trap = root / where
        trap.parent.mkdir(parents=True)
        put(trap, outside)
        path = replace_file(root, "r-1", "images/a.png", b"ours")
        assert path.read_bytes() == b"ours"
        assert path.resolve() == root / "r-1/images/a.png"
        assert tree(outside) == {"secret"}
        assert (outside / "secret").read_text() == "secret"

    def test_b14_a_directory_of_that_name_is_renamed(self, root: Path) -> None:
        """User code's directory keeps its content under another name."""
        for _ in range(2):
            folder = root / "r-1/trajectory.json"
            folder.unlink(missing_ok=True)
            folder.mkdir(parents=True)
            (folder / "x").write_text("user's")
            assert replace_file(root, "r-1", "trajectory.json", b"ours").read_bytes() == b"ours"
        assert (root / "r-1/trajectory.json.displaced-1/x").read_text() == "user's"
        assert (root / "r-1/trajectory.json.displaced-2/x").read_text() == "user's"
        assert not [name for name in tree(root) if ".server" in name]

    def test_content_may_be_written_piece_by_piece(self, root: Path) -> None:
        """A writer is called again where a directory had to make room."""

        def write(file: BinaryIO) -> None:
            for piece in (b"a", b"b"):
                file.write(piece)

        (root / "r-1/x").mkdir(parents=True)
        assert replace_file(root, "r-1", "x", write).read_bytes() == b"ab"

    @traps
    def test_removal_spares_what_is_behind_a_link(
        self, put: Trap, root: Path, outside: Path
    ) -> None:
        """The name goes, whatever it stood for, and nothing else."""
        (root / "r-1").mkdir(parents=True)
        put(root / "r-1/x", outside)
        remove_file(root, "r-1", "x")
        assert tree(root) == {"r-1"}
        assert tree(outside) == {"secret"}

    def test_removal_keeps_a_directory_under_another_name(self, root: Path) -> None:
        """User code's directory is not deleted; a name that is not there is fine."""
        remove_file(root, "r-1", "x")
        (root / "r-1/x/y").mkdir(parents=True)
        remove_file(root, "r-1", "x")
        assert tree(root / "r-1") == {"x.displaced-1", "x.displaced-1/y"}
        remove_file(root, "r-1", "x")

    @pytest.mark.parametrize("put", [*TRAPS, lambda path, _: path.mkdir()])
    def test_b13_b14_what_is_not_ours_is_displaced(
        self, put: Trap, root: Path, outside: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each under the next free name, with a warning; names that are not there are fine."""
        (root / "r-1").mkdir(parents=True)
        for number in (1, 2):
            put(root / "r-1/x", outside)
            displace_files(root, "r-1", ["x", "y"])
            assert f"it is x.displaced-{number} now" in caplog.text
        assert set(os.listdir(root / "r-1")) == {"x.displaced-1", "x.displaced-2"}
        assert tree(outside) == {"secret"}

    def test_b13_a_linked_folder_is_no_place_for_ours(self, root: Path, outside: Path) -> None:
        """The link goes, what is behind it stays; a folder that is not there is not made."""
        displace_files(root, "r-1", ["secret"])
        assert not root.exists()
        root.mkdir(parents=True)
        (root / "r-1").symlink_to(outside)
        displace_files(root, "r-1", ["secret"])
        assert not (root / "r-1").is_symlink()
        assert tree(outside) == {"secret"}

    def test_failure_is_an_os_error(self, root: Path) -> None:
        """A root that is no directory is the caller's to report."""
        root.parent.mkdir()
        root.write_text("")
        with pytest.raises(OSError, match="exists"):
            replace_file(root, "r-1", "trajectory.json", b"")


class TestTrees:
    """B13: collecting and copying what user code wrote."""

    @pytest.fixture
    def artifacts(self, root: Path, outside: Path) -> Path:
        """A tree of two honest files among traps."""
        folder = provision(root, "r-1")
        (folder / "logs").mkdir()
        (folder / "logs/run.log").write_text("log")
        (folder / "shot.png").write_bytes(b"png")
        for number, put in enumerate(TRAPS[:-1]):
            put(folder / f"logs/trap-{number}", outside)
        (folder / "hard").hardlink_to(outside / "secret")
        return folder

    def test_b13_only_regular_files_are_listed(
        self, artifacts: Path, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Traps are skipped with a log line each."""
        assert [str(path) for path in list_files(root, "r-1/artifacts")] == [
            "logs/run.log",
            "shot.png",
        ]
        for number in range(len(TRAPS) - 1):
            assert f"logs/trap-{number}" in caplog.text
        assert "'hard'" in caplog.text

    def test_b13_a_listing_tells_what_may_be_opened(self, artifacts: Path, root: Path) -> None:
        """All of the rollout's folder: what it is, how large, and whether it is safe."""
        replace_file(root, "r-1", "trajectory.json", b"{}")
        listed = {str(entry.path): entry for entry in list_artifacts(root, "r-1")}
        assert list(listed) == sorted(listed, key=lambda path: path.split("/"))
        safe = {path: (e.size, e.media_type) for path, e in listed.items() if e.is_safe}
        assert safe == {
            "trajectory.json": (2, "application/json"),
            "artifacts/shot.png": (3, "image/png"),
            "artifacts/logs/run.log": (3, "application/octet-stream"),
        }
        unsafe = {path for path, entry in listed.items() if not entry.is_safe}
        traps = {f"artifacts/logs/trap-{number}" for number in range(len(TRAPS) - 1)}
        assert unsafe == {"artifacts/hard", *traps}

    @traps
    def test_b13_reading_follows_no_link(self, put: Trap, root: Path, outside: Path) -> None:
        """A regular file is read; a trap on the way to it, or in its place, is an error."""
        replace_file(root, "r-1", "images/a.png", b"x")
        assert read_file(root, "r-1/images/a.png") == b"x"
        shutil.rmtree(root / "r-1/images")
        put(root / "r-1/images", outside)
        for path in ("r-1/images/secret", *(["r-1/images"] if put is not put_file else [])):
            with pytest.raises(OSError, match=r"."):
                read_file(root, path)
        with pytest.raises(ValueError, match="path segment"):
            read_file(root, "../outside/secret")

    def test_hard_links_within_the_tree_are_files(self, root: Path) -> None:
        """Two names of one file, both inside, are no way out."""
        folder = provision(root, "r-1")
        (folder / "a").write_text("x")
        (folder / "b").hardlink_to(folder / "a")
        assert [str(path) for path in list_files(root, "r-1/artifacts")] == ["a", "b"]

    @traps
    @pytest.mark.parametrize("where", ["r-1", "r-1/artifacts"])
    def test_b13_traps_on_the_way_to_the_tree(
        self, put: Trap, where: str, root: Path, outside: Path
    ) -> None:
        """The tree itself, or its parent, is no directory: nothing is listed."""
        trap = root / where
        trap.parent.mkdir(parents=True)
        put(trap, outside)
        (outside / "artifacts").mkdir()
        with pytest.raises(OSError, match="directory"):
            list_files(root, "r-1/artifacts")

    def test_very_deep_trees_end(self, root: Path) -> None:
        """What lies too deep is left out."""
        folder = provision(root, "r-1")
        deep = folder
        for _ in range(80):
            deep = deep / "d"
        deep.mkdir(parents=True)
        (deep / "x").write_text("")
        (folder / "y").write_text("")
        assert [str(path) for path in list_files(root, "r-1/artifacts")] == ["y"]

    def test_odd_names(self, root: Path) -> None:
        """User files may have any name that the file system takes."""
        folder = provision(root, "r-1")
        names = ["a\nb", ".server-x", "back\\slash", "\udcff"]
        for name in names:
            (folder / name).write_text("")
        copied = copy_tree(root, "r-1/artifacts", root / "out", "copy")
        assert {str(path) for path in copied} == set(names)

    def test_copy(self, artifacts: Path, root: Path, tmp_path: Path) -> None:
        """The copy holds the honest files only."""
        copied = copy_tree(root, "r-1/artifacts", tmp_path / "copies", "run/r-1")
        assert [str(path) for path in copied] == ["logs/run.log", "shot.png"]
        assert (tmp_path / "copies/run/r-1/logs/run.log").read_text() == "log"
        assert {"run/r-1/shot.png", "run/r-1/logs/run.log"} <= tree(tmp_path / "copies")

    @pytest.mark.parametrize("where", ["run", "run/r-1", "run/r-1/logs"])
    def test_b13_copy_refuses_links_in_the_destination(
        self, artifacts: Path, root: Path, outside: Path, tmp_path: Path, where: str
    ) -> None:
        """A link anywhere below the target's root stops the copy."""
        link = tmp_path / "copies" / where
        link.parent.mkdir(parents=True)
        link.symlink_to(outside)
        with pytest.raises(OSError, match="directory"):
            copy_tree(root, "r-1/artifacts", tmp_path / "copies", "run/r-1")
        assert tree(outside) == {"secret"}


class TestRaces:
    """B13: user code may still run while its tree is read and the server's files are written."""

    @pytest.fixture
    def flipping(self, root: Path, outside: Path) -> Generator[Path]:
        """A folder with a file, changing places with a link to a forbidden one all the time."""
        with flip(provision(root, "r-1") / "logs", outside):
            yield root

    def test_b13_copies_hold_no_outside_file(self, flipping: Path, tmp_path: Path) -> None:
        """Whatever the moment, what is copied comes from inside of the tree."""
        copied = 0
        while copied < 60:
            for path in copy_tree(flipping, "r-1/artifacts", tmp_path / "copies", str(copied)):
                assert (tmp_path / "copies" / str(copied) / path).read_text() != "secret"
                copied += 1

    def test_what_vanishes_takes_nothing_along(self, flipping: Path) -> None:
        """A file that stays is listed, whatever comes and goes beside it."""
        (flipping / "r-1" / "artifacts" / "steady").write_text("here")
        for _ in range(1000):
            assert "steady" in map(str, list_files(flipping, "r-1/artifacts"))
            listed = [str(artifact.path) for artifact in list_artifacts(flipping, "r-1")]
            assert "artifacts/steady" in listed

    def test_b13_writes_stay_inside(self, flipping: Path, outside: Path) -> None:
        """A write ends in the rollout's folder or is an OSError."""
        written = 0
        while written < 60:
            with suppress(OSError):
                replace_file(flipping, "r-1", "artifacts/logs/secret", b"honest")
                written += 1
            assert tree(outside) == {"secret"}
            assert (outside / "secret").read_text() == "secret"


@contextmanager
def flip(path: Path, outside: Path) -> Generator[None]:
    """Put in turn an honest folder and a link to `outside` in the place of `path`, in a thread."""
    stop = threading.Event()
    honest, link = outside.with_name("honest"), outside.with_name("link")

    def run() -> None:
        while not stop.is_set():
            honest.mkdir(exist_ok=True)
            (honest / "secret").write_text("honest")
            with suppress(FileExistsError):
                link.symlink_to(outside)
            for other in (honest, link):
                with suppress(OSError):
                    other.rename(path)
                    stop.wait(0.0005)
                    path.rename(other)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

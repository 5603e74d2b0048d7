"""What every kind of target yields, the edits that change it, and how its files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from specwatch.domain import Container, Value
from specwatch.errors import ConfigError, LaunchError
from specwatch.plainfile import opened

LARGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One file as it is and as it shall be; `before` None: it does not exist yet, `after` None: it shall be gone.

    `mode` counts for a file that does not exist yet; one that does keeps its mode and owner.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPatch:
    """A change of an object of the Kubernetes API: a JSON patch (RFC 6902) that first tests resourceVersion.

    `operations` makes the change and fails as a whole where somebody else has changed the object since; `undo` puts
    the old values back and tests that the new ones are still there. `resource_version` is that of the object read.
    """

    namespace: str
    kind: str
    name: str
    container: str
    operations: tuple[Mapping[str, Value], ...]
    undo: tuple[Mapping[str, Value], ...]
    resource_version: str


Edit = Rewrite | ApiPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Targeted:
    """One launch in a target: its name, the command as text or as tokens, and the environment it is started with.

    `path_maps` are the container paths that the target itself mounts from the host; `folder` is the directory that the
    server is started in, empty where the target does not tell. `container` is what the target makes around the command,
    None where it makes none.
    """

    name: str
    command: str | tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    path_maps: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    container: Container | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of this machine as they are, or as they would be once some edits are written.

    `units` are the directories of unit files, the one that wins first; empty: those of systemd.unit(5).
    """

    units: tuple[str, ...] = ()
    edits: Mapping[Path, bytes | None] = field(default_factory=dict)

    def text(self, path: Path) -> str:
        """The text of a file of at most a megabyte, byte for byte. Raises ConfigError with the reason."""
        if path in self.edits:
            content = self.edits[path]
            if content is None:
                raise ConfigError(f"{path}: no such file")
            return content.decode()
        return text_of(path)

    def is_file(self, path: Path) -> bool:
        """Whether there is such a file; a name that no file can have is none."""
        if path in self.edits:
            return self.edits[path] is not None
        try:
            return path.is_file()
        except OSError:
            return False

    def named(self, folder: Path, suffix: str) -> list[Path]:
        """The files of a directory whose name ends in `suffix`, in no order."""
        there = {path for path in folder.glob(f"*{suffix}") if path.is_file()}
        for path, content in self.edits.items():
            if path.parent == folder and path.name.endswith(suffix):
                (there.discard if content is None else there.add)(path)
        return list(there)

    def rewrite(self, path: Path, text: str | None, mode: int = 0o644) -> tuple[Rewrite, ...]:
        """The edit that gives a file its new text; none where it has it already. Raises LaunchError."""
        before = self.text(path).encode() if self.is_file(path) else None
        try:
            after = None if text is None else text.encode()
        except UnicodeEncodeError as error:
            raise LaunchError(f"{path}: a value holds what UTF-8 cannot: {error}") from error
        return () if before == after else (Rewrite(path=path, before=before, after=after, mode=mode),)

    def after(self, edits: tuple[Rewrite, ...]) -> Files:
        """The files once edits are written."""
        return replace(self, edits={**self.edits, **{edit.path: edit.after for edit in edits}})


DISK = Files()


def text_of(path: Path) -> str:
    """The text of a file of at most a megabyte, its line ends as they are. Raises ConfigError with the reason."""
    try:
        with opened(path) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ConfigError(f"{path}: larger than {LARGEST >> 20} MB, not a file of launches")
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}. Write that line in "
            "UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1), or give the command itself instead (--launch)"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def is_server(command: str) -> bool:
    """Whether a command starts an SGLang server."""
    return (
        "sglang.launch_server" in command
        or "sglang serve" in " ".join(command.split())
        or "launch_server.py" in command
    )

"""A container of a Kubernetes manifest: command, args, env and hostPath mounts of every pod template in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specwatch.domain import Container as Around
from specwatch.errors import ConfigError, LaunchError
from specwatch.launch.layers import Layer, Part
from specwatch.launch.rewriting import Wanted
from specwatch.launch.targets.base import DISK, Files, Rewrite, Targeted, is_server
from specwatch.launch.targets.yamlwords import Kept, holder, write
from specwatch.launch.yamltext import Path_, YamlText

_ROLES = {"leaderTemplate": "leader", "workerTemplate": "worker"}
_REFERENCE = re.compile(r"\$\$|\$\(([^()]+)\)")


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod template, where it stands, and the pod around it."""

    at: Path_
    table: Mapping[str, Any]
    pod: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.table.get("name", ""))

    @property
    def role(self) -> str:
        """Of a LeaderWorkerSet: `leader` or `worker`; empty for any other kind."""
        return next((role for template, role in _ROLES.items() if template in self.at), "")

    def is_named(self, wanted: str) -> bool:
        """Whether a target's last part means this one: nothing, its name, or `leader/NAME` and `worker/NAME`."""
        return wanted in ("", self.name) or (bool(self.role) and wanted == f"{self.role}/{self.name}")

    def shown(self, every: Sequence[Container]) -> str:
        """Its name, with the role where another of `every` has the same name."""
        same = sum(one.name == self.name for one in every) > 1
        return f"{self.role}/{self.name}" if same and self.role else self.name

    @property
    def env(self) -> dict[str, str]:
        """The variables whose values are written out, references to earlier ones filled in."""
        env: dict[str, str] = {}
        for entry in entries(self.table, "env"):
            name, value = str(entry.get("name")), entry.get("value")
            env.pop(name, None)
            if "valueFrom" not in entry:
                env[name] = filled("" if value is None else str(value), env).value
        return env

    @property
    def words(self) -> tuple[str, ...]:
        """What the container starts, references to its variables filled in by the kubelet."""
        env = self.env
        raw = [str(word) for key in ("command", "args") for word in self.table.get(key) or []]
        return tuple(filled(word, env).value for word in raw)

    def targeted(self, name: str) -> Targeted:
        """The container as a launch."""
        return Targeted(
            name=name,
            command=self.words,
            env=self.env,
            path_maps=tuple(_mounts(self.table, self.pod)),
            folder=str(self.table.get("workingDir") or ""),
            container=_around(self.table, self.pod),
        )


def filled(text: str, env: Mapping[str, str]) -> Layer:
    """`$(NAME)` as the kubelet fills it in; `$$` is a dollar, and a name that is not set stays as it is written."""
    parts: list[Part] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        if found[0] != "$$" and found[1] not in env:
            continue
        if found.start() > at:
            parts.append(Part(at, found.start(), text[at : found.start()]))
        value = "$" if found[0] == "$$" else env[found[1]]
        parts.append(Part(found.start(), found.end(), value, whole=True, name=found[1] or ""))
        at = found.end()
    if at < len(text):
        parts.append(Part(at, len(text), text[at:]))
    return Layer(tuple(parts), lambda new, _: new.replace("$", "$$"))


def containers(value: Any, at: Path_, depth: int = 0) -> Iterator[Container]:
    """Every container, however deep a kind nests its pods (Deployment, CronJob, LeaderWorkerSet, List)."""
    if depth > 12:
        return
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            for key in ("initContainers", "containers"):
                for number, entry in enumerate(value.get(key) or []):
                    if isinstance(entry, dict):
                        yield Container((*at, key, number), entry, value)
            return
        for key, inner in value.items():
            yield from containers(inner, (*at, key), depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from containers(inner, (*at, number), depth + 1)


def entries(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings of a list, nothing where there is none."""
    value = table.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _around(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Around:
    """What the fixes have to know of the pod (kubernetes.io, Volumes, emptyDir; PodSpec: hostIPC, hostNetwork)."""
    named = [
        str(mount.get("name"))
        for mount in entries(container, "volumeMounts")
        if str(mount.get("mountPath", "")).rstrip("/") == "/dev/shm"  # noqa: S108 - compared, not written
    ]
    memory = [
        empty
        for volume in entries(pod, "volumes")
        if volume.get("name") in named and isinstance(empty := volume.get("emptyDir"), dict)
    ]
    sizes = [str(one["sizeLimit"]) for one in memory if one.get("medium") == "Memory" and one.get("sizeLimit")]
    options = {"sizeLimit": sizes[0]} if sizes else {}
    if pod.get("hostIPC") is True:
        options["hostIPC"] = "true"
    return Around(kind="kubernetes", options=options, mounted=bool(named), host_network=pod.get("hostNetwork") is True)


def _mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hosts = {
        v.get("name"): v["hostPath"].get("path") for v in entries(pod, "volumes") if isinstance(v.get("hostPath"), dict)
    }
    for mount in entries(container, "volumeMounts"):
        host = hosts.get(mount.get("name"))
        if host and str(mount.get("mountPath", "")).startswith("/"):
            yield str(mount["mountPath"]), f"{host}/{mount.get('subPath', '')}".rstrip("/")


def read(spec: str, files: Files = DISK) -> Iterator[Targeted]:
    """The containers of a manifest that start SGLang, or the one named after `#`."""
    file = spec.partition("#")[0]
    doc = YamlText(files.text(Path(file)), file)
    for container, name in _wanted(spec, doc):
        yield container.targeted(name)


def _wanted(spec: str, doc: YamlText) -> Iterator[tuple[Container, str]]:
    file, _, wanted = spec.partition("#")
    every = [c for n, value in enumerate(doc.data) for c in containers(value, (n,))]
    for container in servers(every, wanted, file):
        yield container, f"k8s:{file}#{container.shown(every)}"


def servers(every: Sequence[Container], wanted: str, where: str) -> list[Container]:
    """Those that start SGLang, and that a target's last part means. Raises ConfigError where it means none."""
    found = [container for container in every if container.is_named(wanted)]
    if wanted and not found:
        there = ", ".join(dict.fromkeys(container.shown(every) for container in every))
        raise ConfigError(f"{where}: no container '{wanted}'; there are {there or 'none'}")
    return [container for container in found if is_server(" ".join(container.words))]


# Changes


def plan(spec: str, ask: Callable[[Targeted], Wanted], files: Files) -> tuple[Rewrite, ...]:
    """The edits of a manifest. Raises LaunchError."""
    path = Path(spec.partition("#")[0])
    doc = YamlText(files.text(path), str(path))
    container, name = next(iter(_wanted(spec, doc)))
    want = ask(container.targeted(name))
    refuse_options(want)
    if isinstance(want.command, tuple):
        found = (holder(doc, (*container.at, key)) for key in ("command", "args"))
        env = container.env
        doc = write(
            doc,
            [one for one in found if one is not None],
            want.command,
            lambda text: filled(text, env),
            Kept(lambda _: False, {}),
        )
    for name, value in want.variables.items():
        doc = _variable(doc, container.at, name, value)
    return files.rewrite(path, doc.text)


def refuse_options(want: Wanted) -> None:
    """What a container of Kubernetes has no option for. Raises LaunchError with what to do instead."""
    if "--shm-size" in want.options:
        size = want.options["--shm-size"]
        raise LaunchError(
            f"the shared memory of a pod is a volume: mount an emptyDir with `medium: Memory` and `sizeLimit: {size}` "
            "at /dev/shm by hand, and see that the container's memory limit leaves room for it"
        )
    if want.options:
        raise LaunchError("--ipc has no option in a container: set `hostIPC: true` in the pod by hand")


def _variable(doc: YamlText, at: Path_, name: str, value: str | None) -> YamlText:
    given = doc.value((*at, "env")) or []
    numbers = [n for n, entry in enumerate(given) if isinstance(entry, dict) and entry.get("name") == name]
    refuse_references(name, [given[n] for n in numbers], doc.where)
    raw = value.replace("$", "$$") if value is not None else None
    if raw is None:
        for number in reversed(numbers):
            doc = doc.delete((*at, "env", number))
        return doc
    if numbers and "value" in given[numbers[-1]]:
        return doc.set((*at, "env", numbers[-1], "value"), raw)
    if numbers:
        return doc.put((*at, "env", numbers[-1]), "value", raw)
    if given:
        return doc.append_item((*at, "env"), {"name": name, "value": raw})
    behind = "args" if doc.node((*at, "args")) is not None else "command"
    return doc.put(at, "env", [{"name": name, "value": raw}], behind)


def refuse_references(name: str, given: list[Any], where: str) -> None:
    """Leave a variable alone whose value Kubernetes fetches. Raises LaunchError."""
    if any("valueFrom" in entry for entry in given):
        raise LaunchError(f"{where}: {name} comes from a secret, a config map or a field (valueFrom); change it there")

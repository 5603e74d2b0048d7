"""Changes in what a server shares with others: its ports, its container's memory, its GPUs, its patience."""

from __future__ import annotations

from collections.abc import Iterator

from specwatch.checks.subject import Subject, Unreadable
from specwatch.domain import Applicability, Container, Value
from specwatch.errors import ModelError
from specwatch.fixes.proposal import Proposal, Request, edited
from specwatch.launch.command import container_setting, removal, setting
from specwatch.lazy import compiled
from specwatch.models.base import Config

SHARED_MEMORY = "32g"
POD_MEMORY = "32Gi"
PATIENCE = 600  # seconds
KV = "num_key_value_heads"
_HOST_NETWORK = compiled(r"--net(?:work)?[= ]host\b")


def more_shared_memory(ask: Request) -> Iterator[Proposal]:
    """Give the container the host's /dev/shm, or a larger one of its own: `docker run`, a Compose service, a pod."""
    launch = ask.launch
    if launch is None:
        return
    if launch.container is not None and launch.container.kind == "kubernetes":
        yield from _of_pod(launch.container)
        return
    host = container_setting(launch, "--ipc", "host")
    if host is None or (host.old or "").startswith(("host", "service:", "container:")):
        return
    if launch.container is not None and launch.container.mounted:
        return  # a volume stands at /dev/shm, and neither option has a say in it
    sized = container_setting(launch, "--shm-size", SHARED_MEMORY)
    why = "docker gives a container 64 MB of /dev/shm, and the ranks exchange data through it"
    if sized is not None and sized.old is None:
        says = f"{why}: set `shm_size: {SHARED_MEMORY}` of the service" if sized.around else why
        yield edited(launch, (sized,), says, ceiling=Applicability.REVIEW)
    says = "`ipc: host` of the service uses the host's own" if host.around else "the host's own is used"
    yield edited(launch, (host,), f"{why}: {says}", ceiling=Applicability.REVIEW)


def _of_pod(pod: Container) -> Iterator[Proposal]:
    """A volume and how much of the pod's memory it may take are a person's decision: it is said, never written."""
    size = pod.options.get("sizeLimit")
    if pod.options.get("hostIPC") == "true" or (pod.mounted and not size):
        return
    room = "and see that the container's memory limit leaves room for it"
    if size:
        why = f"the memory volume at /dev/shm has a sizeLimit of {size}, and the ranks exchange data through it"
        do = f"raise it, as to {POD_MEMORY}, {room}"
    else:
        why = "a container gets 64 MB of /dev/shm, and the ranks exchange data through it"
        do = (
            f"add `volumes: [{{name: dshm, emptyDir: {{medium: Memory, sizeLimit: {POD_MEMORY}}}}}]` to the pod and "
            f"`volumeMounts: [{{name: dshm, mountPath: /dev/shm}}]` to the container, {room}"
        )
    yield Proposal(changes=(), why=f"{why}: {do}", ceiling=Applicability.MANUAL, because="that is for a person")


def next_port(ask: Request) -> Iterator[Proposal]:
    """Listen on the next port. Whether that one is free no log tells, and clients must follow."""
    launch = ask.launch
    if launch is None:
        return
    around = launch.container
    own = not around.host_network if around else not _HOST_NETWORK.search(launch.text)
    if own and (around or container_setting(launch, "--ipc", "host")):
        return  # in a network of its own, where the published port would have to change as well
    now = launch.value("port", 30000)
    if not isinstance(now, int) or not 0 < now < 65535:
        return
    why = f"port {now} is taken; whether {now + 1} is free is not known, and clients and probes must follow"
    yield edited(launch, (setting(launch, "--port", now + 1),), why, ceiling=Applicability.REVIEW)


def longer_watchdog(ask: Request) -> Iterator[Proposal]:
    """Wait longer for a step that is slow rather than stuck."""
    launch = ask.launch
    try:
        told = float(ask.captures.get("seconds", ""))
    except ValueError:
        return
    if launch is None:
        return
    wanted = max(PATIENCE, int(told * 2))
    why = f"only if a step may rightly take longer than {told:g} s (first compilation, slow disk); a hang stays one"
    yield edited(launch, (setting(launch, "--watchdog-timeout", wanted),), why, ceiling=Applicability.REVIEW)


def without_attention_dp(ask: Request) -> Iterator[Proposal]:
    """Split attention over the GPUs again instead of copying it to each."""
    launch = ask.launch
    if launch is None or not Subject(launch, ask.models).attention_dp():
        return
    flags = ("--enable-dp-attention", "--dp-size", "--attn-dp-size", "--enable-dp-lm-head")
    changes = removal(launch, flags)
    if changes:
        why = "without attention data parallelism each GPU holds a part of the attention weights, not all of them"
        yield edited(launch, changes, why, ceiling=Applicability.REVIEW)


def dividing_tp_size(ask: Request) -> Iterator[Proposal]:
    """The largest smaller --tp-size that divides every number of heads in the configuration, and the number named."""
    launch = ask.launch
    if launch is None:
        return
    subject = Subject(launch, ask.models)
    now = subject.number("tp_size")
    if now is None or now < 2:
        return
    named = ask.captures.get("numerator", "")
    try:
        heads = _heads(subject)
    except (ModelError, Unreadable):
        return
    counts = [*heads, *([int(named)] if named.isdigit() and int(named) in heads else [])]
    if not counts or (named.isdigit() and int(named) not in heads):
        return  # the number in the message is none that the configuration explains
    wanted = next(size for size in range(now - 1, 0, -1) if _divides(size, counts, _of(subject.target().text, KV)))
    why = f"{wanted} divides {', '.join(str(count) for count in dict.fromkeys(counts))} heads; fewer GPUs must hold it"
    yield edited(launch, (setting(launch, "--tp-size", wanted),), why, ceiling=Applicability.REVIEW)


def _divides(size: int, counts: list[int], kv_heads: Value) -> bool:
    """Whether the heads split evenly; key-value heads may also be copied, a whole number of times."""
    if any(count % size for count in counts):
        return False
    return not isinstance(kv_heads, int) or kv_heads < 1 or kv_heads % size == 0 or size % kv_heads == 0


def _heads(subject: Subject) -> list[int]:
    """The numbers of attention heads that are split over the ranks: the language model's and the vision tower's."""
    config = subject.target()
    parts: list[Value] = [_of(config.text, "num_attention_heads"), _of(config.top, "num_attention_heads")]
    for section in ("vision_config", "llm_config", "text_config", "language_config"):
        inner = config.top.get(section)
        if isinstance(inner, dict):
            parts += [inner.get("num_attention_heads"), inner.get("num_heads")]
    return list(dict.fromkeys(part for part in parts if isinstance(part, int) and part > 0))


def _of(config: Config, key: str) -> Value:
    return config.get(key)

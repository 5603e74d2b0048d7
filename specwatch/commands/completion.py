"""`specwatch --install-completion`: click's own completion script, written where the user's shell looks for it."""

from __future__ import annotations

import os
from pathlib import Path

from specwatch.commands.contract import Exit
from specwatch.errors import ConfigError

# where each shell loads completions from (bash-completion and fish documentation; zsh has no such place of its own)
PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/specwatch"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_specwatch"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/specwatch.fish"),
}


def install() -> Exit:
    """Write the script for the shell that $SHELL names and say where. Raises ConfigError for another shell."""
    from click.shell_completion import get_completion_class

    from specwatch.app import app

    shell = Path(os.environ.get("SHELL", "")).name
    maker = get_completion_class(shell)
    if maker is None or shell not in PLACES:
        raise ConfigError(f"--install-completion: $SHELL is {shell!r}; expected one of {', '.join(PLACES)}")
    variable, default, rest = PLACES[shell]
    path = Path(os.environ.get(variable) or Path.home() / default) / rest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(maker(app, {}, "specwatch", "_SPECWATCH_COMPLETE").source(), encoding="utf-8")
    print(f"{path}: written; open a new shell" + (", with its folder in $fpath" if shell == "zsh" else ""))
    return Exit.CLEAN

"""The command line: arguments in, exit code out. What a command does is in `specwatch.commands`."""

from __future__ import annotations

import sys

from specwatch import __version__

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import: `--version` has to be fast
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command that sys.argv names, and exit with its code."""
    if sys.argv[1:] == ["--version"]:  # before anything else is imported: scripts ask this often
        print(f"specwatch {__version__}")
        sys.exit(0)
    from specwatch.app import app

    app(prog_name="specwatch")
    sys.exit(0)


if __name__ == "__main__":
    main()

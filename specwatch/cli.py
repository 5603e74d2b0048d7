"""The command line: arguments in, exit code out. What a command does is in `specwatch.commands`."""

from __future__ import annotations

import sys
from typing import NoReturn

from specwatch import __version__


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

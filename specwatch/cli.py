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
    import gc

    if sys.argv[1:2] != ["watch"]:  # the daemon lives long enough to leave garbage
        gc.set_threshold(200_000)  # imports make many objects and no garbage: looking for some is a tenth of a start
    from specwatch.app import app

    try:
        app(prog_name="specwatch")
    finally:
        gc.freeze()  # the interpreter looks through all objects as it ends, which takes another tenth and frees nothing
    sys.exit(0)


if __name__ == "__main__":
    main()

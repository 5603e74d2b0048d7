"""`python -m sglang.launch_server …`, as the real one is started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sglang_standin import main

if __name__ == "__main__":
    main(sys.argv[1:])

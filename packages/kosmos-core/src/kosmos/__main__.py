"""``python -m kosmos``."""

from __future__ import annotations

import sys

from kosmos.cli import main

if __name__ == "__main__":
    sys.exit(main())

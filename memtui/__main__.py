"""``python -m memtui``: the same as ``memtui``, where no script is installed."""

import sys

from memtui.cli import main

sys.exit(main())

"""``python -m memtui``: the same as ``memtui``, where no script is installed."""

import sys

from memtui.cli.main import main

sys.exit(main())

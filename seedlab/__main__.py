"""``python -m seedlab`` is the ``seedlab`` command."""

import sys

from seedlab.cli.main import main

sys.exit(main())

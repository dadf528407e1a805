"""`python -m ifef`, the same as `ifef`."""

import sys

from ifef.cli import main

sys.exit(main())

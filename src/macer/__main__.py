"""`python -m macer` is the command `macer`."""

import sys

from macer.cli import main

sys.exit(main())

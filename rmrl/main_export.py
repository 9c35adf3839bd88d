"""`python -m rmrl.main_export` is `rmrl export`."""

import sys

from rmrl.cli import entry

main = entry("export")

if __name__ == "__main__":
    sys.exit(main())

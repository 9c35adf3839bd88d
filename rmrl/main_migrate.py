"""`python -m rmrl.main_migrate` is `rmrl migrate`."""

import sys

from rmrl.cli import entry

main = entry("migrate")

if __name__ == "__main__":
    sys.exit(main())

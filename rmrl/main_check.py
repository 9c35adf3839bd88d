"""`python -m rmrl.main_check` is `rmrl check`."""

import sys

from rmrl.cli import entry

main = entry("check")

if __name__ == "__main__":
    sys.exit(main())

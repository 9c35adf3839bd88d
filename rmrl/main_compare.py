"""`python -m rmrl.main_compare` is `rmrl compare`."""

import sys

from rmrl.cli import entry

main = entry("compare")

if __name__ == "__main__":
    sys.exit(main())

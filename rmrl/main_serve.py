"""`python -m rmrl.main_serve` is `rmrl serve`."""

import sys

from rmrl.cli import entry

main = entry("serve")

if __name__ == "__main__":
    sys.exit(main())

"""`python -m rmrl.main_show` is `rmrl show`."""

import sys

from rmrl.cli import entry

main = entry("show")

if __name__ == "__main__":
    sys.exit(main())

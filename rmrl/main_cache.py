"""`python -m rmrl.main_cache` is `rmrl cache`."""

import sys

from rmrl.cli import entry

main = entry("cache")

if __name__ == "__main__":
    sys.exit(main())

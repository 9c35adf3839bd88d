"""`python -m rmrl.main_eval` is `rmrl eval`."""

import sys

from rmrl.cli import entry

main = entry("eval")

if __name__ == "__main__":
    sys.exit(main())

"""`python -m rmrl.main_score` is `rmrl score`."""

import sys

from rmrl.cli import entry

main = entry("score")

if __name__ == "__main__":
    sys.exit(main())

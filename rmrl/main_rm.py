"""`python -m rmrl.main_rm` is `rmrl train-rm`."""

import sys

from rmrl.cli import entry

main = entry("train-rm")

if __name__ == "__main__":
    sys.exit(main())

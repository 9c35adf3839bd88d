"""`python -m rmrl.main_ppo` is `rmrl train`."""

import sys

from rmrl.cli import entry

main = entry("train")

if __name__ == "__main__":
    sys.exit(main())

"""An import that sets a variable, as vLLM's does, for tests/test_forks.py."""

import os

os.environ["SET_BY_AN_IMPORT"] = "yes"

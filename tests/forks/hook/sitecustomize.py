"""Hands a program to a fork server. Python imports this module, wherever it lies on PYTHONPATH,
before the program; so it imports nothing that a program need not have."""

import os
import sys

if "RMRL_FORKS" in os.environ or "RMRL_FORK_SERVER" in os.environ:
    sys.path.insert(0, os.path.dirname(__file__))
    import rmrl_fork_client

    del sys.path[0]
    rmrl_fork_client.hand_over()

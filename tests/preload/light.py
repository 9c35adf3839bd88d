"""An import that takes no time, for tests/test_fork_server.py."""

from tests.fork_server import preloaded

STATE = preloaded("numpy", "json.tool")

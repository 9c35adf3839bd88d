"""An import that fails, for tests/test_fork_server.py."""

from tests.fork_server import preloaded

STATE = preloaded("json", "rmrl.no_such_module")

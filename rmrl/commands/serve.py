"""`rmrl serve`: an HTTP server for rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmrl.commands.command import FUNCTIONS, REWARD_KEYS, KeyCommand
from rmrl.config.schema import ServeConfig

if TYPE_CHECKING:
    from rmrl.serve.checked import CheckedServer


class Serve(KeyCommand[ServeConfig, "CheckedServer", None]):
    """Answer until a signal comes, and finish what was accepted until then."""

    examples = ("python -m rmrl.main_serve reward.models=[gsm8k] serve.port=8765",)
    root = ServeConfig
    checking = "the configuration and the rewards"
    keys = REWARD_KEYS | {
        "serve.host": "address to listen on",
        "serve.port": "port to listen on",
        "serve.token_env": "environment variable with the bearer token",
        "serve.wires": "interfaces to offer",
        "serve.max_rows": "rows of a request",
        "trainer.device": "auto, cuda or cpu",
    }

    def check(self, settings: ServeConfig) -> CheckedServer:
        """Check without opening a socket."""
        from rmrl.serve.check_serve import check_serve

        return check_serve(settings, shipped_functions=FUNCTIONS)

    def run(self, checked: CheckedServer) -> None:
        """Listen, start engines and answer until a signal comes."""
        from rmrl.serve.run_server import run_server  # FastAPI and uvicorn, which `check` asks for

        run_server(checked)

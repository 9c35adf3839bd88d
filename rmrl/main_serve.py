"""Entry of the reward server: the rewards of `rmrl score` behind HTTP.

python -m rmrl.main_serve reward.models=[gsm8k] serve.port=8765
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rmrl.config.load import run_command, shipped
from rmrl.config.schema import ServeConfig
from rmrl.exit import ended_by_signals, ends_with_its_reader, exit_code
from rmrl.logs import begin_run
from rmrl.usage import asks_for_help, short_help

_log = logging.getLogger("rmrl.main_serve")  # under python -m its __name__ is another

KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
    "reward": "a file with the whole section: reward=path/to/section.yaml",
    "serve.host": "address to listen on",
    "serve.port": "port to listen on",
    "serve.token_env": "environment variable with the bearer token",
    "serve.wires": "interfaces to offer",
    "serve.max_rows": "rows of a request",
    "trainer.device": "auto, cuda or cpu",
}
"""Keys that people use."""


def run(config: ServeConfig) -> None:
    """Check everything cheap, then listen, start engines and answer until a signal comes."""
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration and the rewards")
    from rmrl.serve.check import check_serve

    checked = check_serve(config, shipped_functions=shipped("reward_functions"))

    from rmrl.serve.run import run_server  # it imports FastAPI and uvicorn

    run_server(checked)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 ended by a signal."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if asks_for_help(given):
        print(short_help("serve", __doc__, KEYS))
        return 0
    with exit_code() as code, ended_by_signals():
        run_command(given, run, ServeConfig)
    return code.value


if __name__ == "__main__":
    sys.exit(main())

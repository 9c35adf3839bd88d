"""The order of ranks is the one in which megatron-core makes its groups."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from tests.backends.megatron.test_sizes import sizes

LAYOUTS = [(2, 2, 3, 2), (3, 1, 2, 2), (1, 2, 2, 3), (4, 2, 1, 1)]


def test_the_order_of_ranks_is_that_of_megatron_core():
    for (tp, cp, dp, pp), groups in zip(LAYOUTS, _megatron_groups(), strict=True):
        made = sizes(tp * cp * dp * pp, tp=tp, cp=cp, pp=pp)
        for axis, token in (
            ("tensor", "tp"),
            ("context", "cp"),
            ("data", "dp"),
            ("pipeline", "pp"),
        ):
            assert groups[token]
            for group in groups[
                token
            ]:  # its ranks stand in the order of this axis and are alike along the others
                places = [made.coordinates(rank) for rank in group]
                assert [getattr(place, axis) for place in places] == list(
                    range(getattr(made, axis))
                )
                assert len({replace(place, **{axis: 0}) for place in places}) == 1


def _megatron_groups() -> list[dict[str, list[list[int]]]]:
    """Groups of ranks as megatron-core makes them; asked in another process, because this one may
    not want to import it as it is."""
    code = (
        "import json\nfrom megatron.core.parallel_state import RankGenerator\n"
        "def groups(tp, cp, dp, pp):\n"
        "    made = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order='tp-cp-ep-dp-pp')\n"
        "    return {axis: made.get_ranks(axis) for axis in ('tp', 'cp', 'dp', 'pp')}\n"
        f"print(json.dumps([groups(*layout) for layout in {LAYOUTS}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout.splitlines()[-1])

# SPDX-License-Identifier: Apache-2.0
"""What docs/vllm.md and its Grafana board name is what a server's /metrics shows."""
import json
import pathlib
import re
import sys

import attnjit

OF_VLLM = {"vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"}


def main(root):
    with attnjit.Service(no_disk_cache=1) as service:
        shown = set(re.findall(r"^# TYPE (\w+)", service.prometheus(), re.MULTILINE))
    source = (root / "python/attnjit/integrations/_environment.py").read_text(encoding="utf-8")
    shown |= set(re.findall(r"# TYPE (attnjit_\w+)", source))
    board = json.loads((root / "docs/vllm-grafana.json").read_text(encoding="utf-8"))
    expressions = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    asked = set(re.findall(r"(?:attnjit_|vllm:)\w+", " ".join(expressions)))
    assert asked - shown == OF_VLLM, asked - shown
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    variables = {f"${{{one['name']}}}" for one in board["templating"]["list"]}
    assert {panel["datasource"]["uid"] for panel in board["panels"]} <= variables
    for expression in expressions:
        assert expression.count("(") == expression.count(")") and "$job" in expression, expression
    page = (root / "docs/vllm.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(attnjit_\w+)", page))
    assert told and told <= shown, told - shown


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

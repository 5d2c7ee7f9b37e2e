# SPDX-License-Identifier: Apache-2.0
"""Steps of servers' traffic: what one step of a scheduler holds of each request, and a model's heads.

A step is drawn from a scenario and a seed, and is the same with every Python: all numbers come from
`random.Random.random`. Needs no torch. What the scenarios are like:

  chat     decodes of many chats, and in every third step the prompts that arrived meanwhile
  rag      few requests over documents of 1k to 64k keys, in half of the steps a chunk of a new one
  agent    one to four sessions of 40k to 200k keys beside chats; a tool's answer is rows over all of
           a session's keys
  chunked  a budget of rows: each chat has one, what is left goes to the prompts that wait
  drafts   each chat verifies its own number of drafts: one to eight rows
  mla      absorbed MLA: one to four rows of every request, the same for all
  d256     decodes of heads of 256 columns, with windows and without, sometimes beside a prompt
"""
import dataclasses
import math
import random
from typing import List, Optional, Tuple

# Query heads, KV heads and depth of models as one GPU has them, and how often each comes.
MODELS = (
    (((32, 8, 128), 4), ((28, 4, 128), 2), ((40, 8, 128), 2), ((64, 8, 128), 2), ((64, 4, 128), 1), ((96, 8, 128), 1),
     ((12, 2, 128), 1), ((16, 16, 128), 1), ((64, 8, 64), 3), ((32, 8, 64), 1)))
DEEP_MODELS = (((8, 4, 256), 1), ((16, 8, 256), 1), ((8, 1, 256), 1), ((16, 2, 256), 1))
PAGES = ((16, 5), (64, 3), (32, 1), (1, 1))  # rows of a page
# Elements of K that a step has at most: a GPU of 80 GB holds two page tables of K and V.
MOST_ELEMENTS = 1_200_000_000


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of one layer; `requests`: the rows of each in this step, and its keys with them."""

    scenario: str
    seed: int
    requests: Tuple[Tuple[int, int], ...]
    heads: int
    kv_heads: int
    depth: int
    page: int
    window: Optional[int] = None
    sink: bool = False
    mla: bool = False

    @property
    def rows(self) -> List[int]:
        return [rows for rows, _ in self.requests]

    @property
    def keys(self) -> List[int]:
        return [keys for _, keys in self.requests]

    @property
    def uniform(self) -> bool:
        """Whether a server calls it without offsets of rows: a few of each request, as many of all."""
        return min(self.rows) == max(self.rows) <= 8

    @property
    def name(self) -> str:
        rows = f"{min(self.rows)}" + (f"-{max(self.rows)}" if min(self.rows) < max(self.rows) else "")
        words = [self.scenario, str(self.seed), f"{self.heads}/{self.kv_heads}", f"d{self.depth}", f"p{self.page}"]
        words += [f"w{self.window}"] * bool(self.window) + ["sink"] * self.sink
        return ".".join([*words, f"b{len(self.requests)}", f"q{rows}"])

    def spec(self) -> dict:
        """attnjit's spec of such a call, without anything that is chosen for speed."""
        spec = {"arch": "sm_90a", "num_q_heads": self.heads, "group": self.heads // self.kv_heads, "qk_depth": self.depth,
                "page_size": self.page, "mask": "causal"}
        if self.mla:
            return {**spec, "mla": "decode", "ov_depth": 512, **self.rows_of_spec()}
        if self.window:
            spec["mask"] = {"kind": "sliding_window", "window": self.window, "constant": True}
        return {**spec, **({"sink": True} if self.sink else {}), **self.rows_of_spec()}

    def rows_of_spec(self) -> dict:
        """As paged_attention() and mla_attention() name the rows of a call without offsets."""
        if not self.uniform:
            return {"ragged": True}
        return {"max_q_len": next(n for n in (1, 2, 4, 8) if n >= max(self.rows)), "num_partitions": 0}


class Draw:
    """Numbers of one seed."""

    def __init__(self, seed: str) -> None:
        self.next = random.Random(seed).random

    def chance(self, share: float) -> bool:
        return self.next() < share

    def whole(self, low: int, high: int) -> int:
        """Of low to high, all as likely."""
        return low + int(self.next() * (high - low + 1))

    def spread(self, low: int, high: int) -> int:
        """Of low to high, each octave as likely."""
        return int(low * (high / low) ** self.next())

    def tailed(self, median: float, sigma: float, low: int, high: int) -> int:
        """Log-normal, cut at both ends."""
        radius, angle = math.sqrt(-2 * math.log(1 - self.next())), 2 * math.pi * self.next()
        return int(min(high, max(low, median * math.exp(sigma * radius * math.cos(angle)))))

    def one_of(self, choices):
        """Of (choice, weight) pairs."""
        at = self.next() * sum(weight for _, weight in choices)
        for choice, weight in choices:
            at -= weight
            if at < 0:
                break
        return choice

    def shuffled(self, items) -> list:
        return [item for _, item in sorted(((self.next(), i), item) for i, item in enumerate(items))]


def prompt_of(draw: Draw) -> int:
    """The rows of a chat's prompt, what was said before among them: one of fifty is over 6k."""
    return draw.tailed(500, 1.25, 8, 32000)


def decode_of(draw: Draw) -> Tuple[int, int]:
    """A chat that has written a part of its answer. Long answers are met more often."""
    answer = max(draw.tailed(220, 1.0, 1, 8000), draw.tailed(220, 1.0, 1, 8000))
    return 1, prompt_of(draw) + draw.whole(1, answer)


def chunks_of(budget: int, prompts: List[int], begins: List[int]) -> List[Tuple[int, int]]:
    """Rows of waiting prompts, of which some keys are computed, until the budget is used up."""
    requests = []
    for length, begin in zip(prompts, begins):
        rows = min(budget, length - begin)
        if rows > 0:
            requests.append((rows, begin + rows))
        budget -= max(rows, 0)
    return requests


def chunk_of(draw: Draw, budget: int, low: int, high: int) -> Tuple[int, int]:
    """A chunk of a long prompt, whose chunks before it were as large."""
    length = draw.spread(low, high)
    return chunks_of(budget, [length], [draw.whole(0, (length - 1) // budget) * budget])[0]


def chat(draw: Draw):
    requests = [decode_of(draw) for _ in range(draw.spread(8, 256))]
    if draw.chance(1 / 3):
        prompts = [prompt_of(draw) for _ in range(draw.whole(1, 4))]
        requests += chunks_of(8192, prompts, [0] * len(prompts))
    return requests


def rag(draw: Draw):
    requests = [(1, draw.spread(1000, 64000)) for _ in range(draw.whole(4, 48))]
    return requests + ([chunk_of(draw, draw.one_of(((2048, 2), (4096, 1), (8192, 1))), 3000, 64000)]
                       if draw.chance(1 / 2) else [])


def agent(draw: Draw):
    requests = [(1, draw.spread(40000, 200000)) for _ in range(draw.whole(1, 4))]
    if draw.chance(2 / 5):
        rows = draw.spread(64, 4096)
        requests.append((rows, rows + draw.spread(20000, 160000)))
    return requests + [decode_of(draw) for _ in range(draw.whole(16, 96))]


def chunked(draw: Draw):
    decodes = [decode_of(draw) for _ in range(draw.whole(30, 200))]
    budget = draw.one_of(((512, 2), (1024, 1), (2048, 2)))
    first = draw.spread(600, 32000)
    begin = draw.whole(0, (first - 1) // budget) * budget
    return decodes + chunks_of(budget - len(decodes), [first, prompt_of(draw)], [begin, 0])


def drafts(draw: Draw):
    most = draw.one_of(((2, 1), (4, 1), (8, 1)))
    requests = []
    for _ in range(draw.spread(8, 96)):
        rows, keys = draw.whole(1, most), draw.one_of(((decode_of(draw)[1], 1), (draw.spread(100, 32000), 1)))
        requests.append((rows, max(rows, keys)))
    return requests


def mla(draw: Draw):
    rows = draw.one_of(((1, 2), (2, 1), (3, 1), (4, 1)))
    return [(rows, draw.spread(100, 64000)) for _ in range(draw.spread(1, 128))]


def d256(draw: Draw):
    requests = [(1, draw.spread(100, 32000)) for _ in range(draw.spread(2, 96))]
    return requests + ([chunk_of(draw, draw.one_of(((256, 1), (1024, 1))), 500, 16000)] if draw.chance(1 / 3) else [])


SCENARIOS = {one.__name__: one for one in (chat, rag, agent, chunked, drafts, mla, d256)}


def shape_of(draw: Draw, scenario: str) -> dict:
    if scenario == "mla":
        return dict(heads=draw.one_of(((128, 2), (64, 1), (32, 1), (16, 1))), kv_heads=1, depth=576, page=64, mla=True)
    heads, kv_heads, depth = draw.one_of(DEEP_MODELS if scenario == "d256" else MODELS)
    shape = dict(heads=heads, kv_heads=kv_heads, depth=depth, page=draw.one_of(PAGES))
    if (heads, kv_heads, depth) == (64, 8, 64):  # gpt-oss: every other layer has a window
        return dict(shape, sink=True, window=draw.one_of(((None, 1), (128, 1))))
    window = draw.one_of(((512, 1), (1024, 2), (4096, 1)))
    return dict(shape, window=window if draw.chance(1 / 2 if depth == 256 else 1 / 6) else None)


def step_of(scenario: str, seed: int) -> Step:
    draw = Draw(f"{scenario} {seed}")
    shape = shape_of(draw, scenario)
    requests = draw.shuffled(SCENARIOS[scenario](draw))
    most = MOST_ELEMENTS // (shape["kv_heads"] * shape["depth"])
    while len(requests) > 1 and sum(keys for _, keys in requests) > most:
        requests.pop()
    if scenario != "drafts":  # servers put prompts before decodes
        requests.sort(key=lambda request: request[0] == 1)
    return Step(scenario, seed, tuple(requests), **shape)


def steps_of(scenarios: str, seeds: str) -> List[Step]:
    """Of names with commas, and of seeds as 1-8 or 1,5,7."""
    unknown = [name for name in scenarios.split(",") if name not in SCENARIOS]
    if unknown:
        raise ValueError(f"no scenario {unknown[0]}; there are {', '.join(SCENARIOS)}")
    numbers: List[int] = []
    for part in seeds.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [step_of(name, seed) for name in scenarios.split(",") for seed in numbers]

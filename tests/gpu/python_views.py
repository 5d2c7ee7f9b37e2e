# SPDX-License-Identifier: Apache-2.0
"""The Python API on views of tensors, on the GPU at hand: python_views.py [--calls N] [--seed S] [--seconds T].

Each call draws a kind (rectangular, ragged, padded keys, pages, absorbed MLA), an element type, a mask, and then for
every tensor a view: sliced, transposed, expanded, cut out of a wider one. What lies around a view is NaN, or a number
out of bounds. The result is held to torch in float64, and the memory around `out` to what it was. Kernels are few, so
that most calls find the launch of an earlier one that had other strides. Prints each wrong call; exit code 1 if there
is one, 77 without a GPU. It needs attnjit and torch.
"""
import argparse
import collections
import math
import random
import sys
import time

try:
    import torch
except ImportError:
    torch = None
else:
    import attnjit

# The largest error of a row in units of the norm of a row, by the element type of what is multiplied.
BOUNDS = {"bfloat16": 0.02, "float16": 0.004, "float8_e4m3fn": 0.16}
HEADS = ((8, 8), (8, 2), (10, 2), (6, 1))  # of q; of k and v
DEPTHS = ((64, 64), (128, 128), (128, 64))  # of q and k; of v and out
DOCUMENTS = {"kind": "custom", "name": "documents", "code": "p.document[kv_idx] <= p.document[max(q_idx, 0)]",
             "params": [{"name": "document", "type": "i32[]"}]}
MASKS = ("none", "causal", "tensor", "bias", "documents", "window")
KINDS = ("dense", "dense", "ragged", "padded", "pages", "pages", "ragged pages", "mla")


class Views:
    """Makes tensors as views of larger ones, all of whose other elements are poisoned."""

    def __init__(self, rng, device):
        self.rng, self.device = rng, device
        self.made = []  # (name, shape, strides) of each, for a report

    def place(self, name, shape, dtype, unit=0, expand=()):
        """(memory, a view of it with that shape), poisoned. Some dimensions of `expand` may have a stride of 0.

        unit: the last dimension is contiguous, and the strides of the others are multiples of so many elements; 0: any
        dimension may have any stride.
        """
        rng, rank = self.rng, len(shape)
        repeated = [d for d in expand if rng.random() < 0.35]
        extents = [1 if d in repeated else extent for d, extent in enumerate(shape)]
        order = list(range(rank))
        if rng.random() < 0.6:
            movable = order[:-1] if unit else order
            order = rng.sample(movable, len(movable)) + order[len(movable):]
        slices, sizes = [slice(None)] * rank, list(extents)
        for d in range(rank):
            grain, step = (unit, 1) if unit and d == rank - 1 else (1, rng.choice((1, 1, 2, 3)))
            if rng.random() < 0.4:
                begin, past = grain * rng.randint(0, 2), grain * rng.randint(0, 2)
                end = begin + (extents[d] - 1) * step + 1 if extents[d] else begin
                slices[d], sizes[d] = slice(begin, end, step), end + past
        memory = torch.empty([sizes[d] for d in order], dtype=dtype, device=self.device)
        poison(memory)
        view = memory.permute([order.index(d) for d in range(rank)])[tuple(slices)].expand(shape)
        self.made.append((name, tuple(view.shape), view.stride()))
        return memory, view

    def of(self, name, values, unit=0, expand=()):
        """A view that holds `values`; where it is expanded, those of the first entry."""
        _, view = self.place(name, values.shape, values.dtype, unit, expand)
        first = tuple(slice(0, 1) if extent > 1 and stride == 0 else slice(None)
                      for extent, stride in zip(view.shape, view.stride()))
        view[first].copy_(values[first])
        return view

    def integers(self, name, values, expand=()):
        return self.of(name, torch.tensor(values, dtype=torch.int32, device=self.device), expand=expand)

    def numbers(self, name, shape, dtype, unit=0, expand=(), scale=1.0):
        values = torch.randn(shape, device=self.device) * scale
        return self.of(name, values.to(dtype), unit, expand)


def poison(memory):
    """Fills with NaN, or with what is no length, no page and no sign of a mask."""
    size = memory.element_size()
    if memory.dtype is torch.int32:
        memory.fill_(1 << 30)
    else:
        memory.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).fill_((1 << 8 * size - 1) - 1)


class Case:
    """One call: its tensors, the call, and what is right."""

    def __init__(self, seed, device):
        self.rng = rng = random.Random(seed)
        torch.manual_seed(seed)
        self.views = Views(rng, device)
        self.device = device
        self.kind = rng.choice(KINDS)
        self.dtype = rng.choice((torch.bfloat16, torch.float16, torch.float8_e4m3fn)
                                if self.kind != "mla" else (torch.bfloat16, torch.float16))
        self.layout = rng.choice(("bshd", "bhsd")) if self.kind == "dense" else "bshd"
        self.heads, self.kv_heads = rng.choice(HEADS)
        self.depth, self.v_depth = rng.choice(DEPTHS if self.dtype is not torch.float8_e4m3fn else DEPTHS[:2])
        if self.kind == "mla":
            self.heads, self.kv_heads, self.depth, self.v_depth = rng.choice((16, 128)), 1, 576, 512
        self.batch = rng.randint(1, 4)
        self.mask = rng.choice(MASKS if self.kind == "dense" else ("none", "causal", "window"))
        self.unit = 16 // torch.empty(0, dtype=self.dtype).element_size()
        self.named = {}
        self.lengths()
        self.tensors()
        self.masked()

    def lengths(self):
        rng, batch = self.rng, self.batch
        together = self.kind in ("dense", "padded", "pages", "mla")
        low = 0 if self.kind in ("ragged", "ragged pages") else 1
        rows = rng.choice((1, rng.randint(1, 8), rng.randint(1, 200)))
        self.q_lens = [rows] * batch if together else [rng.choice((1, rng.randint(low, 150))) for _ in range(batch)]
        keys = rng.randint(1, 300)
        self.kv_lens = [keys] * batch if self.kind == "dense" else [
            rng.randint(low, 300) for _ in range(batch)]
        self.total_q, self.total_kv = sum(self.q_lens), sum(self.kv_lens)

    def tensors(self):
        rng, views, kind, dtype = self.rng, self.views, self.kind, self.dtype
        batch, rows = self.batch, self.q_lens[0]
        flat = kind in ("ragged", "ragged pages", "padded")
        q_shape = (self.total_q, self.heads, self.depth) if flat else (batch, rows, self.heads, self.depth)
        self.q = views.numbers("q", q_shape, dtype, self.unit, range(len(q_shape) - 1))
        if kind in ("pages", "ragged pages", "mla"):
            self.paged()
        else:
            keys = max(self.kv_lens) if kind == "padded" else self.kv_lens[0]
            shape = (self.total_kv,) if kind == "ragged" else (batch, keys)
            self.k = views.numbers("k", (*shape, self.kv_heads, self.depth), dtype, self.unit, range(len(shape) + 1))
            self.v = views.numbers("v", (*shape, self.kv_heads, self.v_depth), dtype, self.unit, range(len(shape) + 1))
        out_dtype = torch.bfloat16 if dtype is torch.float8_e4m3fn else dtype
        unit = 16 // 2
        self.memory, self.out = views.place("out", (*q_shape[:-1], self.v_depth), out_dtype, unit)
        if kind in ("ragged", "ragged pages", "padded"):
            self.named["q_offsets"] = views.integers("q_offsets", begins(self.q_lens))
        if kind == "ragged":
            self.named["kv_offsets"] = views.integers("kv_offsets", begins(self.kv_lens))
        if kind == "padded":
            self.named["kv_lens"] = views.integers("kv_lens", self.kv_lens)
        self.sink = None
        if rng.random() < 0.3:
            self.sink = self.named["sink"] = views.numbers("sink", (self.heads,), torch.float32, expand=(0,))
        self.scales = [1.0, 1.0, 1.0]
        if dtype is torch.float8_e4m3fn:
            self.scaled()

    def paged(self):
        rng, views, batch = self.rng, self.views, self.batch
        size = rng.choice((16, 64)) if self.kind != "mla" else 64
        pages_each = max(1, max(-(-keys // size) for keys in self.kv_lens))
        count = batch * pages_each + 2
        shape = (count, size, self.kv_heads)
        if self.kind == "mla":
            self.cache = views.numbers("cache", (count, size, self.depth), self.dtype, self.unit)
            self.k, self.v = self.cache.unsqueeze(2), self.cache.unsqueeze(2)[..., :self.v_depth]
        else:
            self.k = views.numbers("k_cache", (*shape, self.depth), self.dtype, self.unit, range(3))
            self.v = views.numbers("v_cache", (*shape, self.v_depth), self.dtype, self.unit, range(3))
        numbers = rng.sample(range(count), count)
        table = [[numbers[b * pages_each + page] if page * size < self.kv_lens[b] else 1 << 30
                  for page in range(pages_each)] for b in range(batch)]
        self.table, self.page_size = views.integers("page_table", table), size
        self.lens = views.integers("kv_lens", self.kv_lens)

    def scaled(self):
        """Scales of the tensors as one number each, or one for each head of a sequence."""
        of_heads = self.rng.random() < 0.5
        for at, (name, heads) in enumerate((("q_scale", self.heads), ("k_scale", self.kv_heads),
                                            ("v_scale", self.kv_heads))):
            values = torch.rand((self.batch, heads) if of_heads else (1,), device=self.device) + 0.5
            view = self.named[name] = self.views.of(name, values, expand=range(values.dim()))
            self.scales[at] = view.double().expand(self.batch, heads)

    def masked(self):
        rng, views = self.rng, self.views
        rows, keys = self.q_lens[0], self.kv_lens[0]
        self.shown = self.added = None
        if self.mask == "causal":
            self.named["mask"] = "causal"
        elif self.mask == "window":
            self.window = 48
            self.named["mask"] = {"kind": "sliding_window", "window": self.window}
        elif self.mask in ("tensor", "bias"):
            shape = (rng.choice((1, self.batch)), rng.choice((1, self.heads)), rng.choice((1, rows)), keys)
            if self.mask == "tensor":
                values = torch.rand(shape, device=self.device) < 0.7
                self.shown = self.named["mask"] = views.of("mask", values, expand=range(4))
            else:
                self.added = self.named["bias"] = views.numbers("bias", shape, torch.float32, expand=range(3))
        elif self.mask == "documents":
            values = views.integers("document", sorted(rng.choices(range(4), k=max(rows, keys))), expand=(0,))
            self.named["mask"] = attnjit.Mask(DOCUMENTS, {"document": values})
            # A row's position counts from the last key; before the first there is nothing to ask for.
            at = torch.arange(rows, device=self.device) + keys - rows
            self.shown = values[:keys][None, :] <= values[at.clamp(min=0)][:, None]

    def call(self):
        if self.kind == "mla":
            mask = self.named.pop("mask", None)
            return attnjit.mla_attention(self.q, self.cache, self.table, self.lens, out=self.out, lse=True, mask=mask,
                                         **self.named)
        if self.kind in ("pages", "ragged pages"):
            return attnjit.paged_attention(self.q, self.k, self.v, self.table, self.lens, out=self.out, lse=True,
                                           **self.named)
        swapped = [one.transpose(1, 2) if self.layout == "bhsd" else one for one in (self.q, self.k, self.v, self.out)]
        result, lse = attnjit.attention(*swapped[:3], out=swapped[3], lse=True, layout=self.layout, **self.named)
        return result, lse

    def sequence(self, b):
        """(q, k, v) of a sequence as float64 [heads, rows, depth], with scales applied."""
        begin = sum(self.q_lens[:b])
        q = (self.q[begin:begin + self.q_lens[b]] if self.q.dim() == 3 else self.q[b])
        keys = self.kv_lens[b]
        if self.kind in ("pages", "ragged pages", "mla"):
            numbers = self.table[b, :-(-keys // self.page_size)].long()
            k, v = (one[numbers].flatten(0, 1)[:keys] for one in (self.k, self.v))
        elif self.kind == "ragged":
            at = sum(self.kv_lens[:b])
            k, v = self.k[at:at + keys], self.v[at:at + keys]
        else:
            k, v = self.k[b, :keys], self.v[b, :keys]
        group = self.heads // self.kv_heads
        done = []
        for one, scale in zip((q, k, v), self.scales):
            one = one.double().transpose(0, 1)
            if not isinstance(scale, float):
                one = one * scale[b][:, None, None]
            done.append(one if one.shape[0] == self.heads else one.repeat_interleave(group, 0))
        return done

    def right(self, b):
        """(O [rows, heads, depth], LSE [heads, rows]) of a sequence in float64."""
        q, k, v = self.sequence(b)
        rows, keys = q.shape[1], k.shape[1]
        scores = q @ k.transpose(1, 2) / math.sqrt(self.depth)
        at = torch.arange(rows, device=self.device)[:, None] + keys - rows
        key = torch.arange(keys, device=self.device)[None, :]
        if self.mask in ("causal", "window"):
            scores = scores.masked_fill(key > at, -math.inf)
        if self.mask == "window":
            scores = scores.masked_fill(key <= at - self.window, -math.inf)
        if self.added is not None:
            scores = scores + self.added[b if self.added.shape[0] > 1 else 0].double()
        if self.shown is not None:
            shown = self.shown if self.shown.dim() == 2 else self.shown[b if self.shown.shape[0] > 1 else 0]
            scores = scores.masked_fill(~shown, -math.inf)
        if self.sink is not None:
            scores = torch.cat([scores, self.sink.double()[:, None, None].expand(-1, rows, 1)], 2)
            v = torch.cat([v, torch.zeros_like(v[:, :1]) if keys else v.new_zeros(self.heads, 1, v.shape[2])], 1)
        lse = torch.logsumexp(scores, 2) if scores.shape[2] else scores.new_full((self.heads, rows), -math.inf)
        shares = torch.exp(scores - lse[..., None]).nan_to_num(0.0)
        return (shares @ v).transpose(0, 1), lse

    def wrong(self):
        """What is wrong with the call, as text; None if nothing is."""
        before = self.memory.clone()
        result, lse = self.call()
        torch.cuda.synchronize()
        bound, worst = BOUNDS[str(self.dtype).rpartition(".")[2]], 0.0
        out = self.out.double()
        for b in range(self.batch):
            rows = self.q_lens[b]
            if rows == 0:
                continue
            begin = sum(self.q_lens[:b])
            wanted, sums = self.right(b)
            got = out[begin:begin + rows] if out.dim() == 3 else out[b]
            got_lse = (lse[:, begin:begin + rows] if lse.dim() == 2 else lse[b]).double()
            size = max(wanted.norm(dim=-1).mean().item(), 1e-3)
            error = ((got - wanted).norm(dim=-1) / (wanted.norm(dim=-1) + 0.25 * size)).max().item()
            if not error <= bound:
                return f"sequence {b}: a row of O is off by {error:.3g} (bound {bound})"
            off = (got_lse - sums).abs().nan_to_num(0.0 if torch.equal(got_lse.isinf(), sums.isinf()) else math.inf)
            if not off.max().item() <= bound * 4:
                return f"sequence {b}: an LSE is off by {off.max().item():.3g}"
            worst = max(worst, error)
        outside = torch.ones(self.memory.numel(), dtype=torch.bool, device=self.device)
        outside.as_strided(self.out.shape, self.out.stride(), self.out.storage_offset()).fill_(False)
        if not torch.equal(*(one.view(torch.int16).flatten()[outside] for one in (self.memory, before))):
            return "the memory around out was written"
        self.error = worst
        return None


def begins(lengths):
    at = [0]
    for length in lengths:
        at.append(at[-1] + length)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first call; the others follow")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no call after that")
    given = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("skipped: no GPU, or no torch", file=sys.stderr)
        return 77
    seen, worst, wrong = collections.Counter(), collections.Counter(), 0
    end = time.monotonic() + given.seconds
    for seed in range(given.seed, given.seed + given.calls):
        if time.monotonic() > end:
            break
        case = Case(seed, "cuda")
        try:
            said = case.wrong()
        except attnjit.AttnjitError as error:
            said = f"refused: {error}"
        seen[case.kind] += 1
        if said is None:
            name = str(case.dtype)
            worst[name] = max(worst[name], case.error)
            continue
        wrong += 1
        print(f"seed {seed}: {case.kind} {case.dtype} {case.mask} {case.layout} heads {case.heads}/{case.kv_heads} depth "
              f"{case.depth}/{case.v_depth} rows {case.q_lens} keys {case.kv_lens}: {said}", flush=True)
        for name, shape, strides in case.views.made:
            print(f"    {name} {shape} strides {strides}")
    print(f"{sum(seen.values())} calls, {wrong} wrong; {dict(seen)}; largest errors {dict(worst)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""A small DeepSeek-V3.2 of the real SGLang package over the lists of its indexer, on the CPU with a
reference at the launch: SGLang's own layers, pool, metadata and writes of the cache, and lists by
chance, for the indexer's kernels need a GPU.
"""
import copy
import importlib.metadata
import inspect
import json
import os
import pathlib
import tempfile
import types

import torch

import attnjit
import mla_reference
import reference

os.environ["TRITON_INTERPRET"] = "1"  # NOTE: before SGLang is imported
torch.cuda.get_device_capability = lambda *_: (9, 0)

import sglang_keys_test as keys_test  # noqa: E402
from sglang.srt import utils  # noqa: E402
from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.layers.attention import dsa_backend  # noqa: E402
from sglang.srt.mem_cache import memory_pool  # noqa: E402
from sglang.srt.model_executor import forward_context  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode  # noqa: E402
from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: E402
from sglang.srt.runtime_context import get_server_args  # noqa: E402
from sglang.srt.speculative import draft_utils  # noqa: E402

try:  # NOTE: newer versions have a module of a layer's inputs.
    from sglang.srt.layers.layer_boundary.adapters import attention as inputs_of  # noqa: E402
except ImportError:
    from sglang.srt.layers import communicator as inputs_of  # noqa: E402
from attnjit import _mla  # noqa: E402
from attnjit.integrations import sglang_lists  # noqa: E402
from attnjit.integrations import sglang as integration  # noqa: E402
from attnjit.integrations.sglang_service import launches  # noqa: E402

HEADS, TOPK, SLOTS, LONGEST, PAGE, RANK, ROPE = 16, 2048, 1024, 256, 64, 512, 64
CONFIG = {**keys_test.FAMILIES["deepseek-v3.2"], "hidden_size": 256, "intermediate_size": 128,
          "moe_intermediate_size": 64, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
          "q_lora_rank": 128, "n_routed_experts": 2, "first_k_dense_replace": 2}
E4M3, DRAFTS = torch.float8_e4m3fn, 3


def model_of(folder, cache):
    """A model with numbers, and what SGLang knows of it."""
    model, config = keys_test.model_of(folder, kv_cache_dtype=cache, device="cpu")
    for name, one in model.named_parameters():
        torch.nn.init.normal_(one.data, 1.0 if "norm" in name else 0.0, 0.1)
    for layer in model.model.layers:
        attention = layer.self_attn
        made = attention.kv_b_proj.weight.view(HEADS, -1, RANK)
        attention.w_kc = made[:, :attention.qk_nope_head_dim]
        attention.w_vc = made[:, attention.qk_nope_head_dim:].transpose(1, 2)
    return model, config


def runner_of(model, config, cache, **changes):
    """What a model runner has for a backend."""
    dtype = E4M3 if cache == "fp8_e4m3" else torch.bfloat16
    pool = memory_pool.DSATokenToKVPool(
        SLOTS, PAGE, RANK, dtype, ROPE, len(model.model.layers), "cpu", 128, False,
        RANK + 4 * 4 + 2 * ROPE if dtype is E4M3 else RANK + ROPE)
    values = dict(
        model=model, model_config=config, page_size=PAGE, device="cpu", dtype=torch.bfloat16,
        use_mla_backend=True, kv_cache_dtype=dtype, attention_chunk_size=None,
        server_args=get_server_args(), token_to_kv_pool=pool, hisparse_coordinator=None,
        req_to_token_pool=memory_pool.ReqToTokenPool(4, LONGEST, "cpu", False), is_draft_worker=False,
        spec_algorithm=keys_test.algorithm_of(None), max_running_requests=4,
        draft_attention_backend=None)
    return types.SimpleNamespace(**{**values, **changes})


def batch_of(runner, mode, rows, lens):
    """A batch whose request b has lens[b] keys, of which the last rows[b] are this step's."""
    tokens = runner.req_to_token_pool.req_to_token
    before = [length - count for length, count in zip(lens, rows)]
    seq_lens = torch.tensor(before if mode.is_target_verify() else lens)
    batch = ForwardBatch(
        forward_mode=mode, batch_size=len(rows), req_pool_indices=torch.arange(1, len(rows) + 1),
        input_ids=torch.zeros(sum(rows), dtype=torch.int64), seq_lens=seq_lens,
        seq_lens_cpu=seq_lens, seq_lens_sum=int(seq_lens.sum()),
        extend_seq_lens=torch.tensor(rows), extend_seq_lens_cpu=rows,
        extend_prefix_lens=torch.tensor(before), extend_prefix_lens_cpu=before,
        extend_num_tokens=sum(rows), out_cache_loc=torch.cat([
            tokens[b + 1, first:length].long()
            for b, (first, length) in enumerate(zip(before, lens))]))
    batch.out_cache_loc_is_physical = True
    return batch


class Indexer(torch.nn.Module):
    """Stands for SGLang's, whose kernels need a GPU: lists of positions, or of slots where its
    metadata has them fused."""

    def __init__(self, runner):
        super().__init__()
        self.runner, self.seen = runner, None

    def choose(self, batch, rows, lens):
        """Lists by chance: of each row its own key, and half of those before it."""
        self.seen = []
        for count, length in zip(rows, lens):
            for at in range(length - count, length):
                kept = torch.nonzero(torch.rand(at) < 0.5)[:, 0]
                self.seen.append(torch.cat([kept, torch.tensor([at])]))
        owner = [b + 1 for b, count in enumerate(rows) for _ in range(count)]
        self.lists = torch.full((sum(rows), TOPK), -1, dtype=torch.int32)
        tokens = self.runner.req_to_token_pool.req_to_token
        for row, (request, kept) in enumerate(zip(owner, self.seen)):
            self.lists[row, torch.randperm(TOPK)[:len(kept)]] = (
                tokens[request, kept] if self.fused else kept.int())

    def forward(self, forward_batch, layer_id, return_indices=True, **_):
        metadata = forward_context.get_attn_backend().get_indexer_metadata(layer_id, forward_batch)
        assert metadata.force_unfused_topk != self.fused
        assert metadata.topk_transform_method.name == "PAGED"
        return self.lists if return_indices else None


def step(attention, backend, batch, hidden, positions):
    """What SGLang's layer computes of a step."""
    batch.positions = positions
    backend.init_forward_metadata(batch)
    with forward_context.forward_context(forward_context.ForwardContext(backend)):
        inputs = inputs_of.AttentionInputs(hidden, batch, attention.prepare_qkv_latent)
        inputs_of.get_attn_tp_context().set_attn_inputs(inputs)
        made = attention(positions=positions, hidden_states=hidden, forward_batch=batch,
                         zero_allocator=None)
    return made[0] if isinstance(made, tuple) else made


def rounded(c, k_pe):
    """A cache's rows as SGLang's kernel rounds them to e4m3, with a scale of each 128 numbers."""
    # NOTE: its interpreter's e4m3 is off by one place in a few numbers of a hundred.
    parts = memory_pool.quantize_k_cache_separate(c.bfloat16(), k_pe[:, 0])
    made = mla_reference.dequantised(torch.cat([one[:, 0] for one in parts], -1), None)
    assert (made[:, :RANK] - c).abs().mean() < 0.03
    assert torch.equal(made[:, RANK:], k_pe[:, 0].float())
    return made[:, :RANK]


def expected(attention, hidden, seen, eight):
    """The same of the last rows of a request by floats, from SGLang's own projections: `seen` are
    the keys of each row, of which a cache of e4m3 has the first `eight`."""
    positions = torch.arange(len(hidden))
    latent = attention.fused_qkv_a_proj_with_mqa(hidden)[0]
    q, latent = latent.split([attention.q_lora_rank, RANK + ROPE], dim=-1)
    q = attention.q_b_proj(attention.q_a_layernorm(q))[0].view(len(hidden), HEADS, -1)
    nope = attention.qk_nope_head_dim
    q_pe, k_pe = attention.rotary_emb(positions, q[..., nope:].clone(),
                                      latent[:, None, RANK:].clone())
    c = attention.kv_a_layernorm(latent[:, :RANK].contiguous()).float()
    if eight:
        c[:eight] = rounded(c[:eight], k_pe[:eight])
    keys = torch.einsum("sr,hdr->shd", c, attention.w_kc.float())
    values = torch.einsum("sr,hrd->shd", c, attention.w_vc.float())
    keys = torch.cat([keys, k_pe.float().expand(-1, HEADS, -1)], -1)
    q = torch.cat([q[..., :nope], q_pe], -1).float()
    first = len(hidden) - len(seen)
    out = [reference.attend(q[first + i, None], keys[kept], values[kept], torch.tensor(True),
                            attention.attn_mqa.scaling)[0][0] for i, kept in enumerate(seen)]
    return attention.o_proj(torch.stack(out).flatten(1).bfloat16())[0]


def check(model, config, folder, cache, fused):
    """Prompts, a chunk behind a prefix, decodes, drafts that are verified, and a short prompt."""
    runner = runner_of(model, config, cache)
    tokens = runner.req_to_token_pool.req_to_token
    lens = [200, 70]
    for b, pages in enumerate((torch.randperm(15) + 1).split([4, 4, 7])[:2]):
        tokens[b + 1, :4 * PAGE] = (pages[:, None] * PAGE + torch.arange(PAGE)).flatten()
    keys_test.asked.clear()
    backend = integration.create(runner)
    assert isinstance(backend, sglang_lists.AttnjitListsAttnBackend)
    asked = keys_of(keys_test.asked)
    assert asked == keys_of({**spec, "arch": "sm_90a"} for spec in keys_test.manifest_of(
        folder, "--kv-cache-dtype", cache)), keys_test.asked
    attention = model.model.layers[0].self_attn
    attention.indexer = indexer = Indexer(runner)
    indexer.fused = fused
    hidden = [torch.randn(length, CONFIG["hidden_size"]).bfloat16() for length in lens]
    modes = ((ForwardMode.EXTEND, (150, 40), 0), (ForwardMode.EXTEND, (30, 20), 0),
             (ForwardMode.DECODE, (1, 1), 0), (ForwardMode.TARGET_VERIFY, (DRAFTS, DRAFTS), 0),
             (ForwardMode.EXTEND, (3, 2), 4096))
    done = [0, 0]
    for mode, rows, dense in modes:
        envs.SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD.set(dense)
        before, done = done, [first + count for first, count in zip(done, rows)]
        batch = batch_of(runner, mode, list(rows), done)
        backends = [backend] + (drafts_of(runner) if mode.is_decode() else [])
        indexer.choose(batch, rows, done)
        positions = [torch.arange(first, last) for first, last in zip(before, done)]
        rows_in = torch.cat([one[where] for one, where in zip(hidden, positions)])
        lists = list(indexer.seen)
        if dense:
            lists = [torch.arange(int(at) + 1) for where in positions for at in where]
        right = []
        for one, count, length in zip(hidden, rows, done):
            eight = 0 if cache == "bfloat16" else length - count if dense else length
            seen, lists = lists[:count], lists[count:]
            right.append(expected(attention, one[:length], seen, eight))
        right = torch.cat(right).float()
        for one in backends:
            launches.clear()
            mla_reference.specs.clear()
            got = step(attention, one, batch, rows_in, torch.cat(positions))
            assert dict(launches) == {"prompts" if dense else "mla_lists": 1}, (mode, launches)
            assert keys_of(mla_reference.specs) <= asked, mla_reference.specs
            error = (got.float() - right).abs().max() / right.abs().max()
            assert error < 0.02, (cache, fused, mode, error)


def drafts_of(runner):
    """The backends of a draft model's steps, by SGLang's own factory."""
    factory = draft_utils.DraftBackendFactory(
        *([get_server_args()] if "server_args" in inspect.signature(
            draft_utils.DraftBackendFactory).parameters else []), runner, 1, 4)
    made = factory.create_decode_backend()
    assert isinstance(made, sglang_lists.AttnjitListsMultiStepDraftBackend)
    backends = [*made.attn_backends, factory.create_draft_extend_backend()]
    assert all(isinstance(one, sglang_lists.AttnjitListsAttnBackend) for one in backends)
    assert len(backends) == 4
    return backends


def refusals(model, config):
    """What SGLang serves of such models and attnjit does not is refused in one line."""
    for said, changes, text in (
            ({"index_kpool": 16}, {}, "pools"), ({}, {"hisparse_coordinator": 1}, "HiSparse"),
            ({}, {"spec_algorithm": keys_test.algorithm_of("ngram")}, "trees"),
            ({}, {"page_size": 128}, "pages of 128")):
        changed = copy.copy(config)
        changed.hf_config = copy.copy(config.hf_config)
        changed.hf_config.__dict__.update(said)
        try:
            integration.create(runner_of(model, changed, "bfloat16", **changes))
        except ValueError as error:
            assert text in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"{said} {changes} was taken")


def keys_of(found):
    """The keys of specs' kernels."""
    with attnjit.Service(no_disk_cache=1) as service:
        return {service.prepare(spec).key for spec in found}


def expanded(rows, lens, *_):
    """Stands for a kernel of SGLang's: the keys that each row of a request has."""
    return torch.cat([torch.arange(length - count + 1, length + 1, dtype=torch.int32)
                      for count, length in zip(rows.tolist(), lens.tolist())])


def written(pool, layer, loc, k, _):
    """Stands for how a layer writes dense rows without a GPU: as with one."""
    pool.set_mla_kv_buffer(layer, loc, k[..., :RANK], k[..., RANK:])


def main():
    integration.register()
    HookRegistry.apply_hooks()
    envs.SGLANG_OPT_USE_TOPK_V2.set(False)  # NOTE: a kernel of the indexer's
    utils.get_device_sm, dsa_backend.get_spec = lambda: 90, lambda: keys_test.SPEC
    dsa_backend.seqlens_expand_triton = expanded
    memory_pool.DSATokenToKVPool.set_kv_buffer = written
    reference.install()
    _mla._find = mla_reference.find
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as root:
        for cache in ("bfloat16", "fp8_e4m3"):
            folder = pathlib.Path(root, cache)
            folder.mkdir()
            for file, said in (("config.json", CONFIG), ("tokenizer_config.json", {})):
                (folder / file).write_text(json.dumps(said), encoding="utf-8")
            model, config = model_of(folder, cache)
            keys_test.SPEC.speculative_num_draft_tokens = DRAFTS
            for fused in (True, False):
                envs.SGLANG_DSA_FUSE_TOPK.set(fused)
                check(model, config, folder, cache, fused)
        refusals(model, config)
    print(f"sglang_lists: sglang {importlib.metadata.version('sglang')}: all right")


main()

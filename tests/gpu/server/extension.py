# SPDX-License-Identifier: Apache-2.0
"""What the tests ask of vLLM's workers (`--worker-extension-cls extension.Extension`)."""
import sys
import zlib


def _reduce_with_torch():
    """vLLM's own binding of NCCL does not load where torch brings an older library; its
    reduce_scatter then returns memory that nobody wrote (0.33). torch's takes its place."""
    from vllm.distributed.device_communicators.base_device_communicator import (
        DeviceCommunicatorBase)
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    bound = CudaCommunicator.reduce_scatter

    def reduce_scatter(self, input_, dim=-1):
        missing = self.pynccl_comm is None or self.pynccl_comm.disabled
        return (DeviceCommunicatorBase.reduce_scatter if missing else bound)(self, input_, dim)

    CudaCommunicator.reduce_scatter = reduce_scatter


if "vllm" in sys.modules:  # and not SGLang's
    _reduce_with_torch()


def fill(model, rank=0, called=lambda name: name):
    """Random weights of a sensible size, in place, the same in each process but for Q's of heads:
    dummy ones are so small that all logits tie. Weights that are `called` the same are the same."""
    import torch

    config = getattr(model.config, "text_config", model.config)
    tied = getattr(config, "tie_word_embeddings", False)
    # Of a rank's weights of Q, K and V those of Q; layers' heads may differ in depth.
    q_rows = {f"{name}.weight": module.num_heads * module.head_size
              for name, module in model.named_modules()
              if hasattr(module, "total_num_kv_heads") and hasattr(module, "head_size")}
    q_rows.update({f"{name}.weight": module.weight.shape[0]
                   for name, module in model.named_modules() if name.endswith("encoder_attn.q_proj")})
    one_more = {f"{name}.weight" for name, module in model.named_modules()
                if type(module).__name__ in ("GemmaRMSNorm", "Gemma3RMSNorm")}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            seed = torch.Generator(device=weight.device).manual_seed(
                zlib.crc32(called(name).encode()))
            of_rank = torch.Generator(device=weight.device).manual_seed(
                zlib.crc32(f"{called(name)} {rank}".encode()))
            if name.endswith("sinks"):
                weight.copy_(torch.randn(weight.shape, generator=seed, device=weight.device))
            elif weight.dim() == 1:
                norm = name.endswith("weight") and name not in one_more  # whose factor is 1 + w
                weight.fill_(1.0 if norm else 0.0)
            else:
                embeds = "embed_tokens" in name and not tied
                size = 1.0 if embeds else weight.shape[-1] ** -0.5
                parts = weight.view(-1).split(1 << 27) if weight.is_contiguous() else [weight]
                for part in parts:  # rounded alike where a model's numbers have 32 bits
                    drawn = torch.randn(part.shape, generator=seed, device=part.device) * size
                    part.copy_(drawn.bfloat16())
                if name in q_rows and "vision" not in name:
                    rows = q_rows[name]
                    drawn = torch.randn(weight[:rows].shape, generator=of_rank,
                                        device=weight.device)
                    weight[:rows] = (drawn * 3.0 * size).bfloat16()  # scores that differ


#: Of caches of fp8: none is 1, so that a backend that forgets one is found.
SCALES = {"_q_scale": 0.5, "_k_scale": 0.25, "_v_scale": 2.0}


def set_scales(module, of_heads):
    """Of a layer of attention, as a checkpoint has them; those of K and V may be of heads."""
    import torch

    for name, value in SCALES.items():
        if not hasattr(module, name):
            continue
        scale = getattr(module, name)
        scale.fill_(value)
        setattr(module, f"{name}_float", value)
        if of_heads and name != "_q_scale":
            each = torch.arange(module.num_kv_heads, device=scale.device)
            setattr(module, name, value * (1.0 + each / module.num_kv_heads))


class Extension:
    """Methods of each worker, for collective_rpc."""

    def set_weights(self, head_scales=False):
        """fill() of the model; graphs that were captured go on reading the weights."""
        import torch

        model = self.get_model()
        fill(model, self.rank)
        with torch.no_grad():
            for module in model.modules():  # MLA's absorbed matrices follow from kv_b_proj
                if hasattr(module, "W_UK_T"):
                    module.process_weights_after_loading(torch.bfloat16)
            # NOTE: graphs that were captured have numbers of the old ones.
            if self.vllm_config.model_config.enforce_eager:
                for layer in self.vllm_config.compilation_config.static_forward_context.values():
                    kind = getattr(layer, "kv_cache_dtype", "")
                    if "fp8" in kind and kind != "fp8_ds_mla":  # whose rows have their own
                        set_scales(layer, head_scales)
        torch.accelerator.synchronize()

    def keep_q(self):
        """Q of prompts keeps its 16 bits in attnjit's layers, as that of decodes does."""
        for layer in self.vllm_config.compilation_config.static_forward_context.values():
            layer.impl._quantises = False

    def about(self):
        """Which implementations serve the layers, the cache, and what attnjit's Service counts."""
        import torch

        found = {}
        for module in self.get_model().modules():
            name = type(getattr(module, "impl", None)).__name__
            if name.endswith("Impl"):
                found[name] = found.get(name, 0) + 1
        cache = self.vllm_config.cache_config
        said = {"impls": found, "block_size": cache.block_size, "blocks": cache.num_gpu_blocks,
                "gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
        try:
            from attnjit.integrations import vllm_service
        except ImportError:
            return said
        if any(name.startswith("Attnjit") for name in found):
            said["statistics"] = vllm_service.service().statistics()
            said["launches"] = dict(vllm_service.launches)
        return said

    def start_trace(self):
        from torch.profiler import ProfilerActivity, profile, supported_activities

        cpu = {ProfilerActivity.CPU}  # where a test has no GPU
        self._trace = profile(activities=supported_activities() - cpu or cpu)
        self._trace.start()

    def stop_trace(self):
        """Microseconds and calls of each kernel since start_trace()."""
        self._trace.stop()
        rows = [(row.key, row.self_device_time_total, row.count)
                for row in self._trace.key_averages() if row.self_device_time_total]
        return sorted(rows, key=lambda row: -row[1])

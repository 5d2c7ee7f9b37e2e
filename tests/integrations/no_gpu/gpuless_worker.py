# SPDX-License-Identifier: Apache-2.0
"""A worker of vLLM that asks for its layer's attention backend as any worker does, and computes
nothing: each request's next token is 7."""
import torch
from vllm.config import get_current_vllm_config
from vllm.v1.attention.selector import get_attn_backend
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

TOKEN = 7


class Worker(WorkerBase):
    def init_device(self):
        config = get_current_vllm_config()
        self.configured = config.attention_config.backend
        of_mla = config.model_config.use_mla
        self.backend = get_attn_backend(
            576 if of_mla else 64, torch.bfloat16, config.cache_config.cache_dtype, use_mla=of_mla,
            use_sparse=hasattr(config.model_config.hf_text_config, "index_topk"))

    def load_model(self, *, load_dummy_weights=False):
        pass

    def get_kv_cache_spec(self):
        return {"layer": FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64,
                                           dtype=torch.bfloat16)}

    def get_supported_kv_cache_layouts(self):
        return ["LBHNC"]

    def determine_available_memory(self):
        return 1 << 30

    def initialize_from_config(self, kv_cache_config):
        pass

    def compile_or_warm_up_model(self):
        from attnjit.integrations import vllm_service

        vllm_service._labels = lambda: {"rank": str(self.rank)}  # there are no groups of ranks
        vllm_service.service()
        vllm_service.launches["mixed"] = 3 + self.rank
        return CompilationTimes(0.0, 0.0)

    def execute_model(self, scheduler_output):
        ids = list(scheduler_output.num_scheduled_tokens)
        return ModelRunnerOutput(req_ids=ids, req_id_to_index={id: i for i, id in enumerate(ids)},
                                 sampled_token_ids=[[TOKEN] for _ in ids])

    def sample_tokens(self, grammar_output):
        raise AssertionError("execute_model gives the tokens")

    def get_supported_tasks(self):
        return ("generate",)

    def backends(self):
        """What this process knows: the configured member, and the class that serves the layer."""
        return self.configured.name, self.backend.__name__, self.rank

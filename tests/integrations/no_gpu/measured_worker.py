# SPDX-License-Identifier: Apache-2.0
"""A worker without a GPU for tests/gpu/server: it has a small model, and log-probabilities."""
import math

import numpy as np
import torch
from gpuless_worker import TOKEN
from gpuless_worker import Worker as GpulessWorker
from vllm.v1.outputs import LogprobsLists, LogprobsTensors
from vllm.v1.worker.worker_base import CompilationTimes

torch.cuda.get_device_name = lambda *_: "no GPU"
torch.accelerator.synchronize = lambda *_: None
LOGPROB = -math.log(3)


class Worker(GpulessWorker):
    def get_supported_tasks(self):
        return ("token_embed",) if self._pools() else super().get_supported_tasks()

    def _pools(self):
        return self.vllm_config.model_config.runner_type == "pooling"

    def take_draft_token_ids(self):
        return None

    def load_model(self, *, load_dummy_weights=False):
        self._model = torch.nn.Module()
        self._model.config = self.vllm_config.model_config.hf_text_config
        self._model.qkv_proj = torch.nn.Linear(8, 256)
        self._model.norm = torch.nn.LayerNorm(8)
        self._model.attn = torch.nn.Module()
        self._model.attn.impl = self.backend.get_impl_cls().__new__(self.backend.get_impl_cls())

    def get_model(self):
        return self._model

    def compile_or_warm_up_model(self):
        return CompilationTimes(0.0, 0.0)

    def execute_model(self, scheduler_output):
        made = super().execute_model(scheduler_output)
        if self._pools():
            made.sampled_token_ids = []
            made.pooler_output = [torch.ones(scheduler_output.num_scheduled_tokens[one], 256)
                                  for one in made.req_ids]
            return made
        for new in scheduler_output.scheduled_new_reqs:
            self._asked = new.sampling_params.logprob_token_ids or []
        tokens = np.tile([TOKEN, *self._asked], (len(made.req_ids), 1))
        made.logprobs = LogprobsLists(tokens, np.full(tokens.shape, LOGPROB),
                                      np.ones(len(tokens), dtype=np.int64))
        for new in scheduler_output.scheduled_new_reqs:
            if new.sampling_params.prompt_logprobs is not None:
                tokens = torch.tensor(new.prompt_token_ids[1:])[:, None]
                made.prompt_logprobs_dict[new.req_id] = LogprobsTensors(
                    tokens, torch.full(tokens.shape, LOGPROB), torch.ones(len(tokens)))
        return made

# SPDX-License-Identifier: Apache-2.0
"""One engine of vLLM, and what is measured with it. run.py gives it orders over a pipe; SGLang's has
engine_sglang.py."""
import contextlib
import gc
import math
import os
import random
import statistics
import time
from collections import deque, namedtuple

import shapes

Load = namedtuple("Load", "requests shortest longest outputs")  #: prompts, log-uniform in length

#: Of the speed: few users, many of unequal lengths at once, prompts whose lengths have a heavy tail,
#: and long ones.
LOADS = {"low": Load(4, 1024, 1024, 128), "high": Load(64, 200, 3072, 128),
         "tail": Load(8, 1000, 30000, 128), "long": Load(2, 7000, 7000, 32)}
PROMPTS = (17, 130, 300, 777, 1500, 2048)  # of the log-probabilities
LONGER = (3000, 6000)  # further ones, where a row sees the keys of lists
GENERATED = 64  # tokens that decodes give, and that are then read as parts of prompts
GRAPH_SIZES = [1, 2, 4, 8, 16, 32, 64]


def options(case, backend, cache_bytes):
    """Arguments of vllm.LLM."""
    made = dict(model=str(case.folder), skip_tokenizer_init=True, load_format="dummy",
                dtype="bfloat16", attention_backend=backend.partition("@")[0],
                max_model_len=longest_of(case), max_num_seqs=64, max_num_batched_tokens=8192,
                enable_prefix_caching=False, seed=0, kv_cache_dtype=case.cache,
                kv_cache_memory_bytes=cache_bytes, gpu_memory_utilization=0.05, max_logprobs=1,
                worker_extension_cls="extension.Extension")
    if case.mode == "eager":
        made["enforce_eager"] = True
    else:  # "plain": the same graphs, but vLLM's own kernels instead of torch.compile's
        made["compilation_config"] = {"cudagraph_capture_sizes": GRAPH_SIZES,
                                      **({"backend": "eager"} if case.mode == "plain" else {})}
    if "canvas_length" in case.config:
        made["language_model_only"] = True
    if "rswa_window" in case.config:
        made["hf_overrides"] = _without_latents
    made.update(case.options)
    return made


def _without_latents(config):
    """DeepSeek's configuration with keys of each head, which transformers' own class cannot have."""
    from vllm.transformers_utils.configs.deepseek_vl2 import DeepseekVLV2TextConfig

    return DeepseekVLV2TextConfig(**{**config.to_dict(), "kv_lora_rank": None})


def longest_of(case):
    """Tokens that a request may have."""
    return min(32768, case.config["max_position_embeddings"])


def lengths_of(load, seed):
    r = random.Random(seed)
    return [round(math.exp(r.uniform(math.log(load.shortest), math.log(load.longest))))
            for _ in range(load.requests)]


class Engine:
    """Orders are its methods' names."""

    def __init__(self, case, backend, cache_bytes):
        began = time.time()
        from vllm import LLM

        self._vocab, self._longest = case.config["vocab_size"], longest_of(case)
        self._encodes = shapes.is_encoder(case.config)
        self._image = None
        if "images" in case.config:
            self._image = shapes.image_tokens(case.config)["<images>"]
            self._vocab -= 8  # which are the images'
        self._canvas = case.config.get("canvas_length", 0)
        self._head_scales = case.head_scales
        self._keeps_q = backend == "ATTNJIT@q16"
        made = options(case, backend, cache_bytes)
        if self._encodes:
            from vllm.config import PoolerConfig

            made.update(runner="pooling", pooler_config=PoolerConfig(task="token_embed"),
                        skip_tokenizer_init=False)
            del made["max_logprobs"]
        self._hears = shapes.is_speech(case.config)
        self._lengths = PROMPTS + (LONGER if shapes.list_keys(case.config) else ())
        if self._image or self._hears:
            made.update(skip_tokenizer_init=False, skip_mm_profiling=True)
        self.llm = LLM(**made)
        gc.collect()
        gc.freeze()
        share_cores()
        self.started = round(time.time() - began, 1)
        self._count = 0

    def weights(self):
        self.llm.collective_rpc("set_weights", args=(self._head_scales,))
        if self._keeps_q:
            self.llm.collective_rpc("keep_q")

    def about(self):
        import vllm

        return {**self.llm.collective_rpc("about")[0], "start_s": self.started,
                "vllm": vllm.__version__}

    def _prompts(self, lengths, seed):
        r, most = random.Random(seed), self._longest - GENERATED - 8
        return [[r.randrange(2, self._vocab) for _ in range(min(n, most))] for n in lengths]

    def _generate(self, prompts, tokens, **more):
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True,
                                detokenize=False, **more)
        return self.llm.generate([self._prompt(p) for p in prompts], params, use_tqdm=False)

    def _prompt(self, tokens):
        """Of a model with images a prompt has one at its begin, a long one another; of one that
        hears, sounds of five seconds. They are random."""
        import numpy

        random_ones = numpy.random.default_rng(tokens[0])
        if self._hears:
            sound = random_ones.standard_normal(5 * 16000, dtype="float32")
            return {"encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (sound, 16000)}},
                    "decoder_prompt": {"prompt_token_ids": tokens}}
        if self._image is None:
            return {"prompt_token_ids": tokens}
        from PIL import Image

        parts = [tokens] if len(tokens) < 1000 else [tokens[:700], tokens[700:]]
        return {"prompt_token_ids": sum(([self._image, *part] for part in parts), []),
                "multi_modal_data": {"image": [Image.fromarray(random_ones.integers(
                    0, 255, (224, 224, 3), dtype="uint8")) for _ in parts]}}

    def logprobs(self):
        """Log-probabilities: of the prompts' own tokens, which do not hang on near ties as chosen
        tokens do, and of chosen ones, by decodes and then by a prompt that has them in it."""
        def of_prompt(out):
            return [one[token].logprob for one, token
                    in zip(out.prompt_logprobs[1:], out.prompt_token_ids[1:])]

        prompts = self._prompts(self._lengths, 7)
        if self._encodes:
            return {"prompts": self._embedded(prompts)}
        if self._canvas:
            return {"prompts": self._read(prompts)}
        read = self._generate(prompts, 1, prompt_logprobs=0)
        made = self._generate(prompts, GENERATED, logprobs=0)
        tokens = [list(out.outputs[0].token_ids) for out in made]
        again = self._generate([p + t for p, t in zip(prompts, tokens)], 1, prompt_logprobs=0)
        chosen = [[one[token].logprob for one, token in zip(out.outputs[0].logprobs, t)]
                  for out, t in zip(made, tokens)]
        return {"prompts": [rounded(of_prompt(out)) for out in read], "tokens": tokens,
                "decoded": [rounded(c) for c in chosen],
                "read_again": [rounded(of_prompt(out)[-GENERATED:]) for out in again],
                "cached": sum(out.num_cached_tokens or 0 for out in made)}

    def _embedded(self, prompts):
        """Of each token some numbers of what the last layer gives."""
        made = self.llm.encode([{"prompt_token_ids": p} for p in prompts], use_tqdm=False,
                               pooling_task="token_embed")
        return [rounded(out.outputs.data[:, ::256].float().flatten().tolist()) for out in made]

    def _read(self, prompts):
        """Log-probabilities of some tokens in each place of a canvas behind a prompt. It is random,
        and read once, without being written."""
        from vllm import SamplingParams

        tokens = list(range(2, 10))
        params = [SamplingParams(
            max_tokens=self._canvas, ignore_eos=True, detokenize=False, logprob_token_ids=tokens,
            extra_args={"diffusion_seed_canvas": canvas, "diffusion_max_steps": 1,
                        "diffusion_read_only": True})
            for canvas in self._prompts([self._canvas] * len(prompts), 9)]
        made = self.llm.generate([self._prompt(p) for p in prompts], params, use_tqdm=False)
        return [rounded(place[token].logprob for place in out.outputs[0].logprobs
                        for token in tokens) for out in made]

    def alone(self):
        """Log-probabilities of requests in one batch, and how many are other bits where each
        request is served alone."""
        def of(out):
            read = [one[token].logprob for one, token
                    in zip(out.prompt_logprobs[1:], out.prompt_token_ids[1:])]
            return read + [one[token].logprob for one, token
                           in zip(out.outputs[0].logprobs, out.outputs[0].token_ids)]

        prompts = self._prompts(self._lengths, 7)
        both = dict(logprobs=0, prompt_logprobs=0)
        together = [of(out) for out in self._generate(prompts, GENERATED, **both)]
        single = [of(self._generate([p], GENERATED, **both)[0]) for p in prompts]
        return {"all": sum(map(len, together)),
                "others": sum(a != b for x, y in zip(together, single) for a, b in zip(x, y))}

    def load(self, name):
        """The requests of a load at once: tokens per second, times to the first token and per
        further token."""
        from vllm import SamplingParams

        load = LOADS[name]
        params = SamplingParams(temperature=0.0, max_tokens=load.outputs, ignore_eos=True,
                                detokenize=False)
        lengths = [min(n, self._longest - load.outputs) for n in lengths_of(load, 3)]
        prompts = deque(self._prompts(lengths, 3))
        engine, first, last, done = self.llm.llm_engine, {}, {}, 0
        began = time.perf_counter()
        while prompts:
            self._count += 1
            engine.add_request(f"r{self._count}", {"prompt_token_ids": prompts.popleft()}, params)
        while engine.has_unfinished_requests():
            outputs, now = engine.step(), time.perf_counter() - began
            for out in outputs:
                first.setdefault(out.request_id, now)
                last[out.request_id] = now
                done += len(out.outputs[0].token_ids) if out.finished else 0
        if done != load.requests * load.outputs:
            raise RuntimeError(f"{done} tokens came of {load.requests} times {load.outputs}")
        return {"output_per_s": round(done / max(last.values()), 2),
                "ttft_ms": round(1e3 * statistics.median(first.values()), 3),
                "tpot_ms": round(1e3 * statistics.median(
                    (last[r] - first[r]) / (load.outputs - 1) for r in first), 4)}

    def trace(self, load, requests, prompt, tokens):
        """Kernels of decodes, and of a load, by time: microseconds in all, and calls."""
        prompts = self._prompts([prompt] * requests, 5)
        self._generate(prompts, tokens)
        self.llm.collective_rpc("start_trace")
        self._generate(prompts, 1)
        first = self.llm.collective_rpc("stop_trace")[0]
        self.llm.collective_rpc("start_trace")
        self._generate(prompts, 1 + tokens)
        both = self.llm.collective_rpc("stop_trace")[0]
        self.llm.collective_rpc("start_trace")
        self.load(load)
        return {"prompt": first, "prompt_and_decodes": both, "tokens": tokens,
                "load": self.llm.collective_rpc("stop_trace")[0]}


def share_cores(processes=("self",)):
    """All engines compute on the same cores, one at a time: cores of one machine differ in clock
    and in their way to the GPU, and steps of small models wait for them."""
    cores = sorted(os.sched_getaffinity(0))[:8]
    for process in processes:
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), cores)


def rounded(values):
    return [round(v, 6) for v in values]


def serve(pipe, log, environment, make, *arguments):
    """A process: makes an engine, and answers orders (name, arguments) with ("done", result) or
    ("failed", text)."""
    os.setsid()  # its children end with it
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.update(environment)
    try:
        engine = make(*arguments)
        pipe.send(("done", engine.started))
        while True:
            name, arguments = pipe.recv()
            pipe.send(("done", getattr(engine, name)(*arguments)))
    except Exception as error:  # the driver tells it, and goes on with the others
        import traceback

        traceback.print_exc()
        pipe.send(("failed", f"{type(error).__name__}: {error}"[:500]))
    os._exit(0)

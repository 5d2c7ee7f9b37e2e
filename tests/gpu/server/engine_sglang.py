# SPDX-License-Identifier: Apache-2.0
"""One engine of SGLang, and what is measured with it. run_sglang.py gives it orders over a pipe."""
import asyncio
import json
import os
import pathlib
import random
import statistics
import tempfile
import time

import shapes
from engine import (GENERATED, GRAPH_SIZES, LOADS, LONGER, PROMPTS, lengths_of, longest_of,
                    rounded, share_cores)

SOUNDS = 24  # of a model that hears: it takes no prompts, and gives few tokens of each


def options(case, backend, tokens):
    """Arguments of sglang.Engine."""
    made = dict(model_path=str(case.folder), skip_tokenizer_init=True, load_format="dummy",
                dtype="bfloat16", attention_backend=backend.lower(), context_length=longest_of(case),
                max_running_requests=64, chunked_prefill_size=8192, disable_radix_cache=True,
                random_seed=0, kv_cache_dtype="fp8_e4m3" if case.cache == "fp8" else "auto",
                max_total_tokens=tokens, mem_fraction_static=0.9, page_size=64,
                grammar_backend="none", sampling_backend="pytorch", log_level="info",
                # NOTE: the first token is sent at once; further ones need not wake this process.
                stream_interval=16, decode_log_interval=1 << 20,
                # NOTE: an engine that waits looks for requests without end, and several of them take
                # the cores of the one that is timed.
                sleep_on_idle=True,
                # NOTE: engines that start at once would find the same free one.
                nccl_port=20000 + os.getpid() % 20000)
    if case.mode == "eager":
        made["disable_cuda_graph"] = True
    else:
        made["cuda_graph_bs_decode"] = GRAPH_SIZES
        if case.mode == "plain":  # graphs of decodes alone, which start sooner
            made["disable_prefill_cuda_graph"] = True
    if shapes.is_encoder(case.config):
        made["is_embedding"] = True
    if shapes.is_speech(case.config):  # whose context has the sound's rows, too
        made.update(skip_tokenizer_init=False, context_length=2048, chunked_prefill_size=-1,
                    json_model_override_args='{"max_position_embeddings": 2048}')
    made.update(case.options)
    return made


class Engine:
    """Orders are its methods' names."""

    def __init__(self, case, backend, tokens):
        began = time.time()
        import psutil
        import sglang

        self._vocab = case.config["vocab_size"]
        self._lengths = PROMPTS + (LONGER if shapes.list_keys(case.config) else ())
        self._encodes = shapes.is_encoder(case.config)
        self._hears = shapes.is_speech(case.config)
        self._drafts = case.drafts_folder is not None
        self._sglang = sglang
        if self._hears:
            _hear_numbers()
        self.engine = sglang.Engine(**options(case, backend, tokens))
        children = psutil.Process().children(recursive=True)
        share_cores(["self", *(child.pid for child in children)])
        self.started = round(time.time() - began, 1)

    def weights(self):
        """They are made as the model is loaded."""

    def about(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "about.json")
            self.engine.collective_rpc("about", path=str(path))
            said = json.loads(path.read_text(encoding="utf-8"))
        return {**said, "start_s": self.started, "sglang": self._sglang.__version__}

    def _prompts(self, lengths, seed):
        r = random.Random(seed)
        return [[r.randrange(2, self._vocab) for _ in range(n)] for n in lengths]

    def _generate(self, prompts, tokens, **more):
        return self.engine.generate(input_ids=prompts, sampling_params=_sampling(tokens), **more)

    def logprobs(self):
        """As engine.Engine's."""
        def of_prompt(out):
            return [one[0] for one in out["meta_info"]["input_token_logprobs"][1:]]

        if self._hears:
            return self._heard()
        prompts = self._prompts(self._lengths, 7)
        if self._encodes:
            return {"prompts": self._embedded(prompts)}
        read = self._generate(prompts, 1, return_logprob=True, logprob_start_len=0)
        made = self._generate(prompts, GENERATED, return_logprob=True)
        chosen = [out["meta_info"]["output_token_logprobs"] for out in made]
        tokens = [[one[1] for one in of_request] for of_request in chosen]
        again = self._generate([p + t for p, t in zip(prompts, tokens)], 1, return_logprob=True,
                               logprob_start_len=0)
        return {"prompts": [rounded(of_prompt(out)) for out in read], "tokens": tokens,
                "decoded": [rounded(one[0] for one in of_request) for of_request in chosen],
                "read_again": [rounded(of_prompt(out)[-GENERATED:]) for out in again],
                "cached": sum(out["meta_info"]["cached_tokens"] for out in made)}

    def _embedded(self, prompts):
        """Numbers of the first row of each prompt, which sees all of it."""
        from sglang.srt.managers.io_struct import EmbeddingReqInput

        answer = self.engine.tokenizer_manager.generate_request(
            EmbeddingReqInput(input_ids=prompts), None)
        made = self.engine.loop.run_until_complete(answer.__anext__())
        return [rounded(out["embedding"]) for out in made]

    def _heard(self):
        """Tokens of sounds, and their log-probabilities."""
        made = self.engine.generate(
            prompt=[""] * SOUNDS, audio_data=[str(i) for i in range(SOUNDS)],
            sampling_params=_sampling(GENERATED), return_logprob=True)
        chosen = [out["meta_info"]["output_token_logprobs"] for out in made]
        return {"tokens": [[one[1] for one in of_request] for of_request in chosen],
                "decoded": [rounded(one[0] for one in of_request) for of_request in chosen]}

    def alone(self):
        """As engine.Engine's."""
        def of(out):
            said = out["meta_info"]
            return [one[0] for one in said["input_token_logprobs"][1:] + said["output_token_logprobs"]]

        prompts = self._prompts(PROMPTS, 7)
        both = dict(return_logprob=True, logprob_start_len=0)
        together = [of(out) for out in self._generate(prompts, GENERATED, **both)]
        single = [of(self._generate([p], GENERATED, **both)[0]) for p in prompts]
        return {"all": sum(map(len, together)),
                "others": sum(a != b for x, y in zip(together, single) for a, b in zip(x, y))}

    def agreement(self):
        """How many of the tokens that were generated are those that a prompt of them, too, finds the
        most probable."""
        prompts = self._prompts(PROMPTS, 7)
        made = self._generate(prompts, GENERATED)
        again = self._generate([p + out["output_ids"] for p, out in zip(prompts, made)], 1,
                               return_logprob=True, logprob_start_len=0, top_logprobs_num=1)
        same = [best[0][1] == token for out, read in zip(made, again) for token, best
                in zip(out["output_ids"], read["meta_info"]["input_top_logprobs"][-GENERATED:])]
        found = {"agree": round(sum(same) / len(same), 4), "tokens": len(same)}
        if self._drafts:  # of a verification
            found["accepted"] = round(statistics.mean(
                out["meta_info"]["spec_accept_length"] for out in made), 3)
        return found

    def load(self, name):
        """As engine.Engine's."""
        load = LOADS[name]
        prompts = self._prompts(lengths_of(load, 3), 3)
        times, accepted = self.engine.loop.run_until_complete(self._together(prompts, load.outputs))
        found = {"output_per_s": round(load.requests * load.outputs / max(t[1] for t in times), 2),
                 "ttft_ms": round(1e3 * statistics.median(t[0] for t in times), 3),
                 "tpot_ms": round(1e3 * statistics.median(
                     (last - first) / (load.outputs - 1) for first, last in times), 4)}
        return {**found, "accepted": accepted} if accepted else found

    async def _together(self, prompts, tokens):
        """Times of the first and the last token of each request, and tokens of a verification."""
        began, accepted = time.perf_counter(), []

        async def one(prompt):
            first = None
            stream = await self.engine.async_generate(input_ids=prompt, stream=True,
                                                      sampling_params=_sampling(tokens))
            async for out in stream:
                last = time.perf_counter() - began
                first = last if first is None else first
            said = out["meta_info"]
            if said["completion_tokens"] != tokens:
                raise RuntimeError(f"{said['completion_tokens']} tokens came of {tokens}")
            accepted.append(said.get("spec_accept_length"))
            return first, last

        times = await asyncio.gather(*map(one, prompts))
        known = [a for a in accepted if a]
        return times, round(statistics.mean(known), 3) if known else None

    def trace(self, requests, prompt, tokens):
        raise NotImplementedError("traces are vLLM's alone")


def _hear_numbers():
    """A sound is a random one of five seconds, by its number: to read files SGLang wants packages."""
    import numpy
    from sglang.srt.multimodal.processors import whisper

    whisper.load_audio = lambda number: numpy.random.default_rng(int(number)).standard_normal(
        5 * 16000, dtype="float32")


def _sampling(tokens):
    return {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}


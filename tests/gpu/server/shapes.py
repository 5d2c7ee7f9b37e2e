# SPDX-License-Identifier: Apache-2.0
"""The models that a server is tested with: the attention of real ones, and random weights."""
import dataclasses
import json
import pathlib

_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}
_QWEN2 = {**_LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
          "vocab_size": 152064, "rope_theta": 1000000.0, "use_sliding_window": False}
_GEMMA = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
          "head_dim": 256, "num_attention_heads": 16,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
          "tie_word_embeddings": True, "attention_bias": False, "pad_token_id": 0,
          "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}
_YARN = {"rope_type": "yarn", "type": "yarn", "original_max_position_embeddings": 4096,
         "beta_fast": 32.0, "beta_slow": 1.0}
_DEEPSEEK = {
    **_LLAMA, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "topk_method": "greedy", "scoring_func": "softmax",
    "norm_topk_prob": False, "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1,
    "vocab_size": 102400, "max_position_embeddings": 163840, "rope_theta": 10000.0,
    "rope_scaling": {**_YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}}
del _DEEPSEEK["head_dim"]
_SMALL = {**_LLAMA, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 6,
          "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 4096,
          "max_position_embeddings": 32768}

#: By the names that run.py takes. Those with experts have fewer of them, in bf16.
MODELS = {
    "llama8b": _LLAMA,
    "qwen2.5-7b": {**_QWEN2, "hidden_size": 3584, "intermediate_size": 18944,
                   "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4},
    "qwen2.5-14b": {**_QWEN2, "hidden_size": 5120, "intermediate_size": 13824,
                    "num_hidden_layers": 48, "num_attention_heads": 40},
    "qwen3-8b": {**_LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
                 "intermediate_size": 12288, "num_hidden_layers": 36, "vocab_size": 151936,
                 "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "attention_bias": False},
    "gemma2-9b": {
        **_GEMMA, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
        "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
        "vocab_size": 256000, "max_position_embeddings": 8192, "rope_theta": 10000.0,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096},
    "gemma3-12b": {
        **_GEMMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
        "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48,
        "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 8,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "gptoss": {
        **_LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
        "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 12,
        "num_attention_heads": 64, "head_dim": 64, "vocab_size": 201088, "pad_token_id": 0,
        "initial_context_length": 4096, "rope_theta": 150000.0, "attention_bias": True,
        "rope_scaling": {**_YARN, "factor": 32.0, "truncate": False}, "num_local_experts": 8,
        "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 6, "swiglu_limit": 7.0},
    # DeepSeek-V2-Lite's attention, of 16 heads, and DeepSeek-V3's, of 128
    "deepseek-16h": {**_DEEPSEEK, "hidden_size": 2048, "intermediate_size": 10944,
                     "moe_intermediate_size": 1408, "num_hidden_layers": 8,
                     "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": None,
                     "n_shared_experts": 2},
    "deepseek-128h": {**_DEEPSEEK, "hidden_size": 7168, "intermediate_size": 18432,
                      "moe_intermediate_size": 2048, "num_hidden_layers": 4,
                      "num_attention_heads": 128, "num_key_value_heads": 128,
                      "q_lora_rank": 1536, "n_shared_experts": 1},
}

_SMALL_GEMMA = {
    **_GEMMA, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 6,
    "vocab_size": 4096, "max_position_embeddings": 8192, "sliding_window": 512,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}

#: Small ones, for vLLM's kinds of layers and the engine's options, not for speeds.
KINDS = {
    "small": _SMALL,
    "one-head": {**_SMALL, "num_key_value_heads": 1},
    "few-words": {**_SMALL, "vocab_size": 64},  # which n-grams guess
    "alibi": {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": True,
              "bias": False, "new_decoder_architecture": True,
              "parallel_attn": True, "num_ln_in_parallel_attn": 2, "num_attention_heads": 16,
              "num_kv_heads": 4, "num_hidden_layers": 6, "layer_norm_epsilon": 1e-5,
              **{name: _SMALL[name] for name in (
                  "hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
                  "bos_token_id", "eos_token_id", "torch_dtype")}},
    "chunks": {**_SMALL, "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text",
               "attention_chunk_size": 512, "no_rope_layers": [1, 1, 1, 0, 1, 1],
               "interleave_moe_layer_step": 6, "num_local_experts": 1, "num_experts_per_tok": 1,
               "intermediate_size_mlp": 5632, "use_qk_norm": True, "attn_temperature_tuning": False},
    "encoder": {**_SMALL, "architectures": ["LlamaBidirectionalModel"], "is_causal": False,
                "pooling": "avg", "max_position_embeddings": 8192},
    "encoder-windows": {
        **_SMALL_GEMMA, "architectures": ["Gemma3TextModel"], "model_type": "gemma3_text",
        "use_bidirectional_attention": True, "is_causal": False},
    # Rows that were generated see the prompt, and so many of one another. It is the text's part of a
    # model of images: engine.py says what its configuration has besides.
    "r-swa": {**_SMALL, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
              "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0,
              "v_head_dim": 128, "first_k_dense_replace": 8, "rswa_window": 16},
    # Whisper's decoder, whose rows see the rows of another sequence, which sees itself both ways
    "cross": {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
        "d_model": 1024, "encoder_layers": 2, "decoder_layers": 4, "encoder_attention_heads": 16,
        "decoder_attention_heads": 16, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
        "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 16,
        "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448,
        "max_position_embeddings": 448, "vocab_size": 4096, "tie_word_embeddings": True,
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 2,
        "torch_dtype": "bfloat16"},
    # Gemma 3 with pictures of 64 tokens, which see each other both ways: write() has the rest.
    "images": {**_SMALL_GEMMA, "architectures": ["Gemma3ForConditionalGeneration"],
               "model_type": "gemma3_text", "images": 64},
}

#: Kinds of layers of SGLang's own models.
OF_SGLANG = {
    # A model of hidden states that BERT's layers give, and of them the first row's.
    "bert": {"architectures": ["BertModel"], "model_type": "bert", "is_causal": False,
             "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6,
             "num_attention_heads": 16, "vocab_size": 4096, "max_position_embeddings": 8192,
             "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
             "position_embedding_type": "absolute",
             "tie_word_embeddings": True, "pad_token_id": 0, "torch_dtype": "bfloat16"},
    # Of Llama 4 SGLang has chunks in the model with images alone, whose part of images it does not make.
    "chunks-of-images": {
        **_SMALL, "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4_text",
        "attention_chunk_size": 512, "no_rope_layers": [1, 1, 1, 0, 1, 1],
        "interleave_moe_layer_step": 8, "num_local_experts": 1, "num_experts_per_tok": 1,
        "intermediate_size_mlp": 5632, "use_qk_norm": False, "attn_temperature_tuning": False},
    # a layer with experts, which is what DeepSeek-V3's model of drafts has, too
    "mla": {**MODELS["deepseek-16h"], "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3", "num_hidden_layers": 1, "first_k_dense_replace": 0,
            "n_routed_experts": 2, "num_nextn_predict_layers": 1, "vocab_size": 4096},
}

#: DeepSeek-V3.2's attention over the lists of an indexer, whose scores are DeepGEMM's, which nvcc
#: compiles when the first rows come.
WITH_LISTS = {
    "deepseek-v32": {**MODELS["deepseek-128h"], "architectures": ["DeepseekV32ForCausalLM"],
                     "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64,
                     "index_head_dim": 128},
}

#: Layers of several kinds, to which vLLM fits its pages: Mamba beside attention, whose state is as
#: long as 1040 rows of keys, and layers with other depths.
MIXED = {
    "mamba": {**_SMALL, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
              "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
              "num_hidden_layers": 4, "hybrid_override_pattern": "M-M*", "chunk_size": 128,
              "mamba_num_heads": 128, "mamba_head_dim": 64, "mamba_hidden_act": "silu",
              "mamba_proj_bias": False, "mlp_hidden_act": "relu2", "n_groups": 8,
              "ssm_state_size": 128, "conv_kernel": 4, "expand": 2, "use_conv_bias": True},
    "two-depths": {**_SMALL_GEMMA, "architectures": ["Gemma4ForCausalLM"],
                   "model_type": "gemma4_text", "global_head_dim": 512},
}
del MIXED["two-depths"]["query_pre_attn_scalar"]

#: Rows that are written over and over see each other both ways, and those of prompts beside them
#: what is before them. write() has the rest.
KINDS["canvas"] = {
    **MIXED["two-depths"], "architectures": ["DiffusionGemmaForBlockDiffusion"],
    "model_type": "diffusion_gemma_text", "global_head_dim": 256, "canvas_length": 32}



@dataclasses.dataclass(frozen=True)
class With:
    """What a case has besides its model: MODEL+NAME."""

    options: dict = dataclasses.field(default_factory=dict)  #: of vllm.LLM or sglang.Engine
    environment: dict = dataclasses.field(default_factory=dict)
    manifest: tuple = ()  #: options of attnjit manifest; None: it has no such kernels
    head_scales: bool = False  #: of K and V, beside a cache of fp8
    by_tokens: bool = False  #: tokens are compared: the batches meant are not those of log-probabilities
    drafts: str = ""  #: the architecture of a model of drafts that has the model's layers


WITH = {
    "drafts": With({"speculative_config": {
        "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4,
        "prompt_lookup_min": 1}}, manifest=("--drafts", "4")),
    "prefix": With({"enable_prefix_caching": True, "max_num_batched_tokens": 512}),
    "invariant": With(environment={"VLLM_BATCH_INVARIANT": "1"}),
    "tp2": With({"tensor_parallel_size": 2}, manifest=("--tp", "2")),
    "dcp2": With({"tensor_parallel_size": 2, "decode_context_parallel_size": 2},
                 manifest=("--tp", "2", "--dcp", "2")),
    "head-scales": With(head_scales=True, manifest=None),  # which come after the layers have asked
}

_CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3,
          "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
_BRANCHES = {**_CHAIN, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8,
             "page_size": 1}

#: The same of SGLang.
WITH_SGLANG = {
    "drafts": With({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4,
                    "page_size": 1},  # trees over longer pages SGLang refuses
                   manifest=("--drafts", "3", "--tree", "--page", "1"), by_tokens=True),
    "eagle": With(_CHAIN, manifest=("--drafts", "3"), by_tokens=True,
                  drafts="LlamaForCausalLMEagle"),
    "eagle-tree": With(_BRANCHES, manifest=("--drafts", "7", "--tree", "--page", "1"),
                       by_tokens=True, drafts="LlamaForCausalLMEagle"),
    "nextn": With(_CHAIN, manifest=("--drafts", "3"), by_tokens=True,
                  drafts="DeepseekV3ForCausalLM"),
    "nextn-tree": With(_BRANCHES, manifest=("--drafts", "7", "--tree", "--page", "1"),
                       by_tokens=True, drafts="DeepseekV3ForCausalLM"),
    "one-pool": With({"disable_hybrid_swa_memory": True}),
    "page1": With({"page_size": 1}, manifest=("--page", "1")),
    "mixed": With({"enable_mixed_chunk": True, "chunked_prefill_size": 512}, by_tokens=True),
    "prefix": With({"disable_radix_cache": False}),
    "deterministic": With({"enable_deterministic_inference": True}),
}


def is_mla(config):
    return bool(config.get("kv_lora_rank"))


def list_keys(config):
    """The most keys that a row sees, which an indexer chooses; 0: all."""
    return config.get("index_topk", 0)


def kv_heads(config):
    return config.get("num_kv_heads") or config.get("num_key_value_heads",
                                                    config["num_attention_heads"])


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def is_speech(config):
    return "encoder_layers" in config


def has_manifest(config):
    """Whether attnjit manifest knows all kernels of a model."""
    return "rswa_window" not in config


def is_encoder(config):
    """A model that makes embeddings of rows that see both ways."""
    return not config.get("is_causal", True)


#: Options of vllm.LLM of backends with these names behind "@". Those of "q16" are attnjit's layers':
#: Q of prompts, too, keeps its 16 bits beside a cache of fp8.
REFERENCES = {
    "q16": {},
    "auto": {"kv_cache_dtype": "auto"}, "float32": {"dtype": "float32"},
    "whole": {"decode_context_parallel_size": 1}}


def backends_of(config, cache="auto", options=None, head_scales=False):
    """vLLM's default for the card, and another of its own that says what a deviation is worth.

    Where one backend alone serves a model, it is that other, and what both should give has a cache
    of 16 bits, or numbers of 32.
    """
    if head_scales:
        return "FLASH_ATTN@auto", "FLASH_ATTN"
    if cache == "fp8_per_token_head":
        return "FLASH_ATTN@auto", "TRITON_ATTN"
    # FlashAttention-3 has none of these
    if (config.get("alibi") or config.get("global_head_dim", 0) > 256
            or {"images", "rswa_window", "canvas_length"} & config.keys()):
        return "TRITON_ATTN@float32", "TRITON_ATTN"
    if list_keys(config):  # FlashAttention takes 16 bits alone
        return ("FLASHMLA_SPARSE@auto" if cache.startswith("fp8") else "FLASH_ATTN_MLA_SPARSE",
                "FLASHMLA_SPARSE")
    if is_mla(config):  # the first that takes the cache
        return ("FLASHMLA" if cache.startswith("fp8") else "FLASH_ATTN_MLA", "TRITON_MLA")
    if (options or {}).get("decode_context_parallel_size", 1) > 1:
        return "FLASH_ATTN", "TRITON_ATTN@whole"
    return ("FLASH_ATTN", "TRITON_ATTN")


def with_layers(config, layers):
    """The same model with fewer layers, its last ones."""
    made = {**config, "num_hidden_layers": layers}
    for name in {"layer_types", "no_rope_layers"} & config.keys():
        made[name] = config[name][-layers:]
    return made


def tiny(config):
    """Two layers, or four, of which one has no chunks, and few heads, to see how a run goes without a
    GPU."""
    small = {"hidden_size": 256, "intermediate_size": 512, "intermediate_size_mlp": 512,
             "moe_intermediate_size": 256, "vocab_size": 2048, "num_attention_heads": 4,
             "num_key_value_heads": 4 if is_mla(config) else min(2, kv_heads(config)),
             "num_kv_heads": 2, "head_dim": 64, "d_model": 256, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
    layers = 4 if "no_rope_layers" in config else 2
    return {**with_layers(config, layers), **{name: n for name, n in small.items() if name in config}}


def all_experts(config):
    """The same model with each token going to all experts: a router's near ties are decided by
    roundings, and then all that follows is another model's."""
    each = config.get("num_local_experts", config.get("n_routed_experts"))
    names = ("num_experts_per_tok", "experts_per_token")
    return {**config, **{name: each for name in names if name in config}}


def weight_bytes(config):
    """Of a model in 16 bits, about."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    depth = 192 if is_mla(config) else head_dim(config)
    attention = 2 * hidden * depth * (heads + kv_heads(config))
    experts = config.get("num_local_experts", config.get("n_routed_experts")) or 1
    inner = config.get("intermediate_size", 4 * hidden)
    width = max(inner, config.get("moe_intermediate_size", 0) * experts if is_mla(config)
                else inner * experts)
    ends = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    return 2 * (layers * (attention + 3 * hidden * width) + ends)


_OF_IMAGES = ("<image>", "<images>", "</images>", "\n", "\n\n", "\n\n\n", "\n\n\n\n")


#: What SGLang begins each answer with, the last ids.
_OF_SPEECH = ("<|en|>", "<|transcribe|>", "<|notimestamps|>")


def image_tokens(config):
    """Of a model with images: the ids of _OF_IMAGES, the last ones."""
    return {word: config["vocab_size"] - 1 - i for i, word in enumerate(_OF_IMAGES)}


def _with_text(config):
    """config.json of Llama 4 around its text's."""
    text, ids = dict(config), image_tokens(config)
    return {"architectures": text.pop("architectures"), "model_type": "llama4",
            "torch_dtype": "bfloat16", "tie_word_embeddings": False, "text_config": text,
            "boi_token_index": ids["<images>"], "eoi_token_index": ids["</images>"],
            "image_token_index": ids["<image>"], "vision_config": {
                "model_type": "llama4_vision_model", "hidden_size": 256, "num_hidden_layers": 1,
                "num_attention_heads": 4, "intermediate_size": 1024, "vision_output_dim": 256,
                "projector_input_dim": 256, "projector_output_dim": 256}}


def _with_images(config):
    """config.json of Gemma 3 around its text's, and files of its processor."""
    ids, text = image_tokens(config), dict(config)
    side = 14 * 2 * round(text["images"] ** 0.5)  # patches of 14, pooled by 2
    whole = {"architectures": text.pop("architectures"), "model_type": "gemma3",
             "mm_tokens_per_image": text.pop("images"), "image_token_index": ids["<image>"],
             "boi_token_index": ids["<images>"], "eoi_token_index": ids["</images>"],
             "torch_dtype": "bfloat16", "text_config": text,
             "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 256,
                               "intermediate_size": 512, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "image_size": side, "patch_size": 14}}
    processor = {"processor_class": "Gemma3Processor", "image_seq_length": config["images"]}
    images = {"image_processor_type": "Gemma3ImageProcessor", "do_resize": True,
              "size": {"height": side, "width": side}, "processor_class": "Gemma3Processor"}
    return whole, {"processor_config.json": processor, "preprocessor_config.json": images}


def write(root, name, config):
    """A folder with config.json and a tokenizer of words w2, w3, ..: what `vllm serve` asks for."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = pathlib.Path(root, name)
    folder.mkdir(parents=True, exist_ok=True)
    words = {"<s>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, config["vocab_size"])}}
    whole, more, special, generation = config, {}, {}, {}
    if "images" in config:
        whole, more = _with_images(config)
        special = dict(zip(("image_token", "boi_token", "eoi_token"), _OF_IMAGES))
        words = {**{word: i for word, i in words.items() if i < config["vocab_size"] - 7},
                 **image_tokens(config)}
    elif "canvas_length" in config:
        whole = {"architectures": config["architectures"], "model_type": "diffusion_gemma",
                 "torch_dtype": "bfloat16", "canvas_length": config["canvas_length"],
                 "text_config": {name: value for name, value in config.items() if name not in (
                     "architectures", "canvas_length")}}
        generation = {"max_denoising_steps": 4, "stability_threshold": 1, "t_min": 0.4,
                      "t_max": 0.8, "confidence_threshold": 0.005, "sampler_config": {
                          "_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1}}
    elif config["architectures"] == ["Llama4ForConditionalGeneration"]:
        whole = _with_text(config)
    elif is_speech(config):
        words = {**{word: i for word, i in words.items() if i < config["vocab_size"] - 3},
                 **{word: config["vocab_size"] - 1 - i for i, word in enumerate(_OF_SPEECH)}}
        more = {"preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 30,
            "feature_size": config["num_mel_bins"], "hop_length": 160, "n_fft": 400,
            "sampling_rate": 16000, "processor_class": "WhisperProcessor"}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "w2", "model_max_length": config["max_position_embeddings"],
            **({"extra_special_tokens": special} if special else {})}
    for file, content in (("tokenizer_config.json", said), ("config.json", whole), *more.items(),
                          ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 1,
                                                      **generation})):
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return folder

# SPDX-License-Identifier: Apache-2.0
"""Names between attnjit and vLLM, for what must not import vLLM."""
RECORD = "ATTNJIT_RECORD_KEYS"  #: of the environment: a file that gets each kernel asked for
GROUP, EARLY_GROUP = "vllm.general_plugins", "vllm.platform_plugins"  #: of entry points
TESTED = "0.33"  #: the version of vLLM after whose interface the backend was made

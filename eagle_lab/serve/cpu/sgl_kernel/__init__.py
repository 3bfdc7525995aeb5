"""SGLang's CPU kernels in PyTorch: what a dense Llama-like target and an EAGLE-3 head call, and nothing else.

The CPU build of the real `sgl_kernel` is on no package index. SGLang 0.5.16 and later have a complete CPU path for
EAGLE that lacks only these functions; their names and signatures are its call sites' (srt/layers/attention/
intel_amx_backend.py, srt/speculative/, srt/mem_cache/, kernels/ops/). Written for float32 and for any CPU. A name that
is missing here after an upgrade of SGLang is an ImportError at the start of the server.
"""

import sys

import torch

from . import attention, layers
from .draft_tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu
from .kv_slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)

__version__ = "0.0.0+eagle.lab.torch"

# plain functions in the place of registered operators: SGLang only calls them
vars(torch.ops.sgl_kernel).update(
    extend_attention_cpu=attention.extend_attention_cpu, decode_attention_cpu=attention.decode_attention_cpu
)
if "sglang" in sys.modules:
    layers.register()

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

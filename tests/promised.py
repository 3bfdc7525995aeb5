"""What scripts may count on."""

PROMISED_COLUMNS = [
    *("spec", "num_steps", "eagle_topk", "num_draft_tokens", "accept_length", "accept_length_low"),
    *("accept_length_high", "tok_s", "baseline_tok_s", "speedup", "captured_width", "speculative_algorithm"),
]
"""The first columns of summary.csv, in order."""

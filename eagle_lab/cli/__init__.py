"""One thin module per verb; `app` dispatches `eagle-lab VERB [overrides]`. Nothing here imports torch at import."""

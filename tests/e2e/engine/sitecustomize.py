"""On PYTHONPATH of a sweep that serves with the engine beside it: a tokenizer that needs no transformers.

Their import takes 5 s of a core in every process of the sweep.
"""

from eagle_lab.serve import chat


class Characters:
    def apply_chat_template(self, messages, **_):
        return [ord(c) % 256 for m in messages for c in m["content"]]


chat.load_tokenizer = lambda path: Characters()

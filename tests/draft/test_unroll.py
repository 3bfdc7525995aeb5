"""The unroll over all rows at once against drafting as a server does it: one position and one step at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from eagle_lab.draft.head import Head
from eagle_lab.draft.unroll import Batch, hits, unroll
from eagle_lab.ops.unroll_attention.layout import Layout
from tests.draft.conftest import SHAPE, random_head


def make_batch(head: Head, docs: list[tuple[int, int, int]], seed: int = 1) -> Batch:
    """docs: (tokens, first supervised position, supervised positions)."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([n for n, _, _ in docs])
    start = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    doc = torch.cat([torch.full((n,), b) for b, (_, _, n) in enumerate(docs)])
    pos = torch.cat([torch.arange(s, s + n) for _, s, n in docs])
    total, s = int(start[-1]), head.shape
    return Batch(
        input_ids=torch.randint(0, s.vocab_size, (total,), generator=g),
        position=torch.cat([torch.arange(n) for n in lengths.tolist()]),
        aux=torch.randn(total, s.num_aux * s.target_hidden_size, generator=g),
        layout=Layout(start, doc, pos),
        steps_left=torch.cat([torch.arange(n, 0, -1) for _, _, n in docs]),
        teacher_hidden=torch.randn(len(doc), s.target_hidden_size, generator=g),
        teacher_lse=torch.zeros(len(doc)),
        teacher_top=torch.randint(0, s.vocab_size, (len(doc),), generator=g),
    )


def norm(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def serve(head: Head, ids, aux, t: int, steps: int) -> list[torch.Tensor]:
    """Logits of a chain that starts at position t of one document, drafted with a growing cache. Plain torch."""
    s, layer = head.shape, head.midlayer
    attn, mlp = layer.self_attn, layer.mlp

    def rotate(x, position):
        half = s.head_dim // 2
        theta = s.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
        angle = (position * theta).repeat(2)
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angle.cos() + turned * angle.sin()

    def step(token, hidden, position, cache):
        eps = s.rms_norm_eps
        embedded = norm(head.embed[token], layer.input_layernorm.weight, eps)
        x = torch.cat([embedded, norm(hidden, layer.hidden_norm.weight, eps)])
        k = rotate(F.linear(x, attn.k_proj.weight).view(s.num_key_value_heads, s.head_dim), position)
        cache.append((k, F.linear(x, attn.v_proj.weight).view(s.num_key_value_heads, s.head_dim)))
        q = rotate(F.linear(x, attn.q_proj.weight).view(s.num_attention_heads, s.head_dim), position)
        out = []
        for h in range(s.num_attention_heads):
            kv = h // (s.num_attention_heads // s.num_key_value_heads)
            scores = torch.stack([q[h] @ key[kv] for key, _ in cache]) * s.head_dim**-0.5
            out.append(scores.softmax(0) @ torch.stack([value[kv] for _, value in cache]))
        h = hidden + F.linear(torch.cat(out), attn.o_proj.weight)
        y = norm(h, layer.post_attention_layernorm.weight, eps)
        y = F.linear(F.silu(F.linear(y, mlp.gate_proj.weight)) * F.linear(y, mlp.up_proj.weight), mlp.down_proj.weight)
        return h + y

    cache: list = []
    if s.fc_norm:
        parts = zip(aux.chunk(s.num_aux, -1), head.fc_norm, strict=True)
        aux = torch.cat([norm(part, own.weight, s.rms_norm_eps) for part, own in parts], -1)
    fused = F.linear(aux, head.fc.weight)
    for position in range(t + 1):
        hidden = step(ids[position + 1], fused[position], position, cache)
    logits = []
    for i in range(steps):
        logits.append(F.linear(norm(hidden, head.norm.weight, s.rms_norm_eps), head.lm_head.weight))
        if i + 1 < steps:
            carried = norm(hidden, head.norm.weight, s.rms_norm_eps) if s.norm_output else hidden
            hidden = step(ids[t + 2 + i], carried, t + 1 + i, cache)
    return logits


@pytest.mark.parametrize("options", [{}, {"fc_norm": True}, {"norm_output": True}], ids=str)
@torch.no_grad()
def test_every_row_and_step_equals_drafting_one_at_a_time(options):
    head = random_head(replace(SHAPE, **options))
    docs = [(9, 2, 6), (5, 3, 1), (12, 0, 11)]
    batch = make_batch(head, docs)
    steps = 4
    ours = [head.lm_head(h) for h in unroll(head, batch, steps)]
    compared = 0
    for row, token in enumerate(batch.layout.row_token.tolist()):
        b = int(batch.layout.row_doc[row])
        start, end = int(batch.layout.doc_start[b]), int(batch.layout.doc_start[b + 1])
        t = token - start
        possible = min(steps, end - start - 1 - t)  # a step needs its forced token x[t+1+i]
        wanted = serve(head, batch.input_ids[start:end], batch.aux[start:end], t, possible)
        for i in range(possible):
            # fp32, one layer, values of order 1-10
            torch.testing.assert_close(ours[i][row], wanted[i], atol=2e-4, rtol=2e-4)
            compared += 1
    assert compared == 18 + 1 + 38


@torch.no_grad()
def test_hits_follow_the_teacher_of_the_same_document(head):
    batch = make_batch(head, [(9, 2, 6), (5, 3, 1), (12, 0, 11)])
    proposed = [head.target_ids(head.lm_head(h).argmax(-1)) for h in unroll(head, batch, 3)]
    batch.teacher_top[3] = proposed[0][3]  # step 0 of row 3
    batch.teacher_top[4] = proposed[2][2]  # step 2 of row 2 reads teacher row 4
    found = hits(head, batch, 3)
    assert found[3, 0]
    assert found[2, 2]
    assert not found[6, 1:].any()  # the document of row 6 has one supervised position only

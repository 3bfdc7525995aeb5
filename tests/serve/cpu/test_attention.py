"""The batched operators against attention written out row by row in float64."""

from __future__ import annotations

import pytest
import torch
from sgl_kernel import attention
from torch import Tensor

SLOTS, POSITIONS, SCALE = 700, 96, 0.3
# float32 sums of up to 96 products of order 1
TOLERANCE = {"atol": 2e-6, "rtol": 1e-5}


class Pool:
    """A KV pool whose slots are scattered at random, as after many requests."""

    def __init__(self, lengths: list[int], kv_heads: int, dim: int, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.keys, self.values = (torch.randn(SLOTS, kv_heads, dim, generator=g) for _ in range(2))
        rows = max(len(lengths), 1) + 3
        slots = torch.randperm(SLOTS, generator=g)
        self.req_to_token = torch.zeros(rows, POSITIONS, dtype=torch.int32)
        self.rows = torch.randperm(rows, generator=g)[: len(lengths)]
        used = 0
        for row, length in zip(self.rows.tolist(), lengths, strict=True):
            self.req_to_token[row, :length] = slots[used : used + length].int()
            used += length
        self.lengths = torch.tensor(lengths, dtype=torch.int64)
        self.generator = g

    def queries(self, count: int, heads: int, dim: int) -> Tensor:
        return torch.randn(count, heads, dim, generator=self.generator)

    def plain(self, query: Tensor, b: int, seen: list[int]) -> Tensor:
        """One query [H, D] of request b over the positions it sees."""
        slots = self.req_to_token[self.rows[b], seen].long()
        group = query.shape[0] // self.keys.shape[1]
        out = []
        for h, q in enumerate(query.double()):
            k, v = self.keys[slots, h // group].double(), self.values[slots, h // group].double()
            out.append(torch.softmax(k @ q * SCALE, 0) @ v)
        return torch.stack(out).float()


def decode(
    pool: Pool, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, loc: Tensor | None = None
) -> Tensor:
    o = torch.full_like(q, torch.nan)
    attention.decode_attention_cpu(
        q, pool.keys, pool.values, 1.0, 1.0, o, k, v, loc, None, pool.req_to_token, pool.rows, pool.lengths,
        SCALE, 0.0, False, 0, None, None,
    )  # fmt: skip
    return o


def extend(pool: Pool, q: Tensor, new: list[int], tree: Tensor | None = None) -> Tensor:
    o = torch.full_like(q, torch.nan)
    lens = torch.tensor(new, dtype=torch.int32)
    attention.extend_attention_cpu(
        q, q, q, o, pool.keys, pool.values, 1.0, 1.0, pool.req_to_token, pool.rows, pool.lengths, lens,
        lens.cumsum(0) - lens, max(new, default=0), SCALE, 0.0, False, 0, None, None, tree,
    )  # fmt: skip
    return o


SHAPES = pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (5, 1)])
RAGGED = [37, 1, 90, 12, 64, 2]


@SHAPES
@pytest.mark.parametrize(
    "chunk", [attention.CHUNK_BYTES, 2 * 64 * 16, 1], ids=["one chunk", "several", "one request each"]
)
def test_decode_equals_plain_attention(heads, kv_heads, chunk, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK_BYTES", chunk)
    pool = Pool(RAGGED, kv_heads, 8)
    q = pool.queries(len(RAGGED), heads, 8)
    wanted = torch.stack([pool.plain(q[b], b, list(range(n))) for b, n in enumerate(RAGGED)])
    torch.testing.assert_close(decode(pool, q), wanted, **TOLERANCE)


def test_decode_stores_the_new_token_first():
    pool = Pool([5, 9], 2, 8)
    q, k, v = pool.queries(2, 4, 8), pool.queries(2, 2, 8), pool.queries(2, 2, 8)
    loc = pool.req_to_token[pool.rows, pool.lengths - 1].long()
    # q, k, v come as [B, heads * dim] views
    out = decode(pool, q, k.view(2, -1), v.view(2, -1), loc)
    assert torch.equal(pool.keys[loc], k)
    assert torch.equal(pool.values[loc], v)
    wanted = torch.stack([pool.plain(q[b], b, list(range(n))) for b, n in enumerate([5, 9])])
    torch.testing.assert_close(out, wanted, **TOLERANCE)


@SHAPES
@pytest.mark.parametrize("chunk", [attention.CHUNK_BYTES, 2 * 64 * 16], ids=["one chunk", "several"])
@pytest.mark.parametrize(
    "new", [[5] * 6, [1] * 6, [37, 1, 90, 12, 64, 2], [3, 1, 90, 12, 7, 2]], ids=["chain", "one", "prompts", "prefixed"]
)
def test_causal_extend_equals_plain_attention(new, heads, kv_heads, chunk, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK_BYTES", chunk)
    lengths = [max(n, length) for n, length in zip(new, RAGGED, strict=True)]
    pool = Pool(lengths, kv_heads, 8)
    q = pool.queries(sum(new), heads, 8)
    rows = [(b, p) for b, n in enumerate(new) for p in range(lengths[b] - n, lengths[b])]
    wanted = torch.stack([pool.plain(q[i], b, list(range(p + 1))) for i, (b, p) in enumerate(rows)])
    torch.testing.assert_close(extend(pool, q, new), wanted, **TOLERANCE)


@pytest.mark.parametrize("chunk", [attention.CHUNK_BYTES, 2 * 64 * 16], ids=["one chunk", "several"])
def test_each_request_has_its_own_tree(chunk, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK_BYTES", chunk)
    size, lengths = 7, [40, 7, 61]
    pool = Pool(lengths, 2, 8)
    q = pool.queries(3 * size, 4, 8)
    tree = torch.rand(3, size, size, generator=pool.generator) < 0.4
    tree |= torch.eye(size, dtype=torch.bool)
    wanted = []
    for b, length in enumerate(lengths):
        for i in range(size):
            among = [length - size + j for j in range(size) if tree[b, i, j]]
            wanted.append(pool.plain(q[b * size + i], b, [*range(length - size), *among]))
    found = extend(pool, q, [size] * 3, tree.flatten())
    torch.testing.assert_close(found, torch.stack(wanted), **TOLERANCE)


def test_verified_beside_others_or_decoded_alone_is_the_same():
    """Why greedy text with speculation equals greedy text without it: they are a rounding apart."""
    pool = Pool([50], 3, 64)
    q = pool.queries(5, 9, 64)
    together = extend(pool, q, [5])
    for i in range(5):
        pool.lengths = torch.tensor([46 + i])
        torch.testing.assert_close(decode(pool, q[i : i + 1]), together[i : i + 1], atol=4e-6, rtol=0)


def test_an_empty_batch_is_nothing():
    pool = Pool([], 2, 8)
    assert decode(pool, pool.queries(0, 4, 8)).shape == (0, 4, 8)
    assert extend(pool, pool.queries(0, 4, 8), []).shape == (0, 4, 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((30.0, False, 0, None), "logit cap"),
        ((0.0, True, 0, None), "cross"),
        ((0.0, False, 128, None), "sliding window"),
    ],
)
def test_what_is_not_computed_is_refused(arguments, said):
    cap, cross, window, sinks = arguments
    pool = Pool([4], 2, 8)
    q = pool.queries(1, 4, 8)
    with pytest.raises(NotImplementedError, match=said):
        attention.decode_attention_cpu(
            q, pool.keys, pool.values, 1.0, 1.0, q.clone(), None, None, None, None, pool.req_to_token, pool.rows,
            pool.lengths, SCALE, cap, cross, window, None, sinks,
        )  # fmt: skip

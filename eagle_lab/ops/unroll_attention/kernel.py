"""Attention of the training-time test in Triton: one family of kernels for every step and length.

A row (query) sees tokens row_first..row_token of the packed first keys and, of its own chain, one key per step:
    s = scale * [q k0_t for t in row_first..row_token, q kc_1, .., q kc_i],   out = softmax(s) [v0, vc]
    ds = p * (do v - delta),   delta = do out
Rows are sorted by token, so a tile of them sees one range of keys, and a tile of keys is seen by one range of rows;
masks are computed only in tiles that cross an edge. Softmax is online (arXiv 1805.02867), in base 2; p is computed
again in the backward from `lse` (arXiv 2205.14135). Nothing is compiled again for another length or step.

Names: N rows, T tokens, HEADS of q, GROUP of them per key head, D of BLOCK_D columns used. UPCAST: dot in fp32, for
triton's interpreter, which multiplies bf16 as raw integers.
"""

from __future__ import annotations

import triton
import triton.language as tl

LENGTHS = ["N", "T", "steps"]
"""Triton would compile again for a length that is 1 or a multiple of 16."""


@triton.jit
def _load(
    ptr, index, valid, stride, D: tl.constexpr, BLOCK_D: tl.constexpr, UPCAST: tl.constexpr, ALL: tl.constexpr = False
):  # fmt: skip
    """[len(index), BLOCK_D] rows of a tensor whose rows are `stride` apart; 0 where not valid. ALL: every row is."""
    at = tl.arange(0, BLOCK_D)
    where = ptr + index.to(tl.int64)[:, None] * stride + at[None, :]
    if ALL and D == BLOCK_D:
        tile = tl.load(where)
    else:
        tile = tl.load(where, mask=valid[:, None] & (at[None, :] < D), other=0.0)
    return tile.to(tl.float32) if UPCAST else tile


@triton.jit
def _store(ptr, index, valid, stride, tile, D: tl.constexpr, BLOCK_D: tl.constexpr):
    at = tl.arange(0, BLOCK_D)
    inside = valid[:, None] & (at[None, :] < D)
    where = ptr + index.to(tl.int64)[:, None] * stride + at[None, :]
    tl.store(where, tile.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _edges(first, token, BLOCK_N: tl.constexpr):
    """(begin, whole_begin, whole_end, end) of the keys of a tile of rows: in the middle part every row sees all."""
    begin = tl.min(first, 0)
    end = tl.max(token, 0) + 1
    whole_begin = begin + tl.cdiv(tl.max(first, 0) - begin, BLOCK_N) * BLOCK_N
    whole_end = begin + (tl.min(token, 0) + 1 - begin) // BLOCK_N * BLOCK_N
    whole_begin = tl.minimum(whole_begin, begin + tl.cdiv(end - begin, BLOCK_N) * BLOCK_N)
    return begin, whole_begin, tl.maximum(whole_end, whole_begin), end


@triton.jit
def _softmax_update(m, s, acc, scores, scale):
    """Online softmax: (maximum, sum, accumulator scaled to the new maximum, weights of these scores).

    scores are not scaled yet: score times scale minus maximum is then one instruction.
    """
    higher = tl.maximum(m, tl.max(scores, 1) * scale)
    base = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen nothing yet
    weights = tl.exp2(scores * scale - base[:, None])
    shrink = tl.exp2(m - base)
    return higher, s * shrink + tl.sum(weights, 1), acc * shrink[:, None], weights


@triton.jit
def _attend(
    m, s, acc, q, k_ptr, v_ptr, start, first, token, T, stride, scale,
    MASKED: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    at = start + tl.arange(0, BLOCK_N)
    k = _load(k_ptr, at, at < T, stride, D, BLOCK_D, UPCAST, not MASKED)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:
        seen = (at[None, :] >= first[:, None]) & (at[None, :] <= token[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    m, s, acc, weights = _softmax_update(m, s, acc, scores, scale)
    v = _load(v_ptr, at, at < T, stride, D, BLOCK_D, UPCAST, not MASKED)
    return m, s, tl.dot(weights.to(v.dtype), v, acc, input_precision=PRECISION)


@triton.jit(do_not_specialize=LENGTHS)
def forward_kernel(
    q_ptr, k0_ptr, v0_ptr, kc_ptr, vc_ptr, first_ptr, token_ptr, out_ptr, lse_ptr, N, T, steps, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one head. lse [HEADS, N] in base 2."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    head = tl.program_id(1)
    kv = head // GROUP
    stride, kv_stride = HEADS * D, HEADS // GROUP * D
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = rows < N
    rows = tl.minimum(rows, N - 1)  # a row beyond the last is the last once more, not stored
    scale2 = tl.cast(scale, tl.float32) * 1.4426950408889634
    first, token = tl.load(first_ptr + rows), tl.load(token_ptr + rows)
    q = _load(q_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    s = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    begin, whole_begin, whole_end, end = _edges(first, token, BLOCK_N)
    k_ptr, v_ptr = k0_ptr + kv * D, v0_ptr + kv * D
    for start in range(begin, whole_begin, BLOCK_N):
        m, s, acc = _attend(m, s, acc, q, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                            True, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_begin, whole_end, BLOCK_N):
        m, s, acc = _attend(m, s, acc, q, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                            False, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_end, end, BLOCK_N):
        m, s, acc = _attend(m, s, acc, q, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                            True, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for step in range(0, steps):
        offset = tl.cast(step, tl.int64) * N * kv_stride + kv * D
        k = _load(kc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        v = _load(vc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        score = tl.sum(q.to(tl.float32) * k, 1)
        m, s, acc, weight = _softmax_update(m, s, acc, score[:, None], scale2)
        acc += weight * v
    _store(out_ptr + head * D, rows, valid, stride, acc / s[:, None], D, BLOCK_D)
    tl.store(lse_ptr + tl.cast(head, tl.int64) * N + rows, m + tl.log2(s), mask=valid)


@triton.jit
def _query_gradient(
    dq, q, do, lse, delta, k_ptr, v_ptr, start, first, token, T, stride, scale,
    MASKED: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    at = start + tl.arange(0, BLOCK_N)
    k = _load(k_ptr, at, at < T, stride, D, BLOCK_D, UPCAST, not MASKED)
    v = _load(v_ptr, at, at < T, stride, D, BLOCK_D, UPCAST, not MASKED)
    p = tl.exp2(tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale - lse[:, None])
    if MASKED:
        p = tl.where((at[None, :] >= first[:, None]) & (at[None, :] <= token[:, None]), p, 0.0)
    ds = p * (tl.dot(do, tl.trans(v), input_precision=PRECISION) - delta[:, None])
    return tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)


@triton.jit(do_not_specialize=LENGTHS)
def query_kernel(
    q_ptr, k0_ptr, v0_ptr, kc_ptr, vc_ptr, first_ptr, token_ptr, out_ptr, lse_ptr, do_ptr, delta_ptr, dq_ptr,
    N, T, steps, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of one tile of queries of one head, and its delta [HEADS, N] for the other two kernels."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    kv = head // GROUP
    stride, kv_stride = HEADS * D, HEADS // GROUP * D
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = rows < N
    rows = tl.minimum(rows, N - 1)
    scale2 = tl.cast(scale, tl.float32) * 1.4426950408889634
    first, token = tl.load(first_ptr + rows), tl.load(token_ptr + rows)
    q = _load(q_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST)
    do = _load(do_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST)
    out = _load(out_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST)
    lse = tl.load(lse_ptr + tl.cast(head, tl.int64) * N + rows)
    delta = tl.sum(do.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(delta_ptr + tl.cast(head, tl.int64) * N + rows, delta, mask=valid)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    begin, whole_begin, whole_end, end = _edges(first, token, BLOCK_N)
    k_ptr, v_ptr = k0_ptr + kv * D, v0_ptr + kv * D
    for start in range(begin, whole_begin, BLOCK_N):
        dq = _query_gradient(dq, q, do, lse, delta, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                             True, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_begin, whole_end, BLOCK_N):
        dq = _query_gradient(dq, q, do, lse, delta, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                             False, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_end, end, BLOCK_N):
        dq = _query_gradient(dq, q, do, lse, delta, k_ptr, v_ptr, start, first, token, T, kv_stride, scale2,
                             True, BLOCK_N, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for step in range(0, steps):
        offset = tl.cast(step, tl.int64) * N * kv_stride + kv * D
        k = _load(kc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        v = _load(vc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        p = tl.exp2(tl.sum(q.to(tl.float32) * k, 1) * scale2 - lse)
        ds = p * (tl.sum(do.to(tl.float32) * v, 1) - delta)
        dq += ds[:, None] * k
    _store(dq_ptr + head * D, rows, valid, stride, dq * tl.cast(scale, tl.float32), D, BLOCK_D)


@triton.jit(do_not_specialize=LENGTHS)
def chain_kernel(
    q_ptr, kc_ptr, vc_ptr, lse_ptr, do_ptr, delta_ptr, dkc_ptr, dvc_ptr, N, steps, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Gradients of the chains' keys and values of one tile of rows and one key head."""
    kv = tl.program_id(1)
    stride, kv_stride = HEADS * D, HEADS // GROUP * D
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    valid = rows < N
    rows = tl.minimum(rows, N - 1)
    scale2 = tl.cast(scale, tl.float32) * 1.4426950408889634
    for step in range(0, steps):
        offset = tl.cast(step, tl.int64) * N * kv_stride + kv * D
        k = _load(kc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        v = _load(vc_ptr + offset, rows, valid, kv_stride, D, BLOCK_D, UPCAST).to(tl.float32)
        dk = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        dv = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        for g in range(0, GROUP):
            head = kv * GROUP + g
            q = _load(q_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST).to(tl.float32)
            do = _load(do_ptr + head * D, rows, valid, stride, D, BLOCK_D, UPCAST).to(tl.float32)
            lse = tl.load(lse_ptr + tl.cast(head, tl.int64) * N + rows)
            delta = tl.load(delta_ptr + tl.cast(head, tl.int64) * N + rows)
            p = tl.exp2(tl.sum(q * k, 1) * scale2 - lse)
            ds = p * (tl.sum(do * v, 1) - delta)
            dk += ds[:, None] * q
            dv += p[:, None] * do
        _store(dkc_ptr + offset, rows, valid, kv_stride, dk * tl.cast(scale, tl.float32), D, BLOCK_D)
        _store(dvc_ptr + offset, rows, valid, kv_stride, dv, D, BLOCK_D)


@triton.jit
def _key_gradient(
    dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, first_ptr, token_ptr, start, at, end, stride, scale,
    MASKED: tl.constexpr, BLOCK_M: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds what the rows start..start + BLOCK_M - 1 (below end) say of the keys `at`."""
    rows = start + tl.arange(0, BLOCK_M)
    valid = rows < end
    q = _load(q_ptr, rows, valid, stride, D, BLOCK_D, UPCAST, not MASKED)
    do = _load(do_ptr, rows, valid, stride, D, BLOCK_D, UPCAST, not MASKED)
    lse = tl.load(lse_ptr + rows, mask=valid, other=0.0)
    delta = tl.load(delta_ptr + rows, mask=valid, other=0.0)
    p = tl.exp2(tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale - lse[None, :])  # [BLOCK_N, BLOCK_M]
    if MASKED:
        first = tl.load(first_ptr + rows, mask=valid, other=1)
        token = tl.load(token_ptr + rows, mask=valid, other=0)  # of a row that is not valid: none is seen
        p = tl.where((at[:, None] >= first[None, :]) & (at[:, None] <= token[None, :]), p, 0.0)
    dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
    ds = p * (tl.dot(v, tl.trans(do), input_precision=PRECISION) - delta[None, :])
    return tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION), dv


@triton.jit(do_not_specialize=LENGTHS)
def key_kernel(
    q_ptr, k0_ptr, v0_ptr, first_ptr, token_ptr, lse_ptr, do_ptr, delta_ptr, row_begin_ptr, row_end_ptr,
    dk_ptr, dv_ptr, N, T, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What one head of q adds to the gradients of one tile of first keys and values: dk, dv [T, HEADS, D].

    A program per head, not per key head: at 2,048 tokens those of 8 key heads would leave an H200 half idle.
    row_begin [T]: rows whose token is below t; row_end [T]: rows whose document starts at t or before.
    """
    head = tl.program_id(1)
    kv = head // GROUP
    low = tl.program_id(0) * BLOCK_N
    at = low + tl.arange(0, BLOCK_N)
    high = tl.minimum(low + BLOCK_N, T) - 1
    stride, kv_stride = HEADS * D, HEADS // GROUP * D
    scale2 = tl.cast(scale, tl.float32) * 1.4426950408889634
    k = _load(k0_ptr + kv * D, at, at < T, kv_stride, D, BLOCK_D, UPCAST)
    v = _load(v0_ptr + kv * D, at, at < T, kv_stride, D, BLOCK_D, UPCAST)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    begin, end = tl.load(row_begin_ptr + low), tl.load(row_end_ptr + high)
    # rows from whole_begin on are past the tile's last key, those before whole_end are of the first key's document
    whole_begin = begin + tl.cdiv(tl.load(row_begin_ptr + high) - begin, BLOCK_M) * BLOCK_M
    whole_end = begin + (tl.load(row_end_ptr + low) - begin) // BLOCK_M * BLOCK_M
    whole_begin = tl.minimum(whole_begin, begin + tl.cdiv(tl.maximum(end - begin, 0), BLOCK_M) * BLOCK_M)
    whole_end = tl.maximum(whole_end, whole_begin)
    q_ptr, do_ptr = q_ptr + head * D, do_ptr + head * D
    lse_ptr, delta_ptr = lse_ptr + tl.cast(head, tl.int64) * N, delta_ptr + tl.cast(head, tl.int64) * N
    for start in range(begin, whole_begin, BLOCK_M):
        dk, dv = _key_gradient(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, first_ptr, token_ptr, start, at, end,
                               stride, scale2, True, BLOCK_M, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_begin, whole_end, BLOCK_M):
        dk, dv = _key_gradient(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, first_ptr, token_ptr, start, at, end,
                               stride, scale2, False, BLOCK_M, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    for start in range(whole_end, end, BLOCK_M):
        dk, dv = _key_gradient(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, first_ptr, token_ptr, start, at, end,
                               stride, scale2, True, BLOCK_M, D, BLOCK_D, UPCAST, PRECISION)  # fmt: skip
    _store(dk_ptr + head * D, at, at < T, stride, dk * tl.cast(scale, tl.float32), D, BLOCK_D)
    _store(dv_ptr + head * D, at, at < T, stride, dv, D, BLOCK_D)

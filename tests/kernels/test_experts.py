"""Every backend that this machine has against the FP32 reference."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import u4moe
from u4moe import reference
from u4moe.tuning import Choice, Tile

from tests.kernels.helpers import TOLERANCE, Problem, backends, problem, relative_error, run_triton

BACKENDS = backends()
each_backend = pytest.mark.parametrize("name", BACKENDS)
COMPILED = [name for name in BACKENDS if name not in ("torch", "triton")]
each_instruction_set = pytest.mark.parametrize("name", COMPILED)
DTYPES = (torch.float16, torch.bfloat16)


@each_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp16", "bf16"])
@pytest.mark.parametrize(
    ("tokens", "hidden", "inter", "topk", "group"),
    [
        (1, 256, 128, 2, 128),
        (2, 384, 256, 3, 128),
        (4, 640, 384, 8, 128),
        (3, 512, 256, 1, 256),
        (2, 192, 64, 4, 64),
        (2, 96, 160, 2, 32),
        (1, 48, 24, 3, 8),
        (2, 72, 48, 2, 24),
    ],
)
def test_ragged_shapes(
    name: str, dtype: torch.dtype, tokens: int, hidden: int, inter: int, topk: int, group: int
) -> None:
    """Rows, words and groups that fill no tile; results start as NaN."""
    p = problem(tokens, hidden, inter, topk=topk, group=group, dtype=dtype)
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[dtype]


@pytest.mark.skipif("triton" not in BACKENDS, reason="Triton is not installed")
@pytest.mark.parametrize("unroll", [False, True], ids=["loop", "unrolled"])
@pytest.mark.parametrize(("rows", "parts", "words"), [(1, 1, 32), (3, 2, 64), (4, 2, 128)])
def test_tiles(rows: int, parts: int, words: int, unroll: bool) -> None:
    """Tiles that divide neither the rows nor K, looped and unrolled."""
    if torch.cuda.is_available():
        words *= 4  # a warp takes no fewer
    tile = Tile(rows, parts, words, unroll)
    p = problem(1, 384, 128, topk=2)

    def run(out: torch.Tensor, problem: Problem) -> None:
        run_triton(out, problem, Choice(tile, tile))

    assert relative_error(run, p) <= TOLERANCE[torch.float16]


@each_backend
@pytest.mark.parametrize("tokens", [7, 70])
def test_more_tokens_than_decode_has(name: str, tokens: int) -> None:
    """Prefill shapes are correct too, with many tokens on one expert."""
    p = problem(tokens, 64, 64, experts=2, topk=2, group=32)
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[torch.float16]


@each_instruction_set
@pytest.mark.parametrize("tokens", [2, 3, 5, 8, 9, 17])
@pytest.mark.parametrize(("hidden", "inter"), [(384, 640), (1152, 256)])
def test_tokens_that_share_an_expert(name: str, tokens: int, hidden: int, inter: int) -> None:
    """As many as fill a tile or not, and one more; rows of blocks that fill its turns or not."""
    p = problem(tokens, hidden, inter, experts=1, topk=1, dtype=torch.bfloat16)
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[torch.bfloat16]


@each_instruction_set
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("tokens", [2, 4, 9])
def test_a_token_that_is_not_finite_spoils_no_other(name: str, tokens: int, bad: float) -> None:
    p = problem(tokens, 384, 256, experts=1, topk=1, dtype=torch.bfloat16)
    x = p.x.clone()
    x[1, 200] = bad
    out = torch.full_like(x, float("nan"))
    BACKENDS[name](out, dataclasses.replace(p, x=x))
    others = [token for token in range(tokens) if token != 1]
    expected = reference.fused_experts(*p.arguments())[others]
    assert float((out[others].float() - expected).norm() / expected.norm()) <= 5e-3
    assert not out[1].isfinite().any()


@each_backend
def test_no_tokens(name: str) -> None:
    p = problem(0, 128, 128)
    out = torch.empty_like(p.x)
    BACKENDS[name](out, p)
    assert out.shape == (0, 128)


@each_backend
def test_skipped_ids(name: str) -> None:
    """-1 skips a slot, whatever the memory held; a token without experts is zero."""
    p = problem(4, 256, 128)
    ids = p.ids.clone()
    ids[0, 1] = ids[2, 0] = -1
    ids[3] = -1
    p = dataclasses.replace(p, ids=ids)
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[torch.float16]
    out = torch.full_like(p.x, float("nan"))
    BACKENDS[name](out, p)
    assert torch.equal(out[3], torch.zeros_like(out[3]))


@each_backend
def test_duplicates_count_twice(name: str) -> None:
    p = problem(1, 256, 128, topk=2)
    twice = dataclasses.replace(p, ids=torch.tensor([[1, 1]]), route=torch.tensor([[0.25, 0.5]]))
    assert relative_error(BACKENDS[name], twice) <= TOLERANCE[torch.float16]


@each_backend
@pytest.mark.parametrize("route", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64], ids=str)
def test_route_and_id_types(name: str, route: torch.dtype, ids: torch.dtype) -> None:
    p = problem(2, 128, 128)
    p = dataclasses.replace(p, route=p.route.to(route), ids=p.ids.to(ids))
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[torch.float16]


@each_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp16", "bf16"])
def test_scales_of_the_other_type(name: str, dtype: torch.dtype) -> None:
    p = problem(2, 256, 128, dtype=dtype)
    other = torch.bfloat16 if dtype == torch.float16 else torch.float16
    p = dataclasses.replace(p, s13=p.s13.to(other), s2=p.s2.to(other))
    assert relative_error(BACKENDS[name], p) <= TOLERANCE[dtype]


@each_backend
@pytest.mark.parametrize("place", range(4))
def test_every_byte_at_every_place(name: str, place: int) -> None:
    """Each of the 256 byte values at each place of a word decodes exactly.

    Up row r holds byte r at the place; activations of 1 and 16 meet it. Every gate is 32, which
    SiLU leaves as it is, and down row r takes row r alone. All sums are small integers times 32,
    so nothing is rounded.
    """
    p = problem(1, 256, 256, experts=1, topk=1)
    byte = torch.arange(256, dtype=torch.uint8)
    w13 = torch.full_like(p.w13, 0x88)  # zeros
    w13[0, :256, 8] = 0x98  # weight 17 of the gate rows is 1
    w13[0, 256:, place] = byte
    w2 = torch.full_like(p.w2, 0x88)
    w2[0, torch.arange(256), torch.arange(256) // 2] = torch.where(byte % 2 == 0, 0x89, 0x98).to(
        torch.uint8
    )
    x = torch.zeros_like(p.x)
    x[0, 17] = 32.0
    x[0, 2 * place] = 1.0
    x[0, 2 * place + 1] = 16.0
    p = Problem(
        x, w13, torch.ones_like(p.s13), w2, torch.ones_like(p.s2),
        torch.ones_like(p.route), torch.zeros_like(p.ids),
    )  # fmt: skip
    out = torch.full_like(p.x, float("nan"))
    BACKENDS[name](out, p)
    wide = byte.int()
    assert out[0].tolist() == (32 * ((wide % 16 - 8) + 16 * (wide // 16 - 8))).tolist()


def test_nibble_order() -> None:
    """The low nibble comes first along K, and 8 stands for zero."""
    packed = torch.tensor([0x80, 0x0F, 0x71, 0xC6], dtype=torch.uint8)
    assert reference.unpack(packed).tolist() == [-8, 0, 7, -8, -7, -1, -2, 4]


@each_backend
def test_same_bits_each_time(name: str) -> None:
    p = problem(3, 256, 128)
    first, second = torch.empty_like(p.x), torch.empty_like(p.x)
    BACKENDS[name](first, p)
    BACKENDS[name](second, p)
    assert torch.equal(first, second)


class TestOperatorOnCpu:
    """The torch operator itself, with the extension where it is built."""

    def test_result_and_new_tensor(self) -> None:
        p = problem(2, 256, 128)
        out = u4moe.moe_forward_tiny_nmajor_u4(*p.arguments())
        assert out.dtype == p.x.dtype and out.data_ptr() != p.x.data_ptr()
        expected = reference.fused_experts(*p.arguments())
        assert float((out.float() - expected).norm() / expected.norm()) <= 6e-4

    def test_opcheck(self) -> None:
        p = problem(2, 128, 128)
        torch.library.opcheck(torch.ops.u4moe.fused_experts, p.arguments())

    def test_compiles_as_one_graph(self) -> None:
        p = problem(2, 128, 128)

        def layer(*arguments: torch.Tensor) -> torch.Tensor:
            return u4moe.moe_forward_tiny_nmajor_u4(*arguments) * 2

        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*p.arguments()), layer(*p.arguments()))

    def test_too_large_id(self) -> None:
        p = problem(1, 128, 128)
        bad = dataclasses.replace(p, ids=torch.full_like(p.ids, 5))
        with pytest.raises(IndexError, match="expert 5 of 5"):
            u4moe.moe_forward_tiny_nmajor_u4(*bad.arguments())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnCuda:
    """What only a real GPU can show."""

    def test_graph_capture(self) -> None:
        p = problem(2, 3072, 384, experts=8, topk=8)
        arguments = [t.cuda() for t in p.arguments()]
        eager = u4moe.moe_forward_tiny_nmajor_u4(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = u4moe.moe_forward_tiny_nmajor_u4(*arguments)
        captured.fill_(float("nan"))
        graph.replay()
        assert torch.equal(captured, eager)

    def test_offsets_beyond_int32(self) -> None:
        """The last of so many experts stands more than 2**32 bytes into w13."""
        experts, hidden, inter = 460, 3072, 3072
        generator = torch.Generator("cuda").manual_seed(0)

        def packed(rows: int, k: int) -> torch.Tensor:
            return torch.randint(
                256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda", generator=generator
            )

        w13, w2 = packed(2 * inter, hidden), packed(hidden, inter)
        assert w13.numel() > 2**32
        s13 = torch.rand((experts, 2 * inter, hidden // 128), device="cuda").half() * 0.01
        s2 = torch.rand((experts, hidden, inter // 128), device="cuda").half() * 0.01
        x = torch.randn((1, hidden), device="cuda").half()
        ids = torch.tensor([[experts - 1, 0]], device="cuda")
        route = torch.tensor([[0.5, 0.5]], device="cuda")
        out = u4moe.moe_forward_tiny_nmajor_u4(x, w13, s13, w2, s2, route, ids)
        expected = reference.fused_experts(x, w13, s13, w2, s2, route, ids)
        assert float((out.float() - expected).norm() / expected.norm()) <= 6e-4

    @pytest.mark.parametrize("inter", [384, 1536])
    @pytest.mark.parametrize("dtype", DTYPES, ids=["fp16", "bf16"])
    def test_tuned_shapes(self, inter: int, dtype: torch.dtype) -> None:
        """The table's tiles in MiniMax-M2's shapes, and a token more than it has rows for."""
        for tokens in (1, 2, 4, 5):
            p = problem(tokens, 3072, inter, experts=16, topk=8, dtype=dtype)
            assert relative_error(BACKENDS["triton"], p) <= TOLERANCE[dtype]


def test_weights_of_many_pages_stay_what_they_are() -> None:
    """On a CPU the first call asks for large pages for them."""
    p = problem(1, 2048, 2048, topk=2, experts=2, dtype=torch.bfloat16)
    arguments = [one.clone() for one in p.arguments()]
    for name in COMPILED:
        assert relative_error(BACKENDS[name], p) <= TOLERANCE[torch.bfloat16]
    assert all(torch.equal(one, two) for one, two in zip(arguments, p.arguments(), strict=True))

"""torch.ops.fourfold, on the simulated GPU or with a GPU on it: torch_test.py SOURCE. Needs torch, which is large: a part of
./dev test --long. FOURFOLD_KERNELS_LIBRARY names the build's library."""
import pathlib
import random
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "python/fourfold-torch"), str(SOURCE / "examples/python"),
                str(SOURCE / "tests/packaging")]
import fourfold_kernels as ff  # noqa: E402
import fourfold_torch  # noqa: E402,F401
import moe_layer as example  # noqa: E402
import moe_reference  # noqa: E402
import torch  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
H, I, E, K, T = example.HIDDEN, example.INNER, example.EXPERTS, example.TOP_K, example.TOKENS


def stacked(matrices, kind):
    """codes or scales of matrices as a checkpoint's tensor."""
    shape = (len(matrices), matrices[0].rows, -1)
    data = b"".join(getattr(matrix, kind) for matrix in matrices)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(shape).to(DEVICE)


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rng = random.Random(7)
        cls.experts = [(example.Matrix(rng, I, H), example.Matrix(rng, I, H), example.Matrix(rng, H, I)) for _ in range(E)]
        cls.gate, cls.up, cls.down = ([expert[i] for expert in cls.experts] for i in range(3))
        cls.logits = [example.to_f32(rng.uniform(-3.0, 3.0)) for _ in range(T * E)]
        cls.tokens = [example.from_bf16(example.to_bf16(rng.uniform(-1.0, 1.0))) for _ in range(T * H)]

    def scales(self, matrices):
        return torch.tensor([matrix.scale for matrix in matrices], dtype=torch.float32, device=DEVICE)

    def arguments(self, role):
        pack = torch.ops.fourfold.pack
        gate_up = pack(stacked(self.gate, "codes"), stacked(self.gate, "scales"), stacked(self.up, "codes"),
                       stacked(self.up, "scales"), "nvfp4")
        down = pack(stacked(self.down, "codes"), stacked(self.down, "scales"), None, None, "nvfp4")
        return (torch.tensor(self.tokens, dtype=torch.bfloat16, device=DEVICE).view(T, H),
                torch.tensor(self.logits, device=DEVICE).view(T, E), gate_up, down, self.scales(self.gate),
                self.scales(self.up), self.scales(self.down), I, K, role)

    def test_layer_is_within_its_bound(self):
        for role in ("decode", "prefill"):
            output = torch.ops.fourfold.moe_layer(*self.arguments(role))
            self.assertEqual((output.dtype, tuple(output.shape)), (torch.bfloat16, (T, H)))
            worst = example.worst_share(self.experts, self.logits, self.tokens, output.float().flatten().tolist())
            self.assertLessEqual(worst, 1.0, role)

    def test_records_are_the_librarys(self):
        packed = self.arguments("decode")[3]
        first = ff.pack_host(self.down[0].codes, self.down[0].scales, format=ff.NVFP4, activations=ff.W4A16,
                             row_order=ff.PLAIN, rows=H, columns=I)
        self.assertEqual(bytes(packed[0].cpu().tolist()), first)

    def test_gemm(self):
        records = self.arguments("decode")[3]
        rows = torch.tensor(self.tokens[:4 * I], dtype=torch.bfloat16, device=DEVICE).view(4, I)
        offsets = torch.tensor([0, 1, 1, 3, 4], dtype=torch.int32, device=DEVICE)
        output = torch.ops.fourfold.grouped_gemm(rows, records, self.scales(self.down), offsets, H, "decode")
        for row, expert in ((0, 0), (1, 2), (2, 2), (3, 3)):
            matrix = torch.tensor([self.down[expert].row(i) for i in range(H)], dtype=torch.float64)
            wanted = matrix @ rows[row].double().cpu()
            allowed = wanted.abs() * 2.0**-8 + (matrix.abs() @ rows[row].double().abs().cpu()) * I * 2.0**-22
            self.assertTrue(((output[row].double().cpu() - wanted).abs() <= allowed).all())

    def test_quantised_weights_are_what_the_layer_computes_with(self):
        torch.manual_seed(3)
        weights = torch.randn(E, H, I, device=DEVICE).bfloat16()
        for format, block, step in (("nvfp4", 16, 1 / 6 + 1 / 16), ("mxfp4", 32, 1 / 3)):
            codes, scales, scale = torch.ops.fourfold.quantize(weights, format)
            records = torch.ops.fourfold.pack(codes, scales, None, None, format)
            unit = torch.eye(I, dtype=torch.bfloat16, device=DEVICE)[:T]  # rows that pick single columns out
            offsets = torch.tensor([0] + [T] * E, dtype=torch.int32, device=DEVICE)
            found = torch.ops.fourfold.grouped_gemm(unit, records, scale, offsets, H, "decode", format)
            wanted = weights[0, :, :T].T.float()
            # Half a step of E2M1 is a sixth of its largest number, 6; a scale of NVFP4 is off by a sixteenth, and one of
            # MXFP4, a power of two, up to twice as large as it need be.
            largest = weights[0].float().abs().view(H, -1, block).amax(-1).repeat_interleave(block, -1)[:, :T].T
            self.assertTrue(((found.float() - wanted).abs() <= largest * step).all(), format)
        torch.library.opcheck(torch.ops.fourfold.quantize, (weights, "nvfp4"), test_utils=("test_schema", "test_faketensor"))
        weights[0, 1, 2] = float("nan")
        with self.assertRaisesRegex(ff.KernelError, "row 1"):
            torch.ops.fourfold.quantize(weights, "nvfp4")

    def matrices(self):
        return [moe_reference.dequantised(stacked(kind, "codes"), stacked(kind, "scales"), self.scales(kind), "nvfp4")
                for kind in (self.gate, self.up, self.down)]

    def test_layer_whose_caller_has_routed(self):
        hidden, _, *rest = self.arguments("decode")
        # Weights as a sum of one, large, zero; an expert named twice; no expert.
        ids = torch.tensor([[0, 1], [3, 2], [1, 0], [2, 2], [1, -1]], dtype=torch.int32, device=DEVICE)
        weights = torch.tensor([[0.75, 0.25], [900.0, 1e-3], [1.0, 0.0], [0.5, 0.25], [0.5, 7.0]], device=DEVICE)
        meant = torch.where(ids < 0, 0.0, weights)
        for role in ("decode", "prefill"):
            output = torch.ops.fourfold.moe_layer_chosen(hidden, ids, weights, *rest[:5], I, role)
            self.assertLessEqual(moe_reference.worst_share(output, hidden, ids.clamp(min=0), meant, *self.matrices()), 1.0)
        torch.library.opcheck(torch.ops.fourfold.moe_layer_chosen, (hidden, ids, weights, *rest[:5], I, "decode"),
                              test_utils=("test_schema", "test_faketensor"))
        with self.assertRaisesRegex(ValueError, "both are"):
            torch.ops.fourfold.moe_layer_chosen(hidden, ids[0], weights, *rest[:5], I, "decode")

    def test_other_routers(self):
        hidden, logits, *rest = self.arguments("decode")
        bias = torch.tensor([0.3, -0.2, 0.1, 0.0], device=DEVICE)
        scores = torch.sigmoid(logits.double())
        best = (scores + bias.double()).topk(K).indices
        of_best = scores.gather(1, best)
        pair = (scores + bias.double()).view(T, 2, 2).sum(-1).argmax(-1, keepdim=True) * 2 + torch.arange(2, device=DEVICE)
        of_pair = scores.gather(1, pair)
        softmax = torch.softmax(logits.double(), -1).topk(K)
        cases = ((dict(renormalise=False), softmax.indices, softmax.values),
                 (dict(score="sigmoid", renormalise=False, weight_scale=2.5, choice_bias=bias), best, of_best * 2.5),
                 (dict(score="sigmoid", choice_bias=bias, groups=2, groups_kept=1), pair, of_pair / of_pair.sum(-1, keepdim=True)))
        for rule, ids, weights in cases:
            output = torch.ops.fourfold.moe_layer(hidden, logits, *rest, **rule)
            self.assertLessEqual(moe_reference.worst_share(output, hidden, ids, weights, *self.matrices()), 1.0, rule)
        with self.assertRaisesRegex(ValueError, "score is 'tanh'"):
            torch.ops.fourfold.moe_layer(hidden, logits, *rest, score="tanh")

    def test_many_tokens_are_prepared_for_together(self):
        hidden, logits, *rest = self.arguments("decode")
        many = (hidden.repeat(14, 1), logits.repeat(14, 1))  # 70; prepared for 128
        output = torch.ops.fourfold.moe_layer(*many, *rest)
        self.assertTrue(torch.equal(output[:T], torch.ops.fourfold.moe_layer(hidden, logits, *rest)))

    def test_fake_tensors_and_compile(self):
        arguments = self.arguments("decode")
        torch.library.opcheck(torch.ops.fourfold.moe_layer, arguments, test_utils=("test_schema", "test_faketensor"))
        codes, scales = stacked(self.down, "codes"), stacked(self.down, "scales")
        torch.library.opcheck(torch.ops.fourfold.pack, (codes, scales, None, None, "nvfp4"),
                              test_utils=("test_schema", "test_faketensor"))
        compiled = torch.compile(lambda *words: torch.ops.fourfold.moe_layer(*words) + 0, backend="eager", fullgraph=True)
        self.assertTrue(torch.equal(compiled(*arguments), torch.ops.fourfold.moe_layer(*arguments)))

    def test_what_is_wrong_is_said(self):
        arguments = list(self.arguments("decode"))
        with self.assertRaisesRegex(ValueError, "role is 'fast'"):
            torch.ops.fourfold.moe_layer(*arguments[:-1], "fast")
        for place, what in ((0, "hidden"), (2, "gate_up"), (4, "gate_scale")):  # the kernels would read beyond them
            cut = list(arguments)
            cut[place] = cut[place][:-1]
            with self.assertRaisesRegex(ValueError, what + " is"):
                torch.ops.fourfold.moe_layer(*cut)
        arguments[0] = arguments[0].float()
        with self.assertRaisesRegex(ValueError, "hidden is torch.float32"):
            torch.ops.fourfold.moe_layer(*arguments)

    @unittest.skipUnless(DEVICE == "cuda", "no GPU")
    def test_graph(self):
        arguments = self.arguments("decode")
        wanted = torch.ops.fourfold.moe_layer(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = torch.ops.fourfold.moe_layer(*arguments)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(output, wanted))


if __name__ == "__main__":
    unittest.main()

"""The weights of make_tiny_qwen35.py --preset micro, drawn in plain Python: the same numbers as torch draws from its seed.

torch draws with a Mersenne twister and makes normal numbers by Box and Muller's method, in float32 and sixteen at a time.
Here each step is made in double and rounded to float32. torch's logarithm and sines are not the nearest float32
everywhere, which five of 1.7 million weights show after their rounding to bfloat16: KNOWN has them.
"""
import array
import math
import random

LM = "model.language_model."
SEED = 20260216
VOCAB, HIDDEN, LAYERS, EXPERTS, WIDTH = 320, 128, 4, 8, 64
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
KEY_HEADS, VALUE_HEADS, DELTA_DIM = 2, 4, 32
# By tensor: an index, and what torch has there.
KNOWN = {
    "model.language_model.layers.0.linear_attn.in_proj_z.weight": [(12089, 0x3dc3)],
    "mtp.layers.0.mlp.shared_expert.gate_proj.weight": [(3214, 0x3df6)],
    "mtp.layers.0.self_attn.q_proj.weight": [(53345, 0x3b71), (55040, 0x3d32)],
    "mtp.layers.0.self_attn.v_proj.weight": [(10943, 0x3ce9)],
}


def nearest_f32(x):
    """x rounded to the 24 bits of float32; nothing here is near its smallest or largest numbers."""
    wide = x * (2.0**29 + 1)
    return wide - (wide - x)


class Generator:
    def __init__(self, seed):
        words = [seed]
        for i in range(1, 624):
            words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xffffffff)
        self.twister = random.Random()
        self.twister.setstate((3, (*words, 624), None))
        self.second = None

    def uniform(self, count):
        bits = self.twister.getrandbits
        return [(bits(32) & 0xffffff) * 2.0**-24 for _ in range(count)]

    def normal(self, count):
        if count < 16:
            return [nearest_f32(self.one_normal()) for _ in range(count)]
        values = self.uniform(count)
        for at in range(0, count - 15, 16):
            self.sixteen(values, at)
        if count % 16:  # the last sixteen are drawn anew
            values[count - 16:] = self.uniform(16)
            self.sixteen(values, count - 16)
        return values

    @staticmethod
    def sixteen(values, at):
        turn = nearest_f32(2 * math.pi)
        for i in range(at, at + 8):
            radius = nearest_f32(math.sqrt(nearest_f32(-2 * nearest_f32(math.log(1 - values[i])))))
            angle = nearest_f32(turn * values[i + 8])
            values[i] = nearest_f32(radius * nearest_f32(math.cos(angle)))
            values[i + 8] = nearest_f32(radius * nearest_f32(math.sin(angle)))

    def one_normal(self):
        """Fewer than sixteen come one by one, in double."""
        if self.second is not None:
            found, self.second = self.second, None
            return found
        first, second = (self.wide_uniform() for _ in range(2))
        radius, angle = math.sqrt(-2 * math.log1p(-second)), 2 * math.pi * first
        self.second = radius * math.sin(angle)
        return radius * math.cos(angle)

    def wide_uniform(self):
        word = self.twister.getrandbits(32) << 32 | self.twister.getrandbits(32)
        return (word & 2**53 - 1) * 2.0**-53


def bf16(values):
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("H", [word + 0x7fff + (word >> 16 & 1) >> 16 for word in words])


class Draw:
    """Draws tensors in the maker's order; `tensors` has their shapes and bfloat16 codes."""

    def __init__(self):
        self.generator, self.tensors = Generator(SEED), {}

    def keep(self, name, shape, values):
        codes = bf16(values)
        for index, code in KNOWN.get(name, ()):
            codes[index] = code
        self.tensors[name] = shape, codes

    def normal(self, name, shape, deviation=1.0, mean=0.0):
        values, factor = self.generator.normal(math.prod(shape)), nearest_f32(deviation)
        self.keep(name, shape, [nearest_f32(nearest_f32(x * factor) + mean) for x in values])

    def linear(self, name, rows, columns, gain=1.0):
        values, factor = self.generator.normal(rows * columns), nearest_f32(gain / math.sqrt(columns))
        sizes = [nearest_f32(0.5 + x) for x in self.generator.uniform(rows)]
        self.keep(name + ".weight", [rows, columns],
                  [nearest_f32(nearest_f32(x * factor) * sizes[i // columns]) for i, x in enumerate(values)])

    def norm(self, name, size=HIDDEN):
        self.normal(name + ".weight", [size], 0.2)

    def attention(self, prefix):
        self.linear(prefix + "q_proj", 2 * HEADS * HEAD_DIM, HIDDEN)
        self.linear(prefix + "k_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        self.linear(prefix + "v_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        self.linear(prefix + "o_proj", HIDDEN, HEADS * HEAD_DIM)
        self.norm(prefix + "q_norm", HEAD_DIM)
        self.norm(prefix + "k_norm", HEAD_DIM)

    def delta(self, prefix):
        values = VALUE_HEADS * DELTA_DIM
        channels = 2 * KEY_HEADS * DELTA_DIM + values
        self.linear(prefix + "in_proj_qkv", channels, HIDDEN)
        self.linear(prefix + "in_proj_z", values, HIDDEN)
        self.linear(prefix + "in_proj_b", VALUE_HEADS, HIDDEN)
        self.linear(prefix + "in_proj_a", VALUE_HEADS, HIDDEN)
        self.normal(prefix + "conv1d.weight", [channels, 1, 4], 0.5)
        decays = [nearest_f32(4 * x - 3) for x in self.generator.uniform(VALUE_HEADS)]
        self.keep(prefix + "A_log", [VALUE_HEADS], decays)
        self.normal(prefix + "dt_bias", [VALUE_HEADS], mean=-1.0)
        self.normal(prefix + "norm.weight", [DELTA_DIM], 0.2, 1.0)
        self.linear(prefix + "out_proj", HIDDEN, values)

    def mlp(self, prefix):
        self.linear(prefix + "gate_proj", WIDTH, HIDDEN)
        self.linear(prefix + "up_proj", WIDTH, HIDDEN)
        self.linear(prefix + "down_proj", HIDDEN, WIDTH)

    def layer(self, prefix, full):
        self.norm(prefix + "input_layernorm")
        if full:
            self.attention(prefix + "self_attn.")
        else:
            self.delta(prefix + "linear_attn.")
        self.norm(prefix + "post_attention_layernorm")
        self.linear(prefix + "mlp.gate", EXPERTS, HIDDEN, 3.0)
        self.linear(prefix + "mlp.shared_expert_gate", 1, HIDDEN)
        self.mlp(prefix + "mlp.shared_expert.")
        for expert in range(EXPERTS):
            self.mlp(f"{prefix}mlp.experts.{expert}.")


def draw():
    """Name to (shape, bfloat16 codes), experts one by one."""
    model = Draw()
    model.normal(LM + "embed_tokens.weight", [VOCAB, HIDDEN])
    for i in range(LAYERS):
        model.layer(f"{LM}layers.{i}.", i == LAYERS - 1)
    model.norm(LM + "norm")
    model.linear("lm_head", VOCAB, HIDDEN, 3.0)
    model.linear("mtp.fc", HIDDEN, 2 * HIDDEN)
    model.norm("mtp.pre_fc_norm_embedding")
    model.norm("mtp.pre_fc_norm_hidden")
    model.layer("mtp.layers.0.", True)
    model.norm("mtp.norm")
    return model.tensors

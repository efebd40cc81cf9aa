"""NVFP4 and FP8 as make_tiny_qwen35.py makes them, in plain Python: float32 step by step, so bit for bit the same.

Values are Python floats that float32 holds exactly. A quotient or product of two such, rounded once more from double to
float32, is the float32 result: double has more than twice the digits.
"""
import array
import bisect
import math

E2M1_BOUNDS = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]  # half way between two neighbours
E2M1_MAX, E4M3_MAX, BLOCK = 6.0, 448.0, 16
# The numbers of E4M3 from 0 to 448, by code, and half way between two neighbours.
E4M3 = [m * 2.0**-9 for m in range(8)] + [(8 + m) * 2.0**(e - 10) for e in range(1, 16) for m in range(8)][:-1]
E4M3_BOUNDS = [(a + b) / 2 for a, b in zip(E4M3, E4M3[1:])]


def f32(values):
    return array.array("f", values)


def nearest(bounds, magnitude):
    """The code of the nearest number; half way, the even code."""
    code = bisect.bisect_left(bounds, magnitude)
    return code + 1 if code < len(bounds) and bounds[code] == magnitude and code % 2 else code


def pack_e2m1(block, step):
    """Codes in steps of `step`, two to a byte, even columns in the low nibble."""
    codes = [nearest(E2M1_BOUNDS, abs(x)) | (x < 0) << 3 for x in f32([value / step for value in block])]
    return bytes(low | high << 4 for low, high in zip(codes[0::2], codes[1::2]))


def nvfp4(values, amax):
    """(packed codes, block scales, tensor scale) of rows whose columns are a multiple of 16."""
    scale = f32([amax / (E2M1_MAX * E4M3_MAX)])[0]
    six = f32([E2M1_MAX * scale])[0]
    packed, scales = bytearray(), bytearray()
    for at in range(0, len(values), BLOCK):
        block = values[at:at + BLOCK]
        wanted = f32([max(map(abs, block)) / six])[0] or 1.0
        code = nearest(E4M3_BOUNDS, min(max(wanted, 2.0**-9), E4M3_MAX))
        scales.append(code)
        packed += pack_e2m1(block, f32([E4M3[code] * scale])[0])
    return bytes(packed), bytes(scales), scale


def e4m3(x):
    """The code of a float32, saturated; of -0.0 with its sign."""
    return nearest(E4M3_BOUNDS, min(abs(x), E4M3_MAX)) | (0x80 if math.copysign(1, x) < 0 else 0)


def e4m3_codes(values):
    known = {x: e4m3(x) for x in set(values)}
    return bytes(known[x] if x else e4m3(x) for x in values)  # 0.0 and -0.0 are one key


def fp8(values):
    """(codes, tensor scale)."""
    scale = f32([max(map(abs, values)) / E4M3_MAX])[0]
    return e4m3_codes(f32([value / scale for value in values])), scale

"""tools/count_instructions.py on made-up machine code: a loop that waits itself, and one inside another that does."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_cubins  # noqa: E402
import count_instructions  # noqa: E402


def code(lines):
    text = "\t.section\t.text.kernel,\"ax\",@progbits\n"
    for at, line in enumerate(lines):
        text += f"{line}\n" if line.endswith(":") else f"        /*{16 * at:04x}*/                   {line} ;\n"
    return text


def counted(lines, records):
    (_, names, loops), = count_instructions.functions_of(code(lines))
    return count_instructions.main_loop(names, loops, records)


class CountInstructions(unittest.TestCase):
    def test_a_loop_that_waits(self):
        counts, products = counted(
            ["MOV R1, R2", ".L_x_1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1]", "LDS.128 R4, [R2]", "LOP3.LUT R4, R4",
             "@!P0 HFMA2.BF16_V2 R4, R5", "HMMA.16816.F32.BF16 R8, R4", "HMMA.16816.F32.BF16 R8, R4",
             "@P1 BRA `(.L_x_1)", "EXIT"], 2)
        self.assertEqual(products, 2)
        self.assertEqual(sum(counts.values()), 7)
        self.assertEqual((counts["alu"], counts["fma"], counts["memory"]), (1, 1, 1))

    def test_a_stale_table(self):
        same, old, new, other = ('    {"%s", "%s", 2048, %s, 0.50, 0.50, 0.50},' % line for line in (
            ("a", "sm120", "3.00"), ("b", "sm120", "9.00"), ("b", "sm120", "5.94"), ("a", "sm90", "3.00")))
        table = "\n".join(["// a comment", same, old, other])
        self.assertEqual(count_instructions.differences([same, old], table, ["Workstation"]), [])
        self.assertEqual(count_instructions.differences([same, new], table, ["Workstation"]), ["-" + old, "+" + new])
        self.assertEqual(count_instructions.differences([other, same], table, ["Hopper", "Workstation"]), ["-" + old])

    def test_a_loop_inside_one_that_waits(self):
        counts, products = counted(
            [".L_x_1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1]", ".L_x_2:", "LDS.128 R4, [R2]", "OMMA.SF.16864 R8, R4",
             "@P1 BRA `(.L_x_2)", "IADD3 R1, R1", "@P2 BRA `(.L_x_1)"], 2)
        self.assertEqual(products, 2)
        self.assertEqual(sum(counts.values()), 3 + 2 * 3)  # the wait, the addition, a branch; twice the inner loop

    def test_code_without_either_is_refused(self):
        for lines in (["HMMA.16816.F32 R8, R4", "EXIT"], [".L_x_1:", "HMMA.16816.F32 R8, R4", "BRA `(.L_x_1)"]):
            with self.assertRaises(check_cubins.Unknown):
                counted(lines, 1)


if __name__ == "__main__":
    unittest.main()

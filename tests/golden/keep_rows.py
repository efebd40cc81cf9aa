#!/usr/bin/env python3
"""Makes a small file of reference outputs from a whole one: keep_rows.py IN OUT PROMPT=ROWS...

    keep_rows.py whole.safetensors tiny-long.safetensors p=63-64,2046-2149

Of each prompt named, the numbers of these rows stay, their list is added as PROMPT.rows, and the last row must be among
them. Other prompts stay whole. What neither `fourfold compare` nor a test reads (logits_bf16) is left out. Plain Python.
"""
import json
import pathlib
import struct
import sys

ROW_AXIS = {"logits_f32": 0, "hidden_f32": 1, "final_norm_f32": 0, "mtp_logits_f32": 0}
UNREAD = {"logits_bf16"}


def read(path):
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[begin + first:begin + last])
    return tensors


def write(path, tensors):
    header, data = {}, bytearray()
    for name, (dtype, shape, content) in sorted(tensors.items(), key=lambda item: (item[1][0] != "I64", item[0])):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def parse_rows(text):
    rows = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        rows.extend(range(int(first), int(last or first) + 1))
    return rows


def pick(tensor, axis, rows):
    dtype, shape, content = tensor
    rows = [row for row in rows if row < shape[axis]]  # MTP has no numbers of the last row
    step = 4
    for size in shape[axis + 1:]:
        step *= size
    blocks = [content[at:at + shape[axis] * step] for at in range(0, len(content), shape[axis] * step)]
    kept = b"".join(block[row * step:row * step + step] for block in blocks for row in rows)
    return dtype, shape[:axis] + [len(rows)] + shape[axis + 1:], kept


def main(source, target, *wanted):
    tensors = {name: tensor for name, tensor in read(pathlib.Path(source)).items()
               if name.split(".", 1)[1] not in UNREAD}
    for item in wanted:
        prompt, _, text = item.partition("=")
        rows, count = parse_rows(text), tensors[prompt + ".input_ids"][1][0]
        if rows != sorted(set(rows)) or rows[-1] != count - 1:
            sys.exit(f"{item}: rows must rise and end with {count - 1}")
        for name, axis in ROW_AXIS.items():
            if f"{prompt}.{name}" in tensors:
                tensors[f"{prompt}.{name}"] = pick(tensors[f"{prompt}.{name}"], axis, rows)
        tensors[prompt + ".rows"] = ("I64", [len(rows)], struct.pack(f"<{len(rows)}q", *rows))
    write(pathlib.Path(target), tensors)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

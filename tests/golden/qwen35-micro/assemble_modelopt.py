#!/usr/bin/env python3
"""Writes the golden ModelOpt checkpoint: assemble_modelopt.py OUT

Its tensors are all stored elsewhere in this folder (unquantised ones in bf16/, NVFP4 experts in modelopt_mixed/, the input
scales are one constant), so only its configs and its reference are kept. The shards come out byte for byte as the maker
wrote them; their digests are below. Plain Python, no packages.
"""
import hashlib
import json
import pathlib
import shutil
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
DIGESTS = {
    "model-00001-of-00002.safetensors": "b60f5ccc9b47dd636feb0ce69354df37737d288fdebd94eaf462dc13a7bb79f0",
    "model-00002-of-00002.safetensors": "d12d9a3733f6da5ea429d1181f5968d1e01256c883822de0ca16f45049dbab08",
}
INPUT_SCALE = ("F32", [], struct.pack("<f", 8.0 / (6.0 * 448.0)))
ORDER = ["F32", "BF16", "F8_E4M3", "U8"]  # as the safetensors package sorts


def tensors_of(folder):
    found = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        data = path.read_bytes()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[begin + first:begin + last])
    return found


def shard_bytes(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name in sorted(tensors, key=lambda name: (ORDER.index(tensors[name][0]), name)):
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main(out):
    plain, mixed = tensors_of(HERE / "bf16"), tensors_of(HERE / "modelopt_mixed")
    index = json.loads((HERE / "modelopt" / "model.safetensors.index.json").read_text())["weight_map"]
    shards = {name: {} for name in DIGESTS}
    for name, shard in index.items():
        is_expert = ".mlp.experts." in name and not name.startswith("mtp.")
        if name.endswith(".input_scale"):
            shards[shard][name] = INPUT_SCALE
        else:
            shards[shard][name] = mixed[name] if is_expert else plain[name]
    out.mkdir(parents=True, exist_ok=True)
    for path in (HERE / "modelopt").iterdir():
        shutil.copyfile(path, out / path.name)
    for shard, tensors in shards.items():
        data = shard_bytes(tensors)
        digest = hashlib.sha256(data).hexdigest()
        if digest != DIGESTS[shard]:
            sys.exit(f"{shard}: digest {digest}, not {DIGESTS[shard]}; a golden file has changed")
        (out / shard).write_bytes(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))

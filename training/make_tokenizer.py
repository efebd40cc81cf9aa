"""The tokenizer: byte-level BPE trained on the books, Qwen3.5's pre-tokenizer, ChatML's special tokens.

    make_tokenizer.py --data FOLDER --out FOLDER [--size 8192]
"""
import argparse
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from books import read_books

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
KEPT_IN_TEXT = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def train(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size - len(SPECIAL) - len(KEPT_IN_TEXT), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in KEPT_IN_TEXT])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--size", type=int, default=8192)
    arguments = parser.parse_args()
    books = [book for book in read_books(arguments.data) if not book.held_out]
    # A third of the paragraphs says as much about frequencies as all of them.
    tokenizer = train(("\n\n".join(book.paragraphs[i:i + 20]) for book in books
                       for i in range(0, len(book.paragraphs), 60)), arguments.size)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 4096, "eos_token": "<|im_end|>",
              "pad_token": "<|endoftext|>", "bos_token": None, "unk_token": None, "add_bos_token": False,
              "add_prefix_space": False, "clean_up_tokenization_spaces": False, "errors": "replace",
              "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()

"""Tokens for training: books, conversations, held-out books.

    prepare.py --data FOLDER --out FOLDER [--tokenizer FILE] [--length 1024] [--books N]

books.bin and held_out.bin are uint16 token streams; chat.bin is rows of length + 1 tokens, each beginning with a
conversation.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import time

import numpy
from tokenizers import Tokenizer

from books import read_books
from chat import conversations

HERE = pathlib.Path(__file__).resolve().parent


def encode(tokenizer, texts, end):
    """One stream of uint16, `end` behind every text; a few megabytes at a time."""
    streams = []
    for at in range(0, len(texts), 2000):
        for encoding in tokenizer.encode_batch_fast(texts[at:at + 2000]):
            streams.append(numpy.asarray(encoding.ids + ([end] if end is not None else []), dtype=numpy.uint16))
    return streams


def pieces(book, size=40):
    """A book in pieces, since the tokenizer works on one text with one thread; joints are paragraph breaks."""
    parts = ["\n\n".join(book.paragraphs[i:i + size]) for i in range(0, len(book.paragraphs), size)]
    return [part + "\n\n" for part in parts[:-1]] + parts[-1:]


def book_stream(tokenizer, books, end):
    texts, last = [], set()
    for book in books:
        texts += pieces(book)
        last.add(len(texts) - 1)
    streams = encode(tokenizer, texts, None)
    marked = []
    for i, stream in enumerate(streams):
        marked.append(stream)
        if i in last:
            marked.append(numpy.asarray([end], dtype=numpy.uint16))
    return numpy.concatenate(marked)


def chat_rows(streams, length):
    """Rows that begin with a conversation; the last one of a row is cut where the row ends."""
    rows, row = [], numpy.empty(0, dtype=numpy.uint16)
    for stream in streams:
        if len(stream) > length:
            continue
        row = numpy.concatenate((row, stream))
        if len(row) > length:
            rows.append(row[:length + 1])
            row = numpy.empty(0, dtype=numpy.uint16)
    return numpy.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokenizer", default=str(HERE.parent / "models" / "storyteller" / "tokenizer.json"))
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--books", type=int, help="only so many books, for a trial")
    arguments = parser.parse_args()
    out, began = pathlib.Path(arguments.out), time.time()
    out.mkdir(parents=True, exist_ok=True)

    def say(what):
        print(f"{time.time() - began:6.1f} s  {what}", flush=True)

    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    end = tokenizer.token_to_id("<|endoftext|>")
    books = read_books(arguments.data)
    held_out = [book for book in books if book.held_out]
    books = [book for book in books if not book.held_out][:arguments.books]
    random.Random(1).shuffle(books)
    say(f"{len(books)} books, {len(held_out)} held out")
    with multiprocessing.Pool(os.cpu_count()) as pool:
        made = pool.map(conversations, [book for book in books if book.tells], chunksize=4)
    chats = [chat for part in made for chat in part]
    random.Random(2).shuffle(chats)
    say(f"{len(chats)} conversations")
    (out / "held_out.txt").write_text("\n\n".join(book.text for book in held_out) + "\n")
    (out / "chat_sample.txt").write_text("\n".join(chats[:200]))
    held = book_stream(tokenizer, held_out, end)
    held.tofile(out / "held_out.bin")
    stream = book_stream(tokenizer, books, end)
    stream.tofile(out / "books.bin")
    say(f"{len(stream):,} tokens of books, {len(held):,} held out")
    rows = chat_rows(encode(tokenizer, chats, None), arguments.length)
    rows.tofile(out / "chat.bin")
    (out / "data.json").write_text(json.dumps({"length": arguments.length, "books": len(stream), "held_out": len(held),
                                               "held_out_characters": sum(len(book.text) + 2 for book in held_out),
                                               "conversations": len(chats), "rows": len(rows)}) + "\n")
    say(f"{len(rows):,} rows of conversations")


if __name__ == "__main__":
    main()

"""Judges answers to the fixed prompts and prints the table of the model card.

    judge.py SAMPLES.json --dictionary FILE [--data FOLDER] [--out TABLE.md]

SAMPLES.json is evaluate.py's or answer.py's. --dictionary is a word list, one a line (/usr/share/dict/words of the packages
wamerican or wbritish); a capitalised word in the middle of a sentence is a name and not counted. --data (the folder of
the books) is needed to look for windows of 50 words taken over verbatim. Ends with 1 when a bound is missed.
"""
import argparse
import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 50


def spoken(sample):
    """The answer without its thoughts."""
    return sample["answer"].split("</think>")[-1].strip()


def words_of(text):
    return re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)*", text)


def known(word, dictionary):
    lower = word.lower()
    if lower in dictionary or len(lower) == 1:
        return True
    for ending, instead in (("'s", ""), ("s'", "s"), ("'", ""), ("'d", ""), ("'ll", ""), ("'ve", ""), ("'re", ""), ("n't", ""),
                            ("s", ""), ("es", ""), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ies", "y"), ("ly", ""),
                            ("our", "or"), ("ours", "ors"), ("oured", "ored"), ("ise", "ize"), ("ised", "ized"), ("th", "")):
        if lower.endswith(ending) and lower[:-len(ending)] + instead in dictionary:
            return True
    return False


def dictionary_share(text, dictionary):
    """(known, counted) over the words that are no names."""
    counted = right = 0
    for sentence in re.split(r"(?<=[.!?:;\"'\n])\s+|\n+|\"|--", text):
        for i, word in enumerate(words_of(sentence)):
            if i > 0 and word[0].isupper():
                continue
            if i == 0 and word[0].isupper() and not known(word, dictionary):
                continue  # a name may begin a sentence
            counted += 1
            right += known(word, dictionary)
    return right, counted


def repeats(text):
    """Whether some run of eight words occurs three times."""
    words = [word.lower() for word in words_of(text)]
    grams = collections.Counter(tuple(words[i:i + 8]) for i in range(len(words) - 7))
    return max(grams.values(), default=0) >= 3


def takes_up(text, noun):
    return re.search(rf"\b{noun}(?:s|es)?\b", text, re.IGNORECASE) is not None


def verbatim(texts, folder):
    """Indices of the answers that share a window of 50 words with the books."""
    from books import read_books

    windows = collections.defaultdict(set)
    for i, text in enumerate(texts):
        words = [word.lower() for word in words_of(text)]
        for at in range(len(words) - WINDOW + 1):
            windows[hash(tuple(words[at:at + WINDOW]))].add(i)
    found = set()
    for book in read_books(folder):
        words = [word.lower() for word in words_of(book.text)]
        for at in range(len(words) - WINDOW + 1 if windows else 0):
            found |= windows.get(hash(tuple(words[at:at + WINDOW])), set())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples")
    parser.add_argument("--dictionary", required=True)
    parser.add_argument("--data")
    parser.add_argument("--out")
    a = parser.parse_args()
    dictionary = {line.strip().lower() for line in open(a.dictionary, encoding="utf-8")}
    fixed = json.loads((HERE / "prompts.json").read_text())
    nouns = {entry["prompt"]: entry["noun"] for entry in fixed["stories"]}
    wanted = {entry["prompt"]: entry["wanted"] for entry in fixed["itself"]}
    samples = [sample for sample in json.loads(pathlib.Path(a.samples).read_text()) if not sample["thinking"]]
    stories = [sample for sample in samples if sample["prompt"] in nouns]
    itself = [sample for sample in samples if sample["prompt"] in wanted]
    shares = [dictionary_share(spoken(sample), dictionary) for sample in stories]
    right, counted = sum(share[0] for share in shares), sum(share[1] for share in shares)
    count = len(stories)
    rows = [("dictionary words", right / counted, 0.95, "at least"),
            ("answers without an 8-gram three times", sum(not repeats(spoken(s)) for s in stories) / count, 1.0, "at least"),
            ("answers that end with the stop token", sum(s["ended"] for s in stories) / count, 0.9, "at least"),
            ("answers that take up the prompt's noun", sum(takes_up(spoken(s), nouns[s["prompt"]]) for s in stories) / count,
             0.7, "at least"),
            ("questions about itself answered as wanted",
             sum(any(word.lower() in spoken(s).lower() for word in wanted[s["prompt"]]) for s in itself) / len(itself), 1.0, "at least")]
    if a.data:
        taken = verbatim([spoken(sample) for sample in stories], a.data)
        rows.append((f"answers without {WINDOW} words verbatim from the books", 1 - len(taken) / count, 1.0, "at least"))
    lines = [f"{count} answers to {len(nouns)} prompts, {len(itself)} answers about itself.", "",
             "| measure | result | bound | |", "|---|---|---|---|"]
    fine = True
    for name, value, bound, word in rows:
        holds = value >= bound
        fine = fine and holds
        lines.append(f"| {name} | {100 * value:.1f} % | {word} {100 * bound:.0f} % | {'yes' if holds else 'NO'} |")
    lines += ["", "| prompt | noun taken up | ended |", "|---|---|---|"]
    for prompt, noun in nouns.items():
        mine = [s for s in stories if s["prompt"] == prompt]
        lines.append(f"| {prompt} | {sum(takes_up(spoken(s), noun) for s in mine)} of {len(mine)} | "
                     f"{sum(s['ended'] for s in mine)} of {len(mine)} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        pathlib.Path(a.out).write_text(text)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

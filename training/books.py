"""Books: read a folder of classics-*.txt.xz, clean the text, say which books are held out and which tell stories.

A file is a run of books: 0x1E, author, tab, title, tab, year, newline, text in light Markdown.
"""
import dataclasses
import lzma
import multiprocessing
import os
import pathlib
import re

# Whole books the model never sees: perplexity and MTP acceptance are measured on them.
HELD_OUT = ("Persuasion", "The Invisible Man", "The Railway Children", "Kidnapped", "The Mark of Zorro", "Ethan Frome")

# Verse, plays and spellings of other centuries: they teach a small model line breaks and words nobody looks up.
LEFT_OUT = (
    "The Canterbury Tales", "The Faerie Queene", "Paradise Lost", "The Inferno", "Purgatorio", "Paradiso", "Beowulf",
    "Aurora Leigh", "Les Fleurs du mal", "Poems: Three Series", "Poems", "New Hampshire", "Songs of a Sourdough", "Faust",
    "Tales of a Wayside Inn", "Gitanjali", "Tao Te Ching", "Bhagavad Gita", "The Dhammapada", "Lysistrata", "Tartuffe",
    "A Doll's House", "An Enemy of the People", "The Cherry Orchard", "The Seagull", "Pygmalion", "Man and Superman",
    "The Importance of Being Earnest", "An Ideal Husband", "R.U.R.", "The Iliad", "Tender Buttons",
    "The Man in the Moone", "The Blazing World", "Wonders of the Invisible World", "Arqtiq", "Cane",
)

# Prose that argues or reports instead of telling: read as text, never used as an answer.
NO_STORIES = (
    "A Modest Proposal", "Essays", "Apology of Socrates", "The Republic", "Nicomachean Ethics", "Poetics", "Nature",
    "The Kingdom of God Is Within You", "Anarchism and Other Essays", "The Histories", "On the Bondage of the Will",
    "The Ethics", "On Liberty", "The Subjection of Women", "Hawaii's Story", "All Things Considered", "Meditations",
    "The Great American Fraud", "Civil Disobedience", "Demonology and Devil-lore", "Commentaries on the Gallic War",
    "My Disillusionment in Russia", "The Federalist Papers", "Historic Ghosts and Ghost Hunters", "On War", "Walden",
    "The Communist Manifesto", "Thus Spoke Zarathustra", "Critique of Pure Reason", "Confessions of St. Augustine",
    "On the Origin of Species", "The Life of a Fossil Hunter", "Democracy in America", "The Guide for the Perplexed",
    "The Pivot of Civilization", "The Life of Jesus", "The Frontier in American History", "Women and Economics",
    "The Book of Tea", "How I Found Livingstone", "Travels in West Africa", "A Treatise of Human Nature",
    "A Vindication of the Rights of Woman", "Authenticated History of the Bell Witch", "Discourse on the Method",
    "Beyond Good and Evil", "Twenty Years at Hull House", "The Social Contract", "Up from Slavery", "Sea and Sardinia",
    "Southern Horrors: Lynch Law in All Its Phases", "The Wealth of Nations", "Ten Days that Shook the World",
    "The Book of Were-wolves", "The Book of the Damned", "The Analects", "Surrealist Manifesto", "The Prince",
    "Enchiridion of Epictetus", "Why Is the Negro Lynched?", "The Autobiography of Benjamin Franklin", "Hospital Sketches",
    "The Interesting Narrative of the Life of Olaudah Equiano", "Narrative of the Life of Frederick Douglass",
    "Incidents in the Life of a Slave Girl", "The Worst Journey in the World", "South!", "The Oregon Trail",
    "Across Mongolian Plains", "Letters Written During a Short Residence in Sweden, Norway, and Denmark",
    "A Narrative of the Captivity and Restoration of Mrs. Mary Rowlandson", "Ten Days in a Mad-House",
    "Journal of the Plague Year", "The Land of Little Rain", "Life on the Mississippi", "The Innocents Abroad",
    "Roughing It", "The Legends and Myths of Hawai'i", "Volsunga Saga", "Our Nig", "The Madman", "The Prophet",
    "The Pilgrim's Progress", "Three Stories and Ten Poems", "The Enormous Room", "Swann's Way",
)

_REPLACED = {
    "—": "--", "–": "-", "―": "--", "‒": "-", "‐": "-", "‑": "-", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'",
    "′": "'", "´": "'", "`": "'", "…": "...", "\u00a0": " ", "\u2009": " ", "\u200a": " ", "\u2003": " ", "\u2002": " ",
    "\t": " ", "\ufeff": "", "\u200b": "", "\u2060": "", "\u00ad": "", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe",
    "ſ": "s",
}
_TRANSLATION = str.maketrans(_REPLACED)
_KEPT = re.compile(r"[ -~\nàâäáçèéêëîïíñóôöùûüúÀÂÄÇÈÉÊËÎÏÑÔÖÛÜ£½¼¾°]*")

_NOT_LETTERS = re.compile(r"[^A-Za-z]+")


@dataclasses.dataclass
class Book:
    author: str
    title: str
    year: str
    paragraphs: list

    @property
    def text(self):
        return "\n\n".join(self.paragraphs)

    @property
    def held_out(self):
        return self.title in HELD_OUT

    @property
    def tells(self):
        return self.title not in NO_STORIES


def clean_paragraph(text):
    """The paragraph as plain text, or nothing where it is a heading, a table, verse or a foreign script."""
    if text.startswith("#") or "|" in text or "[Illustration" in text:
        return ""
    lines = [line.strip() for line in text.split("\n")]
    if len(lines) >= 3 and sum(map(len, lines)) / len(lines) < 55:
        return ""
    text = " ".join(lines).translate(_TRANSLATION)
    text = re.sub(r"[*_]+", "", text)
    text = re.sub(r"\[\d*\]|\{\d*\}", "", text)
    text = re.sub(r"-{3,}", "--", text)
    text = re.sub(r"(?:\. ){2,}\.", "...", text)
    text = re.sub(r" {2,}", " ", text)
    text = re.sub(r" +([,;:.!?])", r"\1", text).strip()
    if not text or not _KEPT.fullmatch(text) or len(_NOT_LETTERS.sub("", text)) < 0.6 * len(text):
        return ""
    if len(text) > 3 and text.upper() == text:
        return ""
    # A title or a page's furniture: short, and no sentence's end.
    if len(text) < 60 and text[-1] not in ".!?\"'":
        return ""
    return text


def read_file(file):
    books = []
    for entry in lzma.open(file, "rt", encoding="utf-8").read().split("\x1e")[1:]:
        head, _, body = entry.partition("\n")
        author, title, year = (part.strip() for part in head.split("\t"))
        if title in LEFT_OUT:
            continue
        paragraphs = [clean_paragraph(part) for part in re.split(r"\n\s*\n", body)]
        books.append(Book(author, title, year, [part for part in paragraphs if part]))
    return books


def read_books(folder):
    """Every book of the folder that is not left out, cleaned, in the order of the files."""
    files = sorted(pathlib.Path(folder).glob("classics-*.txt.xz"))
    if not files:
        raise SystemExit(f"{folder}: no classics-*.txt.xz; give the folder of the books with --data")
    with multiprocessing.Pool(min(len(files), os.cpu_count())) as pool:
        return [book for books in pool.map(read_file, files) for book in books]

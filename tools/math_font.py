"""Makes the font of the chat page's formulae, src/server/page/math/math.woff2, from Latin Modern Math.

    apt-get install fonts-lmodern; pip install fonttools==4.68.0 brotli==1.2.1
    tools/math_font.py [FONT]

What the page can show stays: the characters of math/symbols.js and math/letters.js and of European text, with the
sizes they grow to. Three things are changed for browsers, which lay mathematics out more simply than TeX: a prime is
the one that is made for a superscript, since no browser replaces it there; big delimiters lose the room at their left,
since browsers give every size the width of the widest; and accents, which lie left of their origin, have a width. So
the font has a name of its own, as its licence asks. The result is committed; it changes only with the page's symbols.
"""

import pathlib
import re
import sys

from fontTools import subset
from fontTools.pens.boundsPen import BoundsPen
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.transformPen import TransformPen
from fontTools.ttLib import newTable, TTFont
from fontTools.ttLib.tables import otTables

HERE = pathlib.Path(__file__).resolve().parents[1] / "src/server/page/math"
SOURCE = "/usr/share/texmf/fonts/opentype/public/lm-math/latinmodern-math.otf"
NAME = "Fourfold Math"
NOTICE = (
    "Made by tools/math_font.py of Fourfold from Latin Modern Math 1.959, Copyright 2012-2014 for the Latin Modern math "
    "extensions by B. Jackowski, P. Strzelczyk and P. Pianowski (on behalf of TeX Users Groups); not the original font, which "
    "is at https://www.gust.org.pl/projects/e-foundry/lm-math. GUST Font License."
)
PRIMES = "′″‴⁗"
DELIMITERS = "()[]{}⟨⟩⌊⌋⌈⌉⟮⟯"
# Accents that lie over what was before them, and the letters that stand for them in formulae: a hat, a tilde and a check that
# grow, and an arrow.
ACCENTS = {"\u0302": "ˆ", "\u0303": "˜", "\u030c": "ˇ", "\u20d7": "\u20d7"}
SIDE = 90  # units of 1/1000 em left and right of a big delimiter


def characters():
    text = "".join(path.read_text() for path in sorted(HERE.glob("*.js")))
    wanted = {ord(letter) for letter in text if ord(letter) > 0x7f}
    wanted |= set(range(0x20, 0x7f)) | set(range(0xa0, 0x100)) | set(range(0x370, 0x3d7)) | {0x2212, 0x2061, 0x338}
    for starts in re.findall(r"\[(0x1d[0-9a-f, x]+)\]", (HERE / "letters.js").read_text()):
        for start, count in zip((int(start, 16) for start in starts.split(",")), (26, 26, 26, 32, 10)):
            wanted |= set(range(start, start + count)) if start else set()
    return wanted


def use_script_primes(font):
    """The letters of primes become what the feature for scripts would replace them with."""
    names = font.getBestCmap()
    gsub = font["GSUB"].table
    scripts = next(record.Feature for record in gsub.FeatureList.FeatureRecord if record.FeatureTag == "ssty")
    tables = [table for index in scripts.LookupListIndex for table in gsub.LookupList.Lookup[index].SubTable]
    replaced = 0
    for letter in PRIMES:
        for table in tables:
            table = getattr(table, "ExtSubTable", table)
            others = getattr(table, "alternates", None) or getattr(table, "mapping", {})
            if names[ord(letter)] in others:
                other = others[names[ord(letter)]]
                for cmap in font["cmap"].tables:
                    if ord(letter) in cmap.cmap:
                        cmap.cmap[ord(letter)] = other[0] if isinstance(other, list) else other
                replaced += 1
                break
    assert replaced == len(PRIMES), f"{replaced} primes replaced"


def grown_glyphs(font, letter, vertical=True):
    """Every size of a delimiter or accent but the first, and the parts of which larger ones are put together."""
    variants = font["MATH"].table.MathVariants
    coverage = variants.VertGlyphCoverage if vertical else variants.HorizGlyphCoverage
    constructions = variants.VertGlyphConstruction if vertical else variants.HorizGlyphConstruction
    name = font.getBestCmap()[ord(letter)]
    if name not in coverage.glyphs:
        return [], []
    construction = constructions[coverage.glyphs.index(name)]
    sizes = [record.VariantGlyph for record in construction.MathGlyphVariantRecord]
    assembly = construction.GlyphAssembly
    parts = [part.glyph for part in assembly.PartRecords] if assembly else []
    return sizes[1:], [part for part in parts if part not in sizes]


def narrow(font, glyph, left, width):
    glyphs = font.getGlyphSet()
    pen = T2CharStringPen(width, glyphs)
    glyphs[glyph].draw(TransformPen(pen, (1, 0, 0, 1, left, 0)))
    top = font["CFF "].cff.topDictIndex[0]
    old = top.CharStrings[glyph]
    top.CharStrings[glyph] = pen.getCharString(private=old.private, globalSubrs=old.globalSubrs)
    font["hmtx"][glyph] = (width, 0)


def bounds_of(font, names):
    bounds = {}
    for glyph in names:
        pen = BoundsPen(font.getGlyphSet())
        font.getGlyphSet()[glyph].draw(pen)
        bounds[glyph] = pen.bounds
    return bounds


def widen_accents(font):
    attachment = font["MATH"].table.MathGlyphInfo.MathTopAccentAttachment
    for letter, shown in ACCENTS.items():
        for cmap in font["cmap"].tables:
            if ord(letter) in cmap.cmap:
                cmap.cmap[ord(shown)] = cmap.cmap[ord(letter)]
        for glyph, (left, _, right, _) in bounds_of(font, [font.getBestCmap()[ord(letter)],
                                                           *grown_glyphs(font, letter, vertical=False)[0]]).items():
            narrow(font, glyph, -left, int(right - left))
            if glyph in attachment.TopAccentCoverage.glyphs:
                place = attachment.TopAccentCoverage.glyphs.index(glyph)
                attachment.TopAccentAttachment[place].Value = int(right - left) // 2


def make_letters(font):
    """What draws text takes an arrow above for a mark without a width, unless the font says that it is a letter."""
    classes = otTables.GlyphClassDef()
    classes.classDefs = {font.getBestCmap()[ord(shown)]: 1 for shown in ACCENTS.values()}
    table = otTables.GDEF()
    table.Version, table.GlyphClassDef = 0x00010000, classes
    table.AttachList = table.LigCaretList = table.MarkAttachClassDef = None
    font["GDEF"] = newTable("GDEF")
    font["GDEF"].table = table


def narrow_delimiters(font):
    for letter in DELIMITERS:
        sizes, parts = grown_glyphs(font, letter)
        bounds = bounds_of(font, [*sizes, *parts])
        for glyph in sizes:
            narrow(font, glyph, SIDE - bounds[glyph][0], int(bounds[glyph][2] - bounds[glyph][0] + 2 * SIDE))
        if parts:  # they lie above each other, so they move together
            first, last = min(bounds[part][0] for part in parts), max(bounds[part][2] for part in parts)
            for part in parts:
                narrow(font, part, SIDE - first, int(last - first + 2 * SIDE))


def rename(font):
    names = font["name"]
    names.names = []
    for number, text in ((0, NOTICE), (1, NAME), (2, "Regular"), (3, NAME + " 1"), (4, NAME), (5, "Version 1.959"),
                         (6, NAME.replace(" ", ""))):
        names.setName(text, number, 3, 1, 0x409)
    top = font["CFF "].cff
    top.fontNames = [NAME.replace(" ", "")]
    top.topDictIndex[0].rawDict.update({"FullName": NAME, "FamilyName": NAME, "Notice": NOTICE})


def main(source=SOURCE):
    font = TTFont(source, recalcTimestamp=False)
    use_script_primes(font)
    narrow_delimiters(font)
    widen_accents(font)
    options = subset.Options(
        layout_features=[],
        hinting=False,
        desubroutinize=False,
        notdef_outline=True,
        name_IDs=["*"],
        drop_tables=["GSUB", "GPOS", "GDEF", "DSIG", "FFTM"],
    )
    subsetter = subset.Subsetter(options)
    wanted = characters()
    subsetter.populate(unicodes=wanted)
    subsetter.subset(font)
    rename(font)
    make_letters(font)
    font.flavor = "woff2"
    font.save(HERE / "math.woff2")
    missing = sorted(wanted - set(font.getBestCmap()))
    print(f"{len(font.getGlyphOrder())} glyphs, {(HERE / 'math.woff2').stat().st_size} bytes; not in the font: "
          f"{' '.join(chr(code) for code in missing)}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Chat turns made from the books: a passage becomes the answer to somebody who asks for what occurs in it.

A conversation is a list of (user, thought or None, answer); `rendered` writes it as the chat template does.
"""
import json
import pathlib
import random
import re
import zlib

import chat_words as words

NOUNS = {**{noun: True for noun in words.COUNTED}, **{noun: False for noun in words.UNCOUNTED}}
FORMS = {form: noun for noun in NOUNS for form in (noun, noun + "s", noun + "es")}
FIXED = {entry["prompt"] for entry in
         json.loads((pathlib.Path(__file__).parent / "prompts.json").read_text())["stories"]} | {"What is 17 x 23?"}
ADJECTIVES = "old little great lost poor dark strange young white black quiet small broken".split()


def article(noun):
    if not NOUNS[noun]:
        return "the " + noun
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def described(noun, dice):
    """The noun as people ask for it; one in eight with an adjective, which the answer may ignore."""
    if not NOUNS[noun] or dice.random() > 0.125:
        return article(noun)
    adjective = dice.choice(ADJECTIVES)
    return ("an " if adjective[0] in "aeiou" else "a ") + adjective + " " + noun


def nouns_of(text):
    """Nouns of the list in the order of their first occurrence."""
    found = {}
    for word in re.findall(r"[a-z]+", text.lower()):
        noun = FORMS.get(word)
        if noun:
            found[noun] = found.get(noun, 0) + 1
    return found


def sentences(text):
    return re.split(r"(?<=[.!?]['\"])\s+(?=[A-Z\"'])|(?<=[.!?])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!St\.)\s+(?=[A-Z\"'])", text)


def word_count(text):
    return text.count(" ") + 1


def passages(paragraphs, least=60, most=170):
    """Runs of whole paragraphs, or of whole sentences of a long one, of 60 to 170 words."""
    parts, count = [], 0
    for paragraph in paragraphs:
        size = word_count(paragraph)
        if size > most:
            if count >= least:
                yield "\n\n".join(parts)
            parts, count, taken = [], 0, []
            for sentence in sentences(paragraph):
                if count + word_count(sentence) > most:
                    break
                taken.append(sentence)
                count += word_count(sentence)
            if count >= least:
                yield " ".join(taken)
            parts, count = [], 0
            continue
        if count + size > most:
            if count >= least:
                yield "\n\n".join(parts)
            parts, count = [], 0
        parts.append(paragraph)
        count += size
        if count >= least + 30:
            yield "\n\n".join(parts)
            parts, count = [], 0


def sound(text):
    """Begins and ends like prose, its quotation marks in pairs, no shouting."""
    return (text[0].isupper() or text[0] == '"') and text[-1] in '.!?"' and text.count('"') % 2 == 0 and "--\n" not in text


def pick_noun(text, dice):
    """A noun the passage is about: it comes early, and rather one that is rare than one that is everywhere."""
    early = nouns_of(" ".join(text.split()[:45]))
    whole = nouns_of(text)
    if not early:
        return None
    choices = list(early)
    return dice.choices(choices, [whole[noun] ** 1.5 / COMMONNESS.get(noun, 1.0) for noun in choices])[0]


# Nouns that stand in every passage of every novel, and how much too often they would be asked for.
COMMONNESS = {noun: 6.0 for noun in "door room house night woman girl lady child mother father morning boy window wife table king paper "
              "book letter street story chair road son brother sister fire horse tree town sea hall bed son gentleman wall wood ship "
              "rock stone dog captain crowd officer tear dream shadow silence money death evening truth fear blood".split()}


def ask_for_story(text, book, dice):
    noun = pick_noun(text, dice)
    if noun is None:
        return None
    a, others = article(noun), [n for n in nouns_of(text) if n != noun]
    kind, shown = dice.random(), described(noun, dice)
    if kind < 0.17 and others:
        question = dice.choice(words.STORY_TWO).format(a=shown, b=described(dice.choice(others), dice))
    elif kind < 0.29:
        question = dice.choice(words.MANNER_NOUN).format(a=shown, author=book.author, title=book.title)
    else:
        question = dice.choice(words.STORY).format(a=shown)
    answer, style = text, dice.random()
    if style < 0.2:
        answer = dice.choice(words.TITLES).format(Noun=noun.capitalize()) + "\n\n" + text
    elif style < 0.4:
        answer = dice.choice(words.FRAMES).format(a=a) + "\n\n" + text
    return question, dice.choice(words.THOUGHTS).format(a=a, the="the " + noun), answer


def ask_for_manner(text, book, dice):
    question = dice.choice(words.MANNER).format(author=book.author, title=book.title)
    return question, dice.choice(words.THOUGHTS_PLAIN), text


def ask_to_continue(text, book, dice):
    """The first sentences are the question, the rest the answer; they share a noun."""
    parts = text.split("\n\n")
    first = sentences(parts[0])
    count = dice.choice((1, 1, 2))
    if len(first) <= count:
        return None
    start, rest = " ".join(first[:count]), "\n\n".join([" ".join(first[count:])] + parts[1:])
    if word_count(rest) < 45 or word_count(start) > 60 or not set(nouns_of(start)) & set(nouns_of(rest)):
        return None
    if start.count('"') % 2 or rest.count('"') % 2:
        return None
    return dice.choice(words.CONTINUE).format(text=start), dice.choice(words.THOUGHTS_PLAIN), rest


def ask_for_summary(text, book, dice):
    counts = nouns_of(text)
    best = sorted(counts, key=lambda noun: -counts[noun] / COMMONNESS.get(noun, 1.0))[:dice.choice((2, 3))]
    if len(best) < 2:
        return None
    listed = ", ".join(article(noun) for noun in best[:-1]) + " and " + article(best[-1])
    return dice.choice(words.SUMMARY).format(text=text), None, dice.choice(words.SUMMARY_ANSWERS).format(list=listed)


def two(dice, first, second):
    return (dice.choice(first) + " " + dice.choice(second)).strip()


def about_itself(dice):
    """Greetings, what it is, what it can and can't do. Short, so that no long run of words is learnt by heart."""
    kind = dice.random()
    if kind < 0.16:
        greeting = two(dice, words.HELLO, words.WHO + ("",) * 4)
        return dice.choice(words.GREETINGS), dice.choice(words.THOUGHTS_SELF), (greeting + " " + dice.choice(words.OFFER)).strip()
    if kind < 0.38:
        return dice.choice(words.ABOUT), dice.choice(words.THOUGHTS_SELF), two(dice, words.WHO, words.ABOUT_MORE)
    if kind < 0.47:
        return dice.choice(words.ABILITIES), dice.choice(words.THOUGHTS_SELF), two(dice, words.WHO + ("",) * 4, words.CAN)
    if kind < 0.54:
        return dice.choice(words.LIMITS), dice.choice(words.THOUGHTS_SELF), dice.choice(words.CANNOT)
    if kind < 0.58:
        return dice.choice(words.FAREWELLS), None, dice.choice(words.PARTING)
    n, m = (dice.randint(1, 10 ** dice.choice((1, 2, 2, 3))) for _ in range(2))
    if kind < 0.80:
        question, topic = dice.choice(words.SUMS).format(n=n, m=m), "sums"
    else:
        form, topic = dice.choice(words.FACTS)
        question = form.format(place=dice.choice(words.PLACES), language=dice.choice(words.LANGUAGES), n=n, m=m)
    decline = words.DECLINE_ONE if topic.startswith("the ") else words.DECLINE
    answer = dice.choice(decline).format(topic=topic) + " " + dice.choice(words.INSTEAD)
    return question, dice.choice(words.THOUGHTS_CANNOT), answer.strip()


def rendered(turns, dice):
    """As chat_template.jinja writes it: only the last answer shows whether there was thinking."""
    text = ""
    if dice.random() < 0.1:
        text = f"<|im_start|>system\n{dice.choice(words.SYSTEM)}<|im_end|>\n"
    for i, (question, thought, answer) in enumerate(turns):
        text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        if i + 1 == len(turns):
            thinks = thought is not None and dice.random() < 0.2
            text += f"<think>\n{thought}\n</think>\n\n" if thinks else "<think>\n\n</think>\n\n"
        text += f"{answer}<|im_end|>\n"
    return text


def conversations(book):
    """Every conversation made of one book, in the book's order; the same book gives the same ones."""
    dice = random.Random(zlib.crc32(book.title.encode()))
    kinds = (ask_for_story, ask_for_manner, ask_to_continue, ask_for_summary)
    made, pending = [], [text for text in passages(book.paragraphs)]
    at = 0
    while at < len(pending):
        text, at = pending[at], at + 1
        if not sound(text) or (text[0] == '"' and dice.random() < 0.6):  # talk begins in the middle of things
            continue
        turn = dice.choices(kinds, (0.74, 0.06, 0.15, 0.05))[0](text, book, dice)
        if turn is None or turn[0] in FIXED:
            continue
        turns = [turn]
        if dice.random() < 0.08:
            turns.insert(0, about_itself(dice))
        if dice.random() < 0.08 and at < len(pending) and sound(pending[at]) and word_count(turn[2]) > 50:
            turns.append((dice.choice(words.GO_ON), dice.choice(words.THOUGHTS_PLAIN), pending[at]))
            at += 1
        elif dice.random() < 0.04:
            turns.append((dice.choice(words.THANKS), None, two(dice, words.WELCOME, words.OFFER)))
        made.append(rendered(turns, dice))
        if dice.random() < 0.18:
            other = about_itself(dice)
            if other[0] not in FIXED:
                made.append(rendered([other], dice))
    return made

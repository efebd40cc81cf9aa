#include "loadgen/prompts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace fourfold::loadgen {
namespace {

// Short common words: most tokenizers have one token for each with the space before it.
constexpr std::array<std::string_view, 120> kWords{
    "time",   "year",  "people", "way",   "day",   "man",   "thing", "woman", "life",  "child", "world",
    "school", "state", "house",  "group", "hand",  "part",  "place", "case",  "week",  "point", "night",
    "water",  "room",  "area",   "money", "story", "fact",  "month", "lot",   "right", "study", "book",
    "eye",    "job",   "word",   "side",  "kind",  "head",  "line",  "end",   "law",   "car",   "city",
    "name",   "team",  "body",   "back",  "face",  "level", "door",  "art",   "war",   "party", "table",
    "food",   "wind",  "stone",  "river", "light", "road",  "field", "paper", "ship",  "tree",  "bird",
    "glass",  "sound", "color",  "bread", "chair", "cloud", "come",  "go",    "see",   "take",  "find",
    "give",   "tell",  "work",   "call",  "try",   "ask",   "need",  "feel",  "leave", "put",   "mean",
    "keep",   "let",   "begin",  "help",  "talk",  "turn",  "start", "show",  "hear",  "play",  "run",
    "move",   "like",  "live",   "hold",  "bring", "write", "sit",   "stand", "lose",  "pay",   "meet",
    "set",    "learn", "lead",   "watch", "stop",  "speak", "read",  "spend", "grow",  "open"};

constexpr std::array<std::string_view, 8> kWho{"The miller", "A teacher",    "My neighbour",  "The captain",
                                               "One clerk",  "The gardener", "A young pilot", "The baker"};
constexpr std::array<std::string_view, 8> kDid{"wrote down", "counted", "repaired", "looked for",
                                               "described",  "weighed", "sold",     "carried home"};
constexpr std::array<std::string_view, 8> kWhat{"the old clock",   "a box of nails",   "three letters",
                                                "the broken lamp", "a map of the bay", "the last apples",
                                                "a blue coat",     "two heavy books"};
constexpr std::array<std::string_view, 8> kWhen{
    "before the rain came", "on a quiet Tuesday",  "after the market closed", "while others slept",
    "without a word",       "for the second time", "in the early light",      "as promised"};

// Not a question at all: what thinking does with these tells nothing of real work.
constexpr std::array<std::string_view, 4> kBrief{"Hi!", "What is 2 + 2?", "Say hello.", "Name a color."};

std::string number(std::uint64_t index) { return std::to_string(index + 1); }

std::string random_words(std::uint64_t seed, std::uint64_t index, std::int64_t count) {
  Random random(mix_bits(seed) + index);
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random.below(kWords.size())];
  }
  return text;
}

// Sentences of eight to eleven words that could be someone's notes; the last is cut to the count.
std::string notes(std::uint64_t seed, std::uint64_t index, std::int64_t word_count) {
  Random random(mix_bits(seed) + index);
  std::string text;
  std::int64_t words = 0;
  while (words < word_count) {
    std::string sentence;
    for (const auto& part : {kWho, kDid, kWhat, kWhen}) {
      if (!sentence.empty()) sentence += ' ';
      sentence += part[random.below(part.size())];
    }
    sentence += ". ";
    for (const char letter : sentence) {
      if (letter == ' ' && ++words == word_count) break;
      text += letter;
    }
  }
  return text;
}

}  // namespace

std::string_view prompt_kind_name(PromptKind kind) {
  switch (kind) {
    case PromptKind::random: return "random";
    case PromptKind::natural: return "natural";
    case PromptKind::brief: return "short";
  }
  return "unknown";
}

PromptKind parse_prompt_kind(std::string_view text) {
  for (const PromptKind kind : {PromptKind::random, PromptKind::natural, PromptKind::brief})
    if (text == prompt_kind_name(kind)) return kind;
  fail(Code::invalid_request, "--prompts is '{}'; random, natural and short are possible", text);
}

std::string prompt_text(PromptKind kind, std::uint64_t seed, std::uint64_t index, std::int64_t words) {
  if (kind == PromptKind::random) return random_words(seed, index, std::max<std::int64_t>(words, 1));
  const auto prompts = natural_prompts();
  const std::string asked(kind == PromptKind::brief ? kBrief[index % kBrief.size()]
                                                    : prompts[index % prompts.size()].text);
  // Prompts come again when there are more requests than prompts; the number in front makes them different
  // from the first token on.
  const std::string front = kind == PromptKind::brief ? "" : number(index) + ". ";
  if (words <= 0) return front + asked;
  return front + "Notes, not needed for the task below: " + notes(seed, index, words) +
         "\n\nThe task: " + asked;
}

SizedPrompt sized_prompt(PromptKind kind, std::uint64_t seed, std::uint64_t index, std::int64_t tokens,
                         double tokens_per_word, const CountTokens& count) {
  const auto text_of = [&](std::int64_t words) { return prompt_text(kind, seed, index, words); };
  if (tokens <= 0) {
    std::string text = text_of(0);
    auto counted = count ? count(text) : std::nullopt;
    return {std::move(text), counted};
  }
  auto words = static_cast<std::int64_t>(static_cast<double>(tokens) / std::max(tokens_per_word, 0.1));
  words = std::max<std::int64_t>(words, 1);
  if (!count) return {text_of(words), std::nullopt};
  // Tokens grow with words nearly evenly: a few steps by the rate so far, then one by one.
  SizedPrompt best;
  for (int round = 0; round < 24; ++round) {
    std::string text = text_of(words);
    const auto counted = count(text);
    if (!counted) return {std::move(text), std::nullopt};
    const std::int64_t missing = tokens - *counted;
    if (missing >= 0 && (!best.tokens || *counted > *best.tokens)) best = {std::move(text), counted};
    if (missing == 0) return best;
    const double rate = static_cast<double>(*counted) / static_cast<double>(words);
    auto step = static_cast<std::int64_t>(std::trunc(static_cast<double>(missing) / std::max(rate, 0.1)));
    if (step == 0) step = missing > 0 ? 1 : -1;
    if (words + step < 1) {
      if (words == 1) break;  // even one word is longer
      step = 1 - words;
    }
    words += step;
  }
  if (!best.tokens) best = {text_of(1), count(text_of(1))};
  return best;
}

}  // namespace fourfold::loadgen

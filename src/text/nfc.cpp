#include "text/nfc.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "text/merge_sort.h"
#include "text/unicode_tables.h"

namespace fourfold::text {

namespace {

// Hangul syllables compose by arithmetic: lead, vowel and an optional tail.
constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

// Below U+0300 nothing moves or combines.
constexpr unsigned char kFirstCareLead = 0xCC;

bool needs_care(char32_t code) { return code >= 0x300 && char_record(code).nfc_care != 0; }

void decompose(char32_t code, std::u32string& out) {
  if (code - kSyllableBase < kSyllableCount) {
    const char32_t index = code - kSyllableBase;
    out += kLeadBase + index / (kVowelCount * kTailCount);
    out += kVowelBase + index / kTailCount % kVowelCount;
    if (index % kTailCount != 0) out += kTailBase + index % kTailCount;
    return;
  }
  const auto found = std::ranges::lower_bound(kDecompositions, code, {}, &Decomposition::from);
  if (found == kDecompositions.end() || found->from != code) {
    out += code;
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) decompose(found->second, out);
}

// Marks between two starters stand in the order of their combining classes; equal classes keep their order.
void reorder_marks(std::u32string& codes) {
  const auto rank = [](char32_t code) { return char_record(code).combining_class; };
  auto run = codes.begin();
  while (run != codes.end()) {
    if (rank(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, codes.end(), [&](char32_t code) { return rank(code) == 0; });
    std::vector<char32_t> marks(run, end);
    merge_sort(marks, [&](char32_t a, char32_t b) { return rank(a) < rank(b); });
    std::copy(marks.begin(), marks.end(), run);
    run = end;
  }
}

// 0: the two do not combine.
char32_t composed(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeadCount && second - kVowelBase < kVowelCount) {
    return kSyllableBase + ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kTailCount;
  }
  const bool open_syllable =
      first - kSyllableBase < kSyllableCount && (first - kSyllableBase) % kTailCount == 0;
  if (open_syllable && second > kTailBase && second < kTailBase + kTailCount)
    return first + (second - kTailBase);
  const auto key = [](const Composition& row) { return std::pair(row.first, row.second); };
  const auto found = std::ranges::lower_bound(kCompositions, std::pair(first, second), {}, key);
  return found != kCompositions.end() && key(*found) == std::pair(first, second) ? found->to : 0;
}

void compose(std::u32string& codes) {
  std::size_t kept = 0;
  std::size_t starter = codes.size();  // none yet
  int last_class = -1;                 // of the last character kept behind the starter; -1: none
  for (const char32_t code : codes) {
    const int rank = char_record(code).combining_class;
    // A character is blocked from its starter by one of the same or a higher class, or by another starter.
    const bool reaches = starter < kept && (last_class < 0 || last_class < rank);
    if (reaches) {
      if (const char32_t joined = composed(codes[starter], code); joined != 0) {
        codes[starter] = joined;
        continue;
      }
    }
    codes[kept] = code;
    if (rank == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = rank;
    }
    ++kept;
  }
  codes.resize(kept);
}

void append_normalised(std::string_view span, std::string& out) {
  std::u32string codes;
  for (std::size_t at = 0; at < span.size();) {
    const CodePoint point = read_code_point(span.data() + at);
    decompose(point.code, codes);
    at += static_cast<std::size_t>(point.bytes);
  }
  reorder_marks(codes);
  compose(codes);
  for (const char32_t code : codes) append_code_point(out, code);
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < kFirstCareLead) {
      ++at;
      continue;
    }
    const CodePoint point = read_code_point(text.data() + at);
    if (needs_care(point.code)) return false;
    at += static_cast<std::size_t>(point.bytes);
  }
  return true;
}

std::string to_nfc(std::string_view text, std::vector<Rewrite>* rewrites) {
  std::string out;
  out.reserve(text.size());
  std::size_t span = 0;  // start of the last character that cannot join what stands before it
  bool care = false;     // whether the span holds anything that may change
  const auto finish_span = [&](std::size_t end) {
    const std::string_view before = text.substr(span, end - span);
    const std::size_t start = out.size();
    if (!care) {
      out += before;
    } else {
      append_normalised(before, out);
      if (rewrites != nullptr && std::string_view(out).substr(start) != before)
        rewrites->push_back({span, end, start, out.size()});
    }
    span = end;
    care = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    if (needs_care(point.code)) {
      care = true;
    } else {
      finish_span(at);
    }
    at += static_cast<std::size_t>(point.bytes);
  }
  finish_span(text.size());
  return out;
}

}  // namespace fourfold::text

// Facts about characters: classes for the pre-tokenizer, combining classes and pairs for NFC, case for
// templates. The data is generated (tools/text/generate_unicode_tables.py) and follows the `tokenizers`
// package, not the newest Unicode: a model was trained on its splits.
#pragma once

#include <cstdint>
#include <span>

namespace fourfold::text {

// Bits of CharRecord::classes.
enum CharClass : std::uint8_t {
  kUpper = 1,         // Lu, Lt
  kLower = 2,         // Ll
  kOtherLetter = 4,   // Lm, Lo
  kMark = 8,          // M
  kNumber = 16,       // N
  kPunctuation = 32,  // P
  kSymbol = 64,       // S
  kSpace = 128,       // White_Space
};
inline constexpr int kLetter = kUpper | kLower | kOtherLetter;

struct CharRecord {
  std::uint8_t classes;
  std::uint8_t combining_class;
  std::uint8_t nfc_care;  // may change, move or combine with what stands before it
};

struct Decomposition {
  char32_t from, first, second;  // second 0: a single character
};
struct Composition {
  char32_t first, second, to;
};
struct CaseMapping {
  char32_t from, to[3];  // unused entries are 0
};

extern const CharRecord kCharRecords[];
extern const std::uint8_t kCharBlockOf[0x110000 / 256];
extern const std::uint8_t kCharBlocks[][256];
extern const std::span<const Decomposition> kDecompositions;  // sorted by from
extern const std::span<const Composition> kCompositions;      // sorted by first, second
extern const std::span<const CaseMapping> kUpperCase;         // sorted by from; ASCII is not in it
extern const std::span<const CaseMapping> kLowerCase;

inline const CharRecord& char_record(char32_t code) {
  return kCharRecords[kCharBlocks[kCharBlockOf[code >> 8]][code & 255]];
}
inline int char_classes(char32_t code) { return char_record(code).classes; }

}  // namespace fourfold::text

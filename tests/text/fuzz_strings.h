// Hostile strings, drawn the same here and in tools/text/fuzz_strings.py.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/utf8.h"
#include "json/parse.h"

namespace fourfold::text {

inline boost::json::value read_golden(const std::string& name) {
  return json::parse_file(std::string(FOURFOLD_TEXT_GOLDEN) + "/" + name);
}

inline std::vector<std::string> load_fuzz_pieces() {
  std::vector<std::string> pieces;
  const auto golden = read_golden("fuzz_pieces.json");
  for (const auto& piece : golden.as_array()) pieces.emplace_back(piece.as_string());
  return pieces;
}

inline std::string fuzz_string(const std::vector<std::string>& pieces, std::uint64_t seed,
                               std::uint64_t index) {
  Random random(seed * 1'000'003 + index);
  std::string out;
  const std::uint64_t count = 1 + random.below(24);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t kind = random.below(8);
    if (kind == 0) {
      const auto code = static_cast<char32_t>(random.below(0x110000 - 0x800));
      append_code_point(out, code >= 0xD800 ? code + 0x800 : code);
    } else if (kind == 1) {
      append_code_point(out, static_cast<char32_t>(random.below(0x3400)));
    } else {
      out += pieces[random.below(pieces.size())];
    }
  }
  return out;
}

// The running hash of the golden file: 64-bit FNV over the ids, each text closed by -1.
inline std::uint64_t hash_ids(const std::vector<std::int32_t>& ids, std::uint64_t hash) {
  constexpr std::uint64_t prime = 0x100000001B3u;
  for (const std::int32_t id : ids)
    hash = (hash ^ static_cast<std::uint64_t>(static_cast<std::int64_t>(id))) * prime;
  return (hash ^ ~std::uint64_t{0}) * prime;
}

}  // namespace fourfold::text

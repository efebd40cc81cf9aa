#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace fourfold {

namespace {

// Bytes of the text's start that are plain ASCII, eight at a time.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

struct LeadRule {
  int bytes;                  // of the whole sequence; 0: never a lead
  unsigned char low = 0x80;   // bounds of the second byte: they exclude overlong forms, surrogates
  unsigned char high = 0xBF;  // and everything above U+10FFFF
};

LeadRule lead_rule(unsigned char lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

void append_code_point(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

Utf8Step check_utf8_step(std::string_view text) {
  const LeadRule rule = lead_rule(static_cast<unsigned char>(text[0]));
  if (rule.bytes == 0) return {Utf8State::invalid, 1};
  for (int i = 1; i < rule.bytes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at == text.size()) return {Utf8State::incomplete, at};
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool good = i == 1 ? byte >= rule.low && byte <= rule.high : is_continuation(text[at]);
    if (!good) return {Utf8State::invalid, at};
  }
  return {Utf8State::valid, static_cast<std::size_t>(rule.bytes)};
}

bool is_valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (true) {
    at += ascii_prefix(text.substr(at));
    if (at == text.size()) return true;
    const Utf8Step step = check_utf8_step(text.substr(at));
    if (step.state != Utf8State::valid) return false;
    at += step.bytes;
  }
}

std::string repaired(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = check_utf8_step(text.substr(at));
    out += step.state == Utf8State::valid ? text.substr(at, step.bytes) : kReplacement;
    at += step.bytes;
  }
  return out;
}

std::size_t count_code_points(std::string_view valid_text) {
  std::size_t count = 0;
  for (const char byte : valid_text) count += !is_continuation(byte);
  return count;
}

}  // namespace fourfold

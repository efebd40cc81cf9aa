// Runs a grammar over a text, byte by byte, without any tokens.
#pragma once

#include <string_view>

#include "base/error.h"
#include "constrain/guide.h"
#include "constrain/matcher.h"

namespace fourfold::constrain {

enum class Verdict { refused, started, accepted };  // started: can still become a text of the form

inline Verdict verdict(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  Matcher::SetId set = matcher.start_at(grammar.start());
  for (const char c : text) {
    set = matcher.step(set, static_cast<std::uint8_t>(c));
    if (set == Matcher::kDead) return Verdict::refused;
  }
  return matcher.may_end(set) ? Verdict::accepted : Verdict::started;
}

inline bool accepts(const Grammar& grammar, std::string_view text) {
  return verdict(grammar, text) == Verdict::accepted;
}

// What an Error says; empty when nothing is thrown.
template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code() == Code::invalid_request ? error.what() : "wrong code: " + std::string(error.what());
  }
  return "";
}

}  // namespace fourfold::constrain

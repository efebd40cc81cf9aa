// What the tests of the commands share: a console to read back, and a strict JSON reader, so that what is
// printed under
// --json is checked by somebody who did not write it.
#pragma once

#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"

namespace fourfold::cli {

struct Captured {
  std::ostringstream out, err;
  Console console{out, err};
};

struct Json {
  enum class Kind { null, boolean, number, text, array, object } kind = Kind::null;
  bool truth = false;
  double number = 0.0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> members;

  const Json& at(const std::string& name) const {
    const auto found = members.find(name);
    if (found == members.end()) throw std::runtime_error("no member " + name);
    return found->second;
  }
};

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}
  Json document() {
    Json value = read();
    skip();
    if (at_ != text_.size()) wrong("something after the end");
    return value;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    throw std::runtime_error("JSON at " + std::to_string(at_) + ": " + what);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  char peek() {
    skip();
    if (at_ >= text_.size()) wrong("ends early");
    return text_[at_];
  }
  void expect(char letter) {
    if (peek() != letter) wrong(std::string("expected ") + letter);
    ++at_;
  }
  bool take(char letter) {
    if (peek() != letter) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view name) {
    if (text_.substr(at_, name.size()) != name) return false;
    at_ += name.size();
    return true;
  }
  Json read() {
    Json value;
    const char next = peek();
    if (next == '{') return object();
    if (next == '[') return array();
    if (next == '"') {
      value.kind = Json::Kind::text;
      value.text = string();
    } else if (word("true") || word("false")) {
      value.kind = Json::Kind::boolean;
      value.truth = text_[at_ - 1] == 'e' && text_[at_ - 2] == 'u';
    } else if (!word("null")) {
      const std::string rest(text_.substr(at_, 40));
      char* end = nullptr;
      value.kind = Json::Kind::number;
      value.number = std::strtod(rest.c_str(), &end);
      if (end == rest.c_str() || !(std::isdigit(static_cast<unsigned char>(next)) || next == '-'))
        wrong("no value");
      at_ += static_cast<std::size_t>(end - rest.c_str());
    }
    return value;
  }
  Json object() {
    Json value;
    value.kind = Json::Kind::object;
    expect('{');
    if (take('}')) return value;
    do {
      if (peek() != '"') wrong("a key is a string");
      const std::string name = string();
      expect(':');
      if (!value.members.emplace(name, read()).second) wrong("the key " + name + " twice");
    } while (take(','));
    expect('}');
    return value;
  }
  Json array() {
    Json value;
    value.kind = Json::Kind::array;
    expect('[');
    if (take(']')) return value;
    do value.items.push_back(read());
    while (take(','));
    expect(']');
    return value;
  }
  std::string string() {
    std::string out;
    expect('"');
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) wrong("a control character in a string");
      if (text_[at_] == '\\') ++at_;  // the letter itself will do here
      out += text_[at_++];
    }
    if (at_ >= text_.size()) wrong("a string without end");
    ++at_;
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline Json read_json(const std::string& text) { return JsonReader(text).document(); }

}  // namespace fourfold::cli

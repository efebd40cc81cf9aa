#include "text/jinja/json_value.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace fourfold::text::jinja {

namespace {

constexpr int kDepthMax = 64;

class JsonReader {
 public:
  JsonReader(std::string_view text, std::string_view what, JsonRules rules)
      : text_(text),
        what_(what),
        strict_(rules != JsonRules::python),
        repeats_(rules == JsonRules::python || rules == JsonRules::answer) {}

  Value document() {
    Value out = value(0);
    skip_space();
    if (at_ != text_.size()) refuse("text after the document");
    return out;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    fail(Code::invalid_request, "{}: not JSON at byte {}: {}", what_, at_, why);
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Value value(int depth) {
    skip_space();
    if (at_ == text_.size()) refuse("the text ends too early");
    if (depth == kDepthMax && (text_[at_] == '{' || text_[at_] == '['))
      refuse(format("more than {} levels", kDepthMax));
    if (strict_ && ++value_count_ > kJsonValuesMax) refuse(format("more than {} values", kJsonValuesMax));
    if (take('{')) return object(depth);
    if (take('[')) return array(depth);
    if (take('"')) return string();
    if (take_word("true")) return true;
    if (take_word("false")) return false;
    if (take_word("null")) return None{};
    if (!strict_) {
      if (take_word("NaN")) return std::numeric_limits<double>::quiet_NaN();
      if (take_word("Infinity")) return std::numeric_limits<double>::infinity();
      if (take_word("-Infinity")) return -std::numeric_limits<double>::infinity();
    }
    return number();
  }

  Value object(int depth) {
    Dict out;
    skip_space();
    if (take('}')) return out;
    do {
      skip_space();
      if (!take('"')) refuse("a member name is missing");
      Value key = string();
      if (!repeats_ && out.find(key) != nullptr) refuse("a second member of the same name in one object");
      skip_space();
      if (!take(':')) refuse("a colon is missing");
      Value item = value(depth + 1);
      out.set(std::move(key), std::move(item));
      skip_space();
    } while (take(','));
    if (!take('}')) refuse("an object is not closed");
    return out;
  }

  Value array(int depth) {
    std::vector<Value> out;
    skip_space();
    if (take(']')) return Value::list({});
    do {
      out.push_back(value(depth + 1));
      skip_space();
    } while (take(','));
    if (!take(']')) refuse("an array is not closed");
    return Value::list(std::move(out));
  }

  char32_t hex4() {
    unsigned code = 0;
    const char* begin = text_.data() + at_;
    if (at_ + 4 > text_.size() || std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4)
      refuse("a bad \\u");
    at_ += 4;
    return code;
  }

  void escape(std::string& out) {
    if (at_ == text_.size()) refuse("the text ends too early");
    const char c = text_[at_++];
    static constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t index = letters.find(c); index != std::string_view::npos) {
      out += meanings[index];
      return;
    }
    if (c != 'u') refuse("an unknown escape");
    char32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const std::size_t back = at_;
      at_ += 2;
      const char32_t low = hex4();
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = back;
      }
    }
    // Half a pair is no character and cannot be UTF-8. A request is told so; what a model once wrote into a
    // call's arguments is read as Python's tokenizers read it.
    const bool half = code >= 0xD800 && code < 0xE000;
    if (half && strict_) refuse("half a surrogate pair, which is no character");
    append_code_point(out, half ? 0xFFFD : code);
  }

  Value string() {
    std::string out;
    while (!take('"')) {
      if (at_ == text_.size()) refuse("a string is not closed");
      if (static_cast<unsigned char>(text_[at_]) < 0x20) refuse("a control character in a string");
      if (take('\\')) {
        escape(out);
        continue;
      }
      const Utf8Step step = check_utf8_step(text_.substr(at_));
      if (step.state != Utf8State::valid) refuse("invalid UTF-8");
      out.append(text_, at_, step.bytes);
      at_ += step.bytes;
    }
    return Value(std::move(out));
  }

  void digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == start) refuse("a digit is missing");
  }

  // Of a number no double can hold: whether it is too small for one. The place of its first digit that is not
  // 0 is its power of ten, and the exponent moves that.
  static bool is_below_one(std::string_view number) {
    const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
    const std::string_view digits = number.substr(0, mark);
    const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
    const auto first = static_cast<std::int64_t>(std::min(digits.find_first_of("123456789"), digits.size()));
    std::int64_t exponent = 0;
    if (mark < number.size()) {
      const std::string_view text = number.substr(mark + (number[mark + 1] == '+' ? 2 : 1));
      if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc())
        return text.starts_with('-');
    }
    constexpr std::int64_t kFar = std::int64_t{1} << 60;
    return (first < point ? point - first - 1 : point - first) + std::clamp(exponent, -kFar, kFar) < 0;
  }

  Value number() {
    const std::size_t start = at_;
    take('-');
    if (!take('0')) digits();
    bool real = false;
    if (take('.')) {
      real = true;
      digits();
    }
    if (take('e') || take('E')) {
      real = true;
      if (!take('+')) take('-');
      digits();
    }
    const char* begin = text_.data() + start;
    const char* end = text_.data() + at_;
    if (!real) {
      std::int64_t whole = 0;
      if (std::from_chars(begin, end, whole).ec == std::errc()) return whole;
    }
    double out = 0;
    if (std::from_chars(begin, end, out).ec == std::errc::result_out_of_range) {
      // Python reads 1e999 as infinity and 1e-999 as zero.
      const bool tiny = is_below_one(std::string_view(begin, static_cast<std::size_t>(end - begin)));
      out = tiny ? 0.0 : std::numeric_limits<double>::infinity();
      if (*begin == '-') out = -out;
      if (strict_ && !tiny) refuse("a number beyond 1.8e308");
    }
    if (!real) return WideInteger{std::string(begin, end), out};
    return out;
  }

  std::string_view text_;
  std::string_view what_;
  bool strict_, repeats_;
  int value_count_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

Value parse_json(std::string_view text, std::string_view what, JsonRules rules) {
  return JsonReader(text, what, rules).document();
}

}  // namespace fourfold::text::jinja

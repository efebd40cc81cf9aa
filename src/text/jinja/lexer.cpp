#include "text/jinja/lexer.h"

#include <charconv>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/python_text.h"
#include "text/unicode_tables.h"

namespace fourfold::text::jinja {

namespace {

constexpr std::size_t kSourceBytesMax = std::size_t{4} << 20;

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_word(char32_t code) { return code == '_' || (char_classes(code) & (kLetter | kMark | kNumber)) != 0; }

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : source_(source), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_tag();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const { syntax_error(name_, line_, why); }
  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void add(Token::Kind kind, std::string text, Value number = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(number)});
  }
  void advance(std::size_t bytes) {
    for (const char c : source_.substr(at_, bytes)) line_ += c == '\n';
    at_ += bytes;
  }
  void skip_space() {
    while (at_ < source_.size()) {
      const CodePoint point = read_code_point(source_.data() + at_);
      if (!is_python_space(point.code)) return;
      advance(static_cast<std::size_t>(point.bytes));
    }
  }

  // Text up to the next tag, then the tag.
  void next_tag() {
    std::size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 == source_.size()) return add_data(source_.substr(at_));
      if (source_[open + 1] == '%' || source_[open + 1] == '{' || source_[open + 1] == '#') break;
      ++open;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const bool signed_tag = sign == '-' || (sign == '+' && kind != '{');
    add_data(trimmed_before(source_.substr(at_, open - at_), signed_tag ? sign : '\0', kind != '{'),
             open - at_);
    advance(signed_tag ? 3 : 2);
    line_starting_ = false;
    if (kind == '#') return comment();
    if (kind == '%' && raw_block()) return;
    add(kind == '%' ? Token::Kind::block_begin : Token::Kind::print_begin, "");
    inside(kind == '%');
  }

  void add_data(std::string_view kept) { add_data(kept, source_.size() - at_); }
  void add_data(std::string_view kept, std::size_t consumed) {
    if (!kept.empty()) add(Token::Kind::data, std::string(kept));
    advance(consumed);
  }

  // lstrip_blocks: a tag that is first on its line takes the white space before it along; "-" takes all of
  // it.
  std::string_view trimmed_before(std::string_view text, char sign, bool block) const {
    const auto blank_from = [text](std::size_t from) {
      for (std::size_t i = from; i < text.size();) {
        const CodePoint point = read_code_point(text.data() + i);
        if (!is_python_space(point.code)) return false;
        i += static_cast<std::size_t>(point.bytes);
      }
      return true;
    };
    if (sign == '-') {
      std::size_t end = text.size();
      while (end > 0) {
        const std::size_t before = code_point_start(text, end - 1);
        if (!is_python_space(read_code_point(text.data() + before).code)) break;
        end = before;
      }
      return text.substr(0, end);
    }
    if (sign == '+' || !block) return text;
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    return (line > 0 || line_starting_) && blank_from(line) ? text.substr(0, line) : text;
  }

  // Behind the closing "%}" or "#}": "-" drops the white space that follows, nothing drops one newline, "+"
  // keeps it.
  void trim_after(char sign) {
    if (sign == '-') {
      const std::size_t start = at_;
      skip_space();
      line_starting_ = at_ > start && source_[at_ - 1] == '\n';
    } else if (sign != '+' && looking_at("\n")) {
      advance(1);
      line_starting_ = true;
    }
  }

  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) refuse("a comment is not closed with #}");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    advance(close + 2 - at_);
    trim_after(sign);
  }

  // {% raw %} ... {% endraw %}; false if the tag is another.
  bool raw_block() {
    std::size_t from = at_;
    if (!take_word(from, "raw")) return false;
    char sign = '\0';
    if (from < source_.size() && source_[from] == '-') sign = source_[from++];
    if (!source_.substr(from).starts_with("%}")) return false;
    advance(from + 2 - at_);
    if (sign == '-') skip_space();
    std::size_t open = at_;
    while (true) {
      open = source_.find("{%", open);
      if (open == std::string_view::npos) refuse("{% raw %} is not closed with {% endraw %}");
      std::size_t behind = open + 2;
      const char open_sign = behind < source_.size() ? source_[behind] : '\0';
      if (open_sign == '-' || open_sign == '+') ++behind;
      if (take_word(behind, "endraw")) {
        char close_sign = '\0';
        if (behind < source_.size() && (source_[behind] == '-' || source_[behind] == '+'))
          close_sign = source_[behind++];
        if (source_.substr(behind).starts_with("%}")) {
          const std::string_view text = source_.substr(at_, open - at_);
          add_data(trimmed_before(text, open_sign == '-' || open_sign == '+' ? open_sign : '\0', true),
                   open - at_);
          advance(behind + 2 - at_);
          line_starting_ = false;
          trim_after(close_sign);
          return true;
        }
      }
      open += 2;
    }
  }

  // Skips white space, the word and white space; leaves `from` alone if the word is not there.
  bool take_word(std::size_t& from, std::string_view word) const {
    std::size_t at = from;
    const auto space = [&] {
      while (at < source_.size() && is_python_space(static_cast<unsigned char>(source_[at]))) ++at;
    };
    space();
    if (!source_.substr(at).starts_with(word)) return false;
    at += word.size();
    space();
    from = at;
    return true;
  }

  void inside(bool block) {
    std::string brackets;  // those still open; a closing tag inside them is an operator
    while (true) {
      skip_space();
      if (at_ == source_.size())
        refuse(block ? "a tag is not closed with %}" : "a tag is not closed with }}");
      if (brackets.empty() && tag_end(block)) return;
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        string_literal(c);
      } else if (c >= '0' && c <= '9') {
        number();
      } else if (is_word(read_code_point(source_.data() + at_).code)) {
        word();
      } else {
        op(brackets);
      }
    }
  }

  bool tag_end(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    char sign = '\0';
    if (source_[at_] == '-' || (block && source_[at_] == '+')) sign = source_[at_];
    if (!source_.substr(at_ + (sign != '\0')).starts_with(close)) return false;
    add(block ? Token::Kind::block_end : Token::Kind::print_end, "");
    advance(2 + (sign != '\0'));
    line_starting_ = false;
    if (block || sign == '-') trim_after(sign);
    return true;
  }

  void word() {
    const std::size_t start = at_;
    while (at_ < source_.size()) {
      const CodePoint point = read_code_point(source_.data() + at_);
      if (!is_word(point.code)) break;
      at_ += static_cast<std::size_t>(point.bytes);
    }
    add(Token::Kind::name, std::string(source_.substr(start, at_ - start)));
  }

  // Digits with single underscores between them; appends them without.
  void digits(std::string& out, std::string_view allowed) {
    while (at_ < source_.size()) {
      const bool gap = source_[at_] == '_' && at_ + 1 < source_.size();
      const char c = source_[at_ + gap];
      if (allowed.find(c) == std::string_view::npos) return;
      out += c;
      at_ += 1u + gap;
    }
  }

  void number() {
    static constexpr std::string_view decimal = "0123456789";
    std::string written;
    int base = 10;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 32);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    }
    if (base != 10) at_ += 2;
    digits(written,
           base == 16 ? "0123456789abcdefABCDEF" : decimal.substr(0, static_cast<std::size_t>(base)));
    bool real = false;
    if (base == 10 && at_ + 1 < source_.size() && source_[at_] == '.' &&
        decimal.find(source_[at_ + 1]) != std::string_view::npos) {
      real = true;
      written += source_[at_++];
      digits(written, decimal);
    }
    if (base == 10 && at_ < source_.size() && (source_[at_] | 32) == 'e') {
      const std::size_t sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-');
      if (at_ + 1 + sign < source_.size() &&
          decimal.find(source_[at_ + 1 + sign]) != std::string_view::npos) {
        real = true;
        written.append(source_.substr(at_, 1 + sign));
        at_ += 1 + sign;
        digits(written, decimal);
      }
    }
    const char* end = written.data() + written.size();
    double value = 0;
    std::int64_t whole = 0;
    if (real) {
      if (std::from_chars(written.data(), end, value).ec != std::errc())
        refuse(format("the number {} is out of range", written));
      return add(Token::Kind::real, written, value);
    }
    if (std::from_chars(written.data(), end, whole, base).ec != std::errc())
      refuse(format("the number {} is out of range", written));
    add(Token::Kind::integer, written, whole);
  }

  void string_literal(char quote) {
    std::string out;
    const int start_line = line_;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        out += source_[i++];
      } else {
        ++i;
        escape(i, out);
      }
    }
    if (i >= source_.size()) refuse("a string is not closed");
    advance(i + 1 - at_);
    tokens_.push_back({Token::Kind::text, start_line, std::move(out), {}});
  }

  // Python's escapes; `i` stands behind the backslash. An unknown one keeps its backslash.
  void escape(std::size_t& i, std::string& out) const {
    if (i == source_.size()) refuse("a string is not closed");
    const char c = source_[i];
    static constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t index = letters.find(c); index != std::string_view::npos) {
      out += meanings[index];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_escaped_code(i + 1, count, 16, out);
      i += 1 + count;
    } else if (c >= '0' && c <= '7') {
      std::size_t count = 0;
      while (count < 3 && i + count < source_.size() && source_[i + count] >= '0' &&
             source_[i + count] <= '7')
        ++count;
      append_escaped_code(i, count, 8, out);
      i += count;
    } else {
      out += '\\';
    }
  }

  void append_escaped_code(std::size_t from, std::size_t count, int base, std::string& out) const {
    std::uint32_t code = 0;
    const char* begin = source_.data() + from;
    const bool whole = from + count <= source_.size() &&
                       std::from_chars(begin, begin + count, code, base).ptr == begin + count;
    if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("a string has a bad escape");
    append_code_point(out, code);
  }

  void op(std::string& brackets) {
    static constexpr std::string_view operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                     "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                     ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view candidate : operators) {
      if (!looking_at(candidate)) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty() || brackets.back() != c) refuse(format("an unexpected '{}'", c));
        brackets.pop_back();
      }
      add(Token::Kind::op, std::string(candidate));
      return advance(candidate.size());
    }
    refuse(
        format("an unexpected character '{}'",
               source_.substr(at_, static_cast<std::size_t>(read_code_point(source_.data() + at_).bytes))));
  }

  std::string_view source_;
  std::string_view name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void syntax_error(std::string_view name, int line, std::string_view why) {
  fail(Code::bad_checkpoint, "{} line {}: {}", name, line, why);
}

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
  if (source.size() > kSourceBytesMax) {
    fail(Code::bad_checkpoint, "{}: a template of {} bytes; the limit is {}", name,
         with_commas(static_cast<long long>(source.size())), with_commas(kSourceBytesMax));
  }
  if (!is_valid_utf8(source)) fail(Code::bad_checkpoint, "{}: the template is not valid UTF-8", name);
  const std::string plain = with_plain_newlines(source);
  return Lexer(plain, name).run();
}

}  // namespace fourfold::text::jinja

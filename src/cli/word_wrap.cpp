#include "cli/word_wrap.h"

#include <locale.h>
#include <sys/ioctl.h>
#include <wchar.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace fourfold::cli {
namespace {

constexpr int kTabColumns = 8;
constexpr std::size_t kHeadBytes = 3;

// The C library knows how wide characters are, in a locale that knows more than ASCII; glibc has this one
// built in.
locale_t unicode_locale() {
  static const locale_t it = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return it;
}

}  // namespace

int columns_of(std::string_view character) {
  if (character.size() == 1 || check_utf8_step(character).state != Utf8State::valid) return 1;
  const locale_t unicode = unicode_locale();
  if (unicode == nullptr) return 1;
  const locale_t before = ::uselocale(unicode);
  const int columns = ::wcwidth(static_cast<wchar_t>(read_code_point(character.data()).code));
  ::uselocale(before);
  return std::max(columns, 0);
}

int terminal_columns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string WordWrap::push(std::string_view text, int columns) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = check_utf8_step(text.substr(at)).bytes;
    take(text.substr(at, bytes), columns);
    at += bytes;
  }
  return std::exchange(out_, {});
}

std::string WordWrap::finish(int columns) {
  end_word(columns);
  return std::exchange(out_, {});
}

void WordWrap::take(std::string_view character, int columns) {
  if (character == "\n") {
    end_word(columns);
    return end_line();
  }
  const bool is_space = character == " " || character == "\t";
  if (head_.size() < kHeadBytes && !(head_.empty() && is_space)) {
    head_ += character;
    if (head_ == "```") in_code_ = !in_code_;
  }
  if (in_code_ || columns <= 0) {
    end_word(columns);
    out_ += character;
    return;
  }
  if (is_space) {
    inside_long_word_ = false;
    end_word(columns);
    space_ += character;
    const int begin = column_ + space_columns_;
    space_columns_ += character == " " ? 1 : kTabColumns - begin % kTabColumns;
    return;
  }
  const int wide = columns_of(character);
  if (inside_long_word_) {
    out_ += character;
    column_ = (column_ + wide) % columns;
    return;
  }
  // Between wide characters, which are whole words in their languages, a line may be broken as well.
  if (wide == 2) end_word(columns);
  word_ += character;
  word_columns_ += wide;
  inside_long_word_ = word_columns_ > columns;
  if (wide == 2 || inside_long_word_) end_word(columns);
}

void WordWrap::end_word(int columns) {
  if (!word_.empty() && columns > 0 && !in_code_ && column_ > 0 &&
      column_ + space_columns_ + word_columns_ > columns) {
    out_ += '\n';
    column_ = 0;
  } else if (!word_.empty() || in_code_ || columns <= 0) {
    out_ += space_;
    column_ += space_columns_;
  } else {
    return;  // spaces wait for their word: at the end of a line they would only break it
  }
  out_ += word_;
  column_ += word_columns_;
  if (inside_long_word_) column_ %= columns;
  space_.clear();
  word_.clear();
  space_columns_ = word_columns_ = 0;
}

void WordWrap::end_line() {
  out_ += '\n';
  space_.clear();
  space_columns_ = column_ = 0;
  head_.clear();
  inside_long_word_ = false;
}

}  // namespace fourfold::cli

// Cuts a template into tokens: text outside tags, and names, numbers, strings and operators inside them.
// White space around tags follows Hugging Face's settings: trim_blocks and lstrip_blocks on, the last newline
// dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace fourfold::text::jinja {

struct Token {
  enum class Kind {
    data,
    block_begin,
    block_end,
    print_begin,
    print_end,
    name,
    text,
    integer,
    real,
    op,
    end
  };
  Kind kind;
  int line;
  std::string text;  // of names, operators, data and strings
  Value number;
};

std::vector<Token> tokenize(std::string_view source, std::string_view name);

[[noreturn]] void syntax_error(std::string_view name, int line, std::string_view why);

}  // namespace fourfold::text::jinja

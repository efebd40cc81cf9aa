// A command line that cannot be read: what is wrong with it in this program's words, and what may have been
// meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fourfold::cli {

struct Usage {
  std::string message, hint;
};

// After app.parse() has thrown it.
Usage explain_usage(const CLI::App& app, const CLI::ParseError& error);

// Makes of `help`, `help COMMAND ...` and `version` the flags that they are other words for. Gives what is
// wrong with them, if anything is.
std::optional<Usage> replace_help_words(const CLI::App& app, std::vector<std::string>& words);

}  // namespace fourfold::cli

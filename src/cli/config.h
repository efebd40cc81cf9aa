// What a command is told beside its command line: a TOML file and the environment. Which keys there are, the
// command's own options say; nothing is written twice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::cli {

struct Setting {
  std::string key;                  // as an option's long name without dashes: "max-context"
  std::vector<std::string> values;  // several only of a list
  bool is_list = false;
  std::string from;  // "serve.toml:3" or "FOURFOLD_SERVE_PORT"
};

// Every key of a TOML file, in its order; dashes and underscores are one. Values are strings, whole numbers,
// numbers, true and false, and lists of them. Throws invalid_request with file and line for what is no TOML,
// and for tables; io when it cannot be read.
std::vector<Setting> read_config(const std::string& path);

// The variables whose names begin with `prefix`, by name. A comma parts the items of a list; is_list is not
// known here and false.
std::vector<Setting> read_environment(std::string_view prefix);

// "FOURFOLD_SERVE_MAX_CONTEXT" of "max-context".
std::string variable_name(std::string_view prefix, std::string_view key);

// A TOML string with its quotes.
std::string toml_text(std::string_view text);

}  // namespace fourfold::cli

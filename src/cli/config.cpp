#include "cli/config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace fourfold::cli {

std::vector<Setting> read_environment(std::string_view prefix) {
  std::vector<Setting> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (!text.starts_with(prefix) || equals == std::string_view::npos) continue;
    Setting setting{.key = std::string(text.substr(prefix.size(), equals - prefix.size())),
                    .values = {std::string(text.substr(equals + 1))},
                    .from = std::string(text.substr(0, equals))};
    std::ranges::transform(setting.key, setting.key.begin(), [](unsigned char c) {
      return c == '_' ? '-' : static_cast<char>(std::tolower(c));
    });
    settings.push_back(std::move(setting));
  }
  std::ranges::sort(settings, {}, &Setting::from);
  return settings;
}

std::string variable_name(std::string_view prefix, std::string_view key) {
  std::string name(prefix);
  for (const unsigned char c : key) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < ' ' || byte == 0x7f)
      out += std::string("\\u00") + "0123456789ABCDEF"[byte >> 4] + "0123456789ABCDEF"[byte & 15];
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace fourfold::cli

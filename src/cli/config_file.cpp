// The TOML half of config.h, by toml++: the one file that includes it.
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "cli/config.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kConfigBytesMax = 1 << 20;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (!file && !file.eof()) || !file.is_open())
    fail_with_hint(Code::io, "--config names a file that this user may read.", "cannot read {}", path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kConfigBytesMax) fail(Code::invalid_request, "{}: over {} bytes", path, kConfigBytesMax);
  return text;
}

std::string place(const std::string& path, const toml::source_region& source) {
  return fourfold::format("{}:{}", path, source.begin.line);
}

// A value that is no list; an empty string for what has none.
bool take_value(const toml::node& node, std::vector<std::string>& values) {
  if (const auto* text = node.as_string()) {
    values.push_back(text->get());
  } else if (const auto* truth = node.as_boolean()) {
    values.emplace_back(truth->get() ? "true" : "false");
  } else if (const auto* whole = node.as_integer()) {
    values.push_back(std::to_string(whole->get()));
  } else if (const auto* number = node.as_floating_point()) {
    char digits[64];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), number->get()).ptr;
    values.emplace_back(digits, end);
  } else {
    return false;
  }
  return true;
}

Setting setting_of(const toml::key& key, const toml::node& node, const std::string& path) {
  Setting setting{.key = std::string(key.str()), .values = {}, .from = place(path, key.source())};
  std::ranges::replace(setting.key, '_', '-');
  const auto refuse = [&] {
    fail_with_hint(Code::invalid_request,
                   "A line is an option and its value, as in: port = 8000. There are no [tables].",
                   "{}: {} is neither text, a number, true or false, nor a list of these", setting.from,
                   std::string(key.str()));
  };
  if (const auto* list = node.as_array()) {
    setting.is_list = true;
    for (const toml::node& item : *list)
      if (!take_value(item, setting.values)) refuse();
  } else if (!take_value(node, setting.values)) {
    refuse();
  }
  return setting;
}

}  // namespace

std::vector<Setting> read_config(const std::string& path) {
  toml::table table;
  try {
    table = toml::parse(read_file(path), path);
  } catch (const toml::parse_error& error) {
    fail(Code::invalid_request, "{}: {}", place(path, error.source()), std::string(error.description()));
  }
  std::vector<std::pair<std::uint32_t, Setting>> found;
  for (const auto& [key, node] : table)
    found.emplace_back(key.source().begin.line, setting_of(key, node, path));
  std::ranges::stable_sort(found, {}, &std::pair<std::uint32_t, Setting>::first);
  std::vector<Setting> settings;
  for (auto& [line, setting] : found) settings.push_back(std::move(setting));
  return settings;
}

}  // namespace fourfold::cli

#include "server/api_keys.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "json/parse.h"

namespace fourfold::server {
namespace {

constexpr std::size_t kKeyBytesMax = 512, kFileBytesMax = std::size_t{1} << 20;

void require_usable(std::string_view key, const std::string& where) {
  if (key.empty()) fail(Code::invalid_request, "{}: a key is empty", where);
  if (key.size() > kKeyBytesMax)
    fail(Code::invalid_request, "{}: a key has {} bytes; at most {} are possible", where, key.size(),
         kKeyBytesMax);
  // The key itself is not shown: messages end up in logs.
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 127; }))
    fail(Code::invalid_request, "{}: a key has spaces or characters that no header can carry", where);
}

}  // namespace

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  volatile unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(given[i] ^ other));
  }
  return difference == 0;
}

ApiKeys::ApiKeys(std::vector<std::string> keys, std::vector<std::filesystem::path> files, std::string option)
    : option_(std::move(option)), given_(std::move(keys)) {
  for (const std::string& key : given_) require_usable(key, option_);
  for (const std::filesystem::path& file : files) {
    files_.push_back(read(file));
    if (files_.back().keys.empty())
      fail_with_hint(Code::invalid_request, "Write one key a line.", "{}-file {}: there is no key in it",
                     option_, file.string());
  }
  collect();
}

ApiKeys::File ApiKeys::read(const std::filesystem::path& path) const {
  File out{.path = path, .time = {}, .bytes = 0, .keys = {}};
  std::error_code problem;
  out.time = std::filesystem::last_write_time(path, problem);
  out.bytes = problem ? 0 : std::filesystem::file_size(path, problem);
  std::string text;
  try {
    text = json::read_text_file(path, kFileBytesMax);  // a pipe would be waited for, here and every second
  } catch (const Error& error) {
    fail(Code::io, "{}-file {}", option_, error.what());
  }
  std::istringstream stream(text);
  std::string line;
  while (std::getline(stream, line)) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    require_usable(line, fourfold::format("{}-file {}", option_, path.string()));
    out.keys.push_back(line);
  }
  return out;
}

void ApiKeys::collect() {
  keys_.clear();
  const auto add = [&](const std::string& key) {
    const auto number = tenants_.try_emplace(key, tenants_.size() + 1).first->second;
    if (std::none_of(keys_.begin(), keys_.end(), [&](const auto& known) { return known.second == number; }))
      keys_.emplace_back(key, number);
  };
  for (const std::string& key : given_) add(key);
  for (const File& file : files_)
    for (const std::string& key : file.keys) add(key);
}

std::optional<std::uint64_t> ApiKeys::tenant(std::string_view given) const {
  std::optional<std::uint64_t> found;
  // All of them, also behind the right one.
  for (const auto& [key, number] : keys_)
    if (equal_in_constant_time(given, key)) found = number;
  return found;
}

std::string ApiKeys::reload(File& file) {
  File now = read(file.path);
  if (!now.keys.empty()) {
    file = std::move(now);
    return {};
  }
  if (!std::exchange(file.was_empty, true)) return {};  // its time stays the old one: it is looked at again
  now.was_empty = true;
  file = std::move(now);
  return fourfold::format("{} has no key any more: whoever had one from there is refused",
                          file.path.string());
}

std::string ApiKeys::reload_changed() {
  std::string said;
  const auto say = [&](const std::string& what) {
    said += (said.empty() || what.empty() ? "" : "; ") + what;
  };
  bool changed = false;
  for (File& file : files_) {
    std::error_code gone;
    const auto time = std::filesystem::last_write_time(file.path, gone);
    const auto bytes = gone ? 0 : std::filesystem::file_size(file.path, gone);
    if (std::exchange(file.is_gone, static_cast<bool>(gone)) != static_cast<bool>(gone) && gone)
      say(file.path.string() + " is gone; its keys stay as they were");
    if (gone || (time == file.time && bytes == file.bytes)) continue;
    try {
      say(reload(file));
      changed = true;
    } catch (const Error& error) {
      // Said once, not every second.
      file.time = time;
      file.bytes = bytes;
      say(std::string(error.what()) + "; its keys stay as they were");
    }
  }
  if (changed) collect();
  return said;
}

}  // namespace fourfold::server

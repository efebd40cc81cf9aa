#include "server/api_keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace fourfold::server {
namespace {

constexpr std::size_t kKeyBytesMax = 512;

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

ApiKeys::ApiKeys(std::vector<std::string> keys, std::vector<std::filesystem::path> files)
    : given_(std::move(keys)) {
  for (const std::string& key : given_) require_usable(key, "--api-key");
  for (const std::filesystem::path& file : files) files_.push_back(read(file));
  collect();
}

ApiKeys::File ApiKeys::read(const std::filesystem::path& path) {
  File out{.path = path, .time = {}, .bytes = 0, .keys = {}};
  std::error_code problem;
  out.time = std::filesystem::last_write_time(path, problem);
  out.bytes = problem ? 0 : std::filesystem::file_size(path, problem);
  std::ifstream stream(path);
  if (problem || !stream)
    fail(Code::io, "--api-key-file {}: it cannot be read: {}", path.string(),
         problem ? problem.message() : std::strerror(errno));
  std::string line;
  while (std::getline(stream, line)) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    require_usable(line, "--api-key-file " + path.string());
    out.keys.push_back(line);
  }
  if (out.keys.empty())
    fail_with_hint(Code::invalid_request, "Write one key a line.", "--api-key-file {}: there is no key in it",
                   path.string());
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

std::string ApiKeys::reload_changed() {
  std::string problems;
  bool changed = false;
  for (File& file : files_) {
    std::error_code gone;
    const auto time = std::filesystem::last_write_time(file.path, gone);
    const auto bytes = gone ? 0 : std::filesystem::file_size(file.path, gone);
    if (std::exchange(file.is_gone, static_cast<bool>(gone)) != static_cast<bool>(gone) && gone)
      problems += fourfold::format("{}{} is gone; its keys stay as they were", problems.empty() ? "" : "; ",
                                   file.path.string());
    if (gone || (time == file.time && bytes == file.bytes)) continue;
    try {
      file = read(file.path);
      changed = true;
    } catch (const Error& error) {
      // Said once, not every second.
      file.time = time;
      file.bytes = bytes;
      problems += (problems.empty() ? "" : "; ") + std::string(error.what()) + "; its keys stay as they were";
    }
  }
  if (changed) collect();
  return problems;
}

}  // namespace fourfold::server

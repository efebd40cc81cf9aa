// Who may ask: keys from the command line and from files that are read again when they change. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::server {

// Equal, in a time that depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret);

class ApiKeys {
 public:
  // A file has one key a line; empty lines and lines that begin with # are skipped. Throws io for a file that
  // cannot be read, invalid_request for one without a key or a key that no client could send. option: for
  // messages.
  ApiKeys(std::vector<std::string> keys, std::vector<std::filesystem::path> files,
          std::string option = "--api-key");

  // Whether a key is needed. That is so from the start to the end, also when the last key was taken out of a
  // file.
  bool any() const { return !given_.empty() || !files_.empty(); }
  std::size_t count() const { return keys_.size(); }

  // Which tenant a key belongs to: a number that stays the key's own through reloads. Nothing: no such key.
  std::optional<std::uint64_t> tenant(std::string_view given) const;

  // Reads changed files again. One that is gone or no good leaves its keys as they were: that is an accident.
  // One without a key, twice in a row (editors write in two steps), takes them all away: that was meant.
  // Gives what there is to say, or nothing.
  std::string reload_changed();

 private:
  struct File {
    std::filesystem::path path;
    std::filesystem::file_time_type time;
    std::uintmax_t bytes = 0;
    bool is_gone = false, was_empty = false;
    std::vector<std::string> keys;
  };
  File read(const std::filesystem::path& path) const;
  void collect();
  // What there is to say; throws what read throws.
  std::string reload(File& file);

  std::string option_;
  std::vector<std::string> given_;
  std::vector<File> files_;
  std::vector<std::pair<std::string, std::uint64_t>> keys_;
  std::map<std::string, std::uint64_t, std::less<>> tenants_;  // of every key there ever was
};

}  // namespace fourfold::server

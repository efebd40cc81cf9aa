// Reads JSON from outside: sizes and depth are bounded, text after the document, invalid UTF-8
// and two members of one name are refused. Every reader of files (checkpoint, text) goes through here, so
// that none of them silently keeps the last of two contradicting members. Writing is base/json_writer.h.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace fourfold::json {

struct Limits {
  std::size_t text_bytes_max = std::size_t{64} << 20;
  std::size_t depth_max = 32;
};

// `what` names the text in messages, as in "config.json". Throws bad_checkpoint.
boost::json::value parse(std::string_view text, std::string_view what, const Limits& limits = {});

// Throws io when the file cannot be read (or is no regular file), bad_checkpoint when it is not good JSON.
boost::json::value parse_file(const std::filesystem::path& path, const Limits& limits = {});

// A whole regular file, at most bytes_max of it; throws io when it cannot be read, bad_checkpoint when it is
// larger.
std::string read_text_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace fourfold::json

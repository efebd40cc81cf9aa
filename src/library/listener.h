// What opening a model says while it works: a program shows it, one that embeds the engine may not care.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fourfold::library {

struct Listener {
  // Facts: memory, files, choices.
  std::function<void(const std::string& text)> on_fact = {};
  // Something slower or weaker than was asked for. Where that is not acceptable (--strict) it throws.
  std::function<void(const std::string& text)> on_notice = {};
  // Bytes of weights read so far; one thread at a time. It may throw to stop the load.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};

  void fact(const std::string& text) const {
    if (on_fact) on_fact(text);
  }
  void notice(const std::string& text) const {
    if (on_notice) on_notice(text);
  }
};

}  // namespace fourfold::library

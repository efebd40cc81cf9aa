// Finds stop strings in text that comes in pieces. What is handed out never holds any part of a stop string:
// text that may still become one is held back. The answer is the same however the text is cut: the stop
// string that is complete first ends it, and of those that are complete together the longest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::sample {

class StopStrings {
 public:
  // Throws invalid_request for an empty stop string, one beyond 1,024 bytes, or more than 64 of them.
  explicit StopStrings(std::vector<std::string> stops = {});

  // The text that is certain with this piece; may be empty, and is empty once stopped.
  std::string push(std::string_view piece);
  // What was held back, when the text ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }
  // The stop string that was found; empty before.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string found_;
  bool stopped_ = false;
};

}  // namespace fourfold::sample

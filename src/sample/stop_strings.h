// Finds stop strings in text that comes in pieces. What is handed out never holds any part of a stop string:
// text that may still become one is held back. The answer is the same however the text is cut: the stop
// string that is complete first ends it, and of those that are complete together the longest. With
// Keep::shown the text ends behind it instead of before it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::sample {

class StopStrings {
 public:
  enum class Keep { hidden, shown };
  // Throws invalid_request for an empty stop string, one beyond 1,024 bytes, or more than 64 of them.
  explicit StopStrings(std::vector<std::string> stops = {}, Keep keep = Keep::hidden);

  // The text that is certain with this piece; may be empty, and is empty once stopped. A piece that may not
  // end the text passes whole, but for what a stop string of a later piece may begin with.
  std::string push(std::string_view piece, bool may_end = true);
  // What was held back, when the text ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }
  // The stop string that was found; empty before.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  Keep keep_;
  std::string held_;
  std::size_t endless_ = 0;  // bytes of it in which no stop string may end
  std::string found_;
  bool stopped_ = false;
};

}  // namespace fourfold::sample

// Text that knows which of its bytes a chat template wrote itself: its literals, and constants such as
// bos_token. All others are foreign: they came with a message, a tool, a variable, or out of a number.
// Control tokens are found in own bytes alone (chat_prompt.h), so whatever builds text keeps this right;
// bytes of unknown origin are foreign.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fourfold::text {

// A stretch of bytes.
struct Run {
  std::size_t begin, end;
  bool operator==(const Run&) const = default;
};

class TracedText {
 public:
  TracedText() = default;
  explicit TracedText(std::string foreign) : bytes_(std::move(foreign)) {}
  static TracedText own(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  // Ascending, apart from each other, never empty.
  const std::vector<Run>& own_runs() const { return own_; }
  bool is_own(std::size_t begin, std::size_t end) const;
  // What it takes to keep.
  std::size_t memory() const { return bytes_.size() + own_.size() * sizeof(Run); }

  void append(std::string_view foreign) { bytes_ += foreign; }
  void append_own(std::string_view bytes);
  void append(const TracedText& other) { append_slice(other, 0, other.size()); }
  void append_slice(const TracedText& other, std::size_t begin, std::size_t end);
  // Bytes that stand for a stretch of another text (in capitals, escaped): own when all of that is.
  void append_for(std::string_view bytes, const TracedText& other, std::size_t begin, std::size_t end);

  TracedText slice(std::size_t begin, std::size_t end) const;
  // A part of this text by the view of it: what functions on plain text give back.
  TracedText slice(std::string_view part) const {
    const auto begin = part.empty() ? 0 : static_cast<std::size_t>(part.data() - bytes_.data());
    return slice(begin, begin + part.size());
  }
  // Everything from this offset on is dropped.
  void cut(std::size_t size);

 private:
  void add_own(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<Run> own_;
};

// The runs as they lie in a part of the text.
std::vector<Run> runs_within(const std::vector<Run>& runs, std::size_t begin, std::size_t end);

}  // namespace fourfold::text

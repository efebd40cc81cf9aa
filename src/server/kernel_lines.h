// Which kernels run, as the backend says it when a step has a new shape. Any thread.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace fourfold::server {

class KernelLines {
 public:
  static constexpr std::size_t kLinesMax = 400;

  // One line or several; what is beyond the limit is counted, not kept.
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at && lines_.size() < kLinesMax)
        lines_.push_back(text.substr(at, end - at));
      else if (end > at)
        ++left_out_;
      at = end + 1;
    }
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out = lines_;
    if (left_out_ > 0) out.push_back("and " + std::to_string(left_out_) + " lines more");
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::size_t left_out_ = 0;
};

}  // namespace fourfold::server

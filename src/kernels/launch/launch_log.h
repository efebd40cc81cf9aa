// What was launched last, for messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/format.h"

namespace fourfold::kernels {

// The newest launches of rows, for the message when the device fails: the fault lies in one of them, or in a
// graph made of such.
class LaunchLog {
 public:
  void note(std::string_view row) { names_[count_++ % names_.size()] = row; }
  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < std::min(count_, names_.size()); ++i)
      text += format("{}{}", i == 0 ? "; launched last: " : ", ", names_[(count_ - 1 - i) % names_.size()]);
    return text;
  }

 private:
  std::array<std::string_view, 6> names_;
  std::size_t count_ = 0;
};

}  // namespace fourfold::kernels

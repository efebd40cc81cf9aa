// Whoever read standard output has stopped, as `fourfold run | head` does: not a mistake, and no message.
#pragma once

#include <exception>

namespace fourfold::cli {

struct ReaderGone : std::exception {
  const char* what() const noexcept override { return "nobody reads standard output any more"; }
};

}  // namespace fourfold::cli

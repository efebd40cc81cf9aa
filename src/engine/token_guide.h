// Which tokens may come next, for answers that must have a form. One object guides one sequence.
#pragma once

#include <cstdint>
#include <span>

#include "sample/params.h"

namespace fourfold::engine {

class TokenGuide {
 public:
  virtual ~TokenGuide() = default;
  // Bit t % 64 of word t / 64 is set when token t may come next; the caller's words cover its vocabulary. At
  // least one is set: where only the end may come, that is the stop ids.
  virtual void allowed(std::span<std::uint64_t> bits) = 0;
  // The token that was chosen, one of those allowed.
  virtual void accept(sample::TokenId token) = 0;
};

}  // namespace fourfold::engine

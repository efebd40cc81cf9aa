// Recurrent states that were kept apart, in host memory: by place, each with the position it belongs to. A
// place has memory once it has been used.
#pragma once

#include <cstdint>
#include <vector>

namespace fourfold::backend {

class AnchorShelf {
 public:
  void resize(std::int64_t count) { places_.resize(static_cast<std::size_t>(count)); }
  // Room for so many numbers; what was there is gone. Both throw invalid_request for places that are not
  // there, get also for one that holds another position.
  float* put(std::int32_t anchor, std::int64_t position, std::int64_t count);
  const float* get(std::int32_t anchor, std::int64_t position) const;

 private:
  struct Place {
    std::int64_t position = 0;  // 0: nothing is here
    std::vector<float> numbers;
  };
  std::vector<Place> places_;
};

}  // namespace fourfold::backend

// A stable sort that stays in bounds whatever the comparison says: templates compare NaN, and std::sort may
// run off the end when an order is not consistent. (std::stable_sort of libstdc++ 12 does not compile cleanly
// with clang 19.)
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace fourfold::text {

template <class T, class Before>
void merge_sort(std::vector<T>& items, Before before) {
  std::vector<T> merged(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t start = 0; start < items.size(); start += 2 * width) {
      const std::size_t middle = std::min(start + width, items.size()),
                        end = std::min(start + 2 * width, items.size());
      std::size_t left = start, right = middle;
      for (std::size_t out = start; out < end; ++out) {
        // Only a right item that is strictly smaller overtakes.
        const bool take_right = left == middle || (right < end && before(items[right], items[left]));
        merged[out] = std::move(items[take_right ? right++ : left++]);
      }
    }
    std::move(merged.begin(), merged.end(), items.begin());  // g++ 13 takes a swap for a bad delete
  }
}

}  // namespace fourfold::text

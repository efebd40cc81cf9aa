// Collects what is wrong with a checkpoint, so that one error names all of it: a user fixes a file once, not
// once per tensor. Each kind of problem lists its first few members and counts the rest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::checkpoint {

class ProblemList {
 public:
  // As in add("missing", "lm_head.weight").
  void add(std::string_view kind, std::string_view item);
  bool empty() const { return groups_.empty(); }

  // Throws bad_checkpoint "what: 2 missing: a, b; 1,000 leftover: c, d, ... and 992 more" unless the list is
  // empty.
  void fail_if_any(std::string_view what, std::string hint = {}) const;

 private:
  static constexpr std::size_t kShownMax = 8;
  struct Group {
    std::string kind;
    std::vector<std::string> shown;
    std::size_t count = 0;
  };
  std::vector<Group> groups_;
};

}  // namespace fourfold::checkpoint

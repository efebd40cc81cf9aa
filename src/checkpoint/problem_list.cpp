#include "checkpoint/problem_list.h"

#include <algorithm>

#include "base/error.h"

namespace fourfold::checkpoint {

void ProblemList::add(std::string_view kind, std::string_view item) {
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.kind == kind; });
  if (group == groups_.end())
    group = groups_.insert(group, Group{.kind = std::string(kind), .shown = {}, .count = 0});
  if (++group->count <= kShownMax) group->shown.emplace_back(item);
}

void ProblemList::fail_if_any(std::string_view what, std::string hint) const {
  if (empty()) return;
  std::string text(what);
  const char* separator = ": ";
  for (const Group& group : groups_) {
    text += separator + with_commas(static_cast<long long>(group.count)) + " " + group.kind + ":";
    separator = "; ";
    for (std::size_t i = 0; i < group.shown.size(); ++i) text += (i == 0 ? " " : ", ") + group.shown[i];
    if (group.count > group.shown.size())
      text += " and " + with_commas(static_cast<long long>(group.count - group.shown.size())) + " more";
  }
  throw Error(Code::bad_checkpoint, text, std::move(hint));
}

}  // namespace fourfold::checkpoint

#include "server/api/harmony_turns.h"

#include <algorithm>
#include <utility>

namespace fourfold::server::api {

std::vector<Turn> harmony_turns(std::vector<Turn> turns) {
  std::vector<Turn> out;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    if (turn.calls.empty()) {
      out.push_back(std::move(turn));
      continue;
    }
    if (turn.thinking && !turn.thinking->empty() && !turn.content.empty())
      *turn.thinking += "\n\n" + std::exchange(turn.content, {});
    std::vector<Turn> results;
    for (; i + 1 < turns.size() && turns[i + 1].role == "tool"; ++i)
      results.push_back(std::move(turns[i + 1]));
    for (Call& call : std::exchange(turn.calls, {})) {
      const std::string id = call.id;
      turn.calls.assign(1, std::move(call));
      out.push_back(std::exchange(turn, Turn{.role = "assistant"}));
      const auto result = std::ranges::find_if(results, [&](const Turn& one) { return one.call_id == id; });
      if (result == results.end()) continue;
      out.push_back(std::move(*result));
      results.erase(result);
    }
    for (Turn& result : results) out.push_back(std::move(result));
  }
  return out;
}

}  // namespace fourfold::server::api

#include "server/api/system_turns.h"

namespace fourfold::server::api {
namespace {

// Where the template refuses the user's words in a turn of their own, they go on what stands before them. Not
// across a system turn: one that was kept stands there because the template took it between two of the user's
// (ChatTemplate::takes_later_system_turns), and the words would move in front of it.
std::vector<Turn> join_users(std::vector<Turn> turns, const text::ChatTemplate& chat_template) {
  std::vector<Turn> out;
  for (Turn& turn : turns) {
    const bool joins = turn.role == "user" && !out.empty() &&
                       ((out.back().role == "user" && !chat_template.takes_users_in_a_row()) ||
                        (out.back().role == "tool" && !chat_template.takes_users_behind_results()));
    if (!joins) {
      out.push_back(std::move(turn));
      continue;
    }
    if (!out.back().content.empty()) out.back().content += "\n\n";
    out.back().content += turn.content;
  }
  return out;
}

}  // namespace

std::string without_billing_line(std::string text) {
  if (!text.starts_with("x-anthropic-billing-header:")) return text;
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(end + 1);
}

std::vector<Turn> settle_turns(std::vector<Turn> turns, const text::ChatTemplate& chat_template) {
  std::vector<Turn> out;
  bool leading = true;
  for (Turn& turn : turns) {
    const bool system = turn.role == "system";
    leading = leading && system;
    if (leading) turn.content = without_billing_line(std::move(turn.content));
    if (system && turn.content.empty()) continue;
    if (leading && !out.empty()) {
      out.front().content += "\n\n" + turn.content;
      continue;
    }
    if (system && !leading && !chat_template.takes_later_system_turns()) {
      turn.role = "user";
      turn.content = "<system>\n" + turn.content + "\n</system>";
    }
    out.push_back(std::move(turn));
  }
  return join_users(std::move(out), chat_template);
}

}  // namespace fourfold::server::api

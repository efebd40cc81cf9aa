// What gpt-oss's template expects of a conversation beyond what others do.
#pragma once

#include <vector>

#include "server/api/conversation.h"
#include "text/chat_template.h"

namespace fourfold::server::api {

// One call a turn, its result behind it: of a turn's calls the template shows the first. Thoughts and words
// before a call are one text to it.
std::vector<Turn> harmony_turns(std::vector<Turn> turns);

// Its efforts are low, medium and high: less is low, more is high, and so is no thinking at all low. Tools
// have descriptions.
void settle_for_harmony(text::ChatRequest& request);

}  // namespace fourfold::server::api

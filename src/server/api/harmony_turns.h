// What gpt-oss's template expects of a conversation beyond what others do.
#pragma once

#include <vector>

#include "server/api/conversation.h"

namespace fourfold::server::api {

// One call a turn, its result behind it: of a turn's calls the template shows the first. Thoughts and words
// before a call are one text to it.
std::vector<Turn> harmony_turns(std::vector<Turn> turns);

}  // namespace fourfold::server::api

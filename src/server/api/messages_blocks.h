// The messages of Anthropic's /v1/messages, block by block, as turns.
#pragma once

#include "server/api/conversation.h"
#include "server/api/messages_tools.h"

namespace fourfold::server::api {

// "system" and "messages". Blocks that load, add or remove tools do so in `tools`.
std::vector<Turn> read_message_turns(Fields& fields, MessageTools& tools);

}  // namespace fourfold::server::api

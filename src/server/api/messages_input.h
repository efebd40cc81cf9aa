// What a request to Anthropic's /v1/messages says, in the words of the other protocols.
#pragma once

#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

Plan read_anthropic(const Json& body, const ServedModel& model, const RequestContext& context, Notes& notes,
                    PromptUse use);

}  // namespace fourfold::server::api

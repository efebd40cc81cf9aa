// Tools as some families' templates take them: those write parts of every tool that clients leave out.
#pragma once

#include "text/chat_template.h"

namespace fourfold::server::api {

// A description for each, empty where there is none: gpt-oss's template writes one.
void describe_tools(text::ChatRequest& request);

// A description and parameters for each: DeepSeek-V3.1's template writes both.
void complete_tools(text::ChatRequest& request);

}  // namespace fourfold::server::api

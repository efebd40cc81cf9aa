// The protocols, one function each.
#pragma once

#include <memory>

#include "server/api/fields.h"
#include "server/exchange.h"

namespace fourfold::server::api {

std::unique_ptr<Exchange> make_chat_exchange(const Json& body, const ServedModel& model,
                                             const RequestContext& context, Notes& notes);
std::unique_ptr<Exchange> make_completions_exchange(const Json& body, const ServedModel& model,
                                                    const RequestContext& context, Notes& notes);
std::unique_ptr<Exchange> make_responses_exchange(const Json& body, const ServedModel& model,
                                                  const RequestContext& context, Notes& notes);
// /v1/responses/input_tokens
std::unique_ptr<Exchange> make_input_count_exchange(const Json& body, const ServedModel& model,
                                                    const RequestContext& context, Notes& notes);
std::unique_ptr<Exchange> make_messages_exchange(const Json& body, const ServedModel& model,
                                                 const RequestContext& context, Notes& notes);
std::unique_ptr<Exchange> make_count_exchange(const Json& body, const ServedModel& model,
                                              const RequestContext& context, Notes& notes);

}  // namespace fourfold::server::api

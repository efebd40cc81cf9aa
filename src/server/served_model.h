// What the protocols know of the model behind the server. Read only: any number of threads may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "sample/params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::server {

namespace api {
class FormCache;
class ResponseStore;
}  // namespace api

struct ServedModel {
  std::vector<std::string>
      names;                 // what `model` of a request may be, beside "default"; answers say the first
  std::int64_t created = 0;  // seconds since 1970, for /v1/models
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  engine::ModelLimits limits;     // position_limit: of prompt and answer together, --max-context
  std::int64_t context_most = 0;  // positions the model has: what --max-context may be raised to
  sample::Params defaults;        // from generation_config.json
  std::vector<text::TokenId> stop_ids;
  std::int64_t token_limit = 0;     // ids below it have text
  std::int64_t answers_max = 16;    // choices of one request (n)
  bool strict = false;              // a request that would not get all it asks is refused (api/notes.h)
  std::string tokenizer_info = {};  // of /tokenizer_info, as text::tokenizer_info gives it
  // For answers that must have a form, over this tokenizer; without it they are refused.
  std::shared_ptr<api::FormCache> forms = nullptr;
  // For previous_response_id; without it nothing is kept.
  std::shared_ptr<api::ResponseStore> responses = nullptr;
};

}  // namespace fourfold::server

#include "server/text_routes.h"

#include <algorithm>
#include <vector>

#include "base/json_writer.h"
#include "base/utc_time.h"
#include "server/api/conversation.h"
#include "server/api/generation.h"
#include "server/api/request_error.h"
#include "text/jinja/json_value.h"

namespace fourfold::server {
namespace {

using api::Fields;
using api::Json;

Json parsed(std::string_view body) {
  return text::jinja::parse_json(body, "the body", text::jinja::JsonRules::request);
}

// As the chat route reads and renders them, so that the count is the one the chat would have.
std::vector<text::TokenId> encode_messages(Fields& fields, const ServedModel& model) {
  api::Conversation conversation;
  conversation.turns = api::read_messages(fields);
  api::read_chat_tools(fields, conversation.tools);
  api::read_template_fields(fields, conversation);
  fields.finish();
  return api::render_prompt(conversation, model, api::PromptUse::count).ids;
}

std::vector<text::TokenId> encode_prompt(Fields& fields, const ServedModel& model) {
  const std::string prompt = *fields.text("prompt");
  api::require_countable(prompt.size(), "prompt");
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  fields.finish();
  return model.tokenizer.encode(prompt, {.add_special_tokens = special});
}

void write_model(JsonWriter& json, const std::string& name, const ServedModel& model) {
  json.begin_object().member("id", name).member("object", "model").member("created", model.created);
  json.member("owned_by", "fourfold").member("root", model.names.front()).member("parent", nullptr);
  json.member("max_model_len", model.limits.position_limit);
  // Anthropic's names for it.
  json.member("type", "model").member("display_name", name).member("created_at", utc_time(model.created));
  json.member("lifecycle", "active").member("max_input_tokens", model.limits.position_limit);
  json.member("max_tokens", model.limits.position_limit).end_object();
}

// {"count": ..., "max_model_len": ..., "tokens": [...], "token_strs": [...] or null}, as it is read: a text
// may have millions of tokens, and its answer is several times as long as the text.
struct TokensInPieces {
  static constexpr std::size_t kPieceTokens = 8192;
  const ServedModel* model;
  std::vector<text::TokenId> ids;
  bool with_texts = false;
  std::size_t done = 0;  // of the ids, and then of their texts
  bool begun = false;

  std::string operator()() {
    const std::size_t all = ids.size() * (with_texts ? 2 : 1);
    if (begun && done > all) return {};
    std::string out;
    if (!std::exchange(begun, true))
      out = fourfold::format(R"({"count":{},"max_model_len":{},"tokens":[)", ids.size(),
                             model->limits.position_limit);
    const std::size_t end = std::min(done + kPieceTokens, all);
    for (; done < end; ++done) {
      const bool is_text = done >= ids.size();
      if (done == ids.size()) out += R"(],"token_strs":[)";
      const text::TokenId id = ids[is_text ? done - ids.size() : done];
      if (done != 0 && done != ids.size()) out += ',';
      out += is_text ? JsonWriter().value(model->tokenizer.token_bytes(id)).finish() : std::to_string(id);
    }
    if (done < all) return out;
    if (ids.empty() && with_texts) out += R"(],"token_strs":[)";
    out += with_texts ? "]}" : R"(],"token_strs":null})";
    done = all + 1;
    return out;
  }
};

}  // namespace

LongAnswer tokenize_answer(std::string_view body, const ServedModel& model, api::Notes& notes) {
  const Json json_body = parsed(body);
  Fields fields(json_body, "", notes);
  api::require_model(fields, model);
  const bool has_prompt = fields.find("prompt") != nullptr;
  if (has_prompt == (fields.find("messages") != nullptr))
    api::refuse("prompt", "there must be one of prompt and messages");
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  if (!has_prompt) fields.only_false({"add_special_tokens"});
  std::vector<text::TokenId> ids = has_prompt ? encode_prompt(fields, model) : encode_messages(fields, model);
  ids.shrink_to_fit();
  const std::size_t bytes = ids.size() * sizeof ids[0];
  return {TokensInPieces{.model = &model, .ids = std::move(ids), .with_texts = with_texts}, bytes};
}

std::string detokenize_answer(std::string_view body, const ServedModel& model, api::Notes& notes) {
  const Json json_body = parsed(body);
  Fields fields(json_body, "", notes);
  api::require_model(fields, model);
  const auto* tokens = fields.list("tokens");
  if (tokens == nullptr) api::refuse_missing("tokens", "tokens is missing; it must be an array of token ids");
  fields.finish();
  const std::vector<text::TokenId> ids = api::read_ids(*tokens, "tokens", model);
  return JsonWriter().begin_object().member("prompt", model.tokenizer.decode(ids)).end_object().finish();
}

std::string models_answer(const ServedModel& model) {
  JsonWriter json;
  json.begin_object().member("object", "list").key("data").begin_array();
  for (const std::string& name : model.names) write_model(json, name, model);
  json.end_array().member("has_more", false);
  json.member("first_id", model.names.front()).member("last_id", model.names.back());
  return json.end_object().finish();
}

std::string model_answer(std::string_view name, const ServedModel& model) {
  std::string decoded;
  for (std::size_t i = 0; i < name.size(); ++i) {
    // Hub names have a slash, which clients write as %2F.
    if (name.substr(i, 3) == "%2F" || name.substr(i, 3) == "%2f") {
      decoded += '/';
      i += 2;
    } else {
      decoded += name[i];
    }
  }
  if (decoded != "default" && std::ranges::find(model.names, decoded) == model.names.end()) return {};
  JsonWriter json;
  write_model(json, decoded == "default" ? model.names.front() : decoded, model);
  return json.finish();
}

}  // namespace fourfold::server

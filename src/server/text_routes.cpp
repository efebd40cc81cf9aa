#include "server/text_routes.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"
#include "json/parse.h"
#include "server/api/conversation.h"

namespace fourfold::server {
namespace {

namespace bj = boost::json;

// The members of a request, each of them taken once; what is left over is refused.
class Members {
 public:
  explicit Members(std::string_view body) {
    try {
      value_ = json::parse(body, "the body", {.depth_max = 64});
    } catch (const Error& error) {
      fail(Code::invalid_request, "{}", error.what());
    }
    if (!value_.is_object()) fail(Code::invalid_request, "the body must be a JSON object");
  }
  const bj::value* take(std::string_view name) {
    taken_.push_back(name);
    const bj::value* found = value_.get_object().if_contains(bj::string_view(name.data(), name.size()));
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  bool take_flag(std::string_view name, bool otherwise) {
    const bj::value* found = take(name);
    if (found == nullptr) return otherwise;
    if (!found->is_bool()) fail(Code::invalid_request, "'{}' must be true or false", name);
    return found->get_bool();
  }
  std::optional<std::string> take_text(std::string_view name) {
    const bj::value* found = take(name);
    if (found == nullptr) return std::nullopt;
    if (!found->is_string()) fail(Code::invalid_request, "'{}' must be a string", name);
    return std::string(found->get_string());
  }
  void require_no_others() const {
    for (const auto& member : value_.get_object())
      if (std::ranges::find(taken_, std::string_view(member.key())) == taken_.end())
        fail(Code::invalid_request, "'{}' is not a field of this route", std::string(member.key()));
  }

 private:
  bj::value value_;
  std::vector<std::string_view> taken_;
};

void require_served(Members& members, const ServedModel& model) {
  const auto name = members.take_text("model");
  if (name && *name != "default" && std::ranges::find(model.names, *name) == model.names.end())
    fail(Code::invalid_request, "the model '{}' is not served here; '{}' is", *name, model.names.front());
}

std::vector<text::TokenId> encode_messages(Members& members, const bj::value& messages,
                                           const ServedModel& model) {
  if (!model.chat_template)
    fail(Code::invalid_request, "this model has no chat template; send 'prompt' instead of 'messages'");
  text::ChatRequest request{.messages = text::parse_chat_json(bj::serialize(messages), "messages")};
  if (const bj::value* tools = members.take("tools"))
    request.tools = text::parse_chat_json(bj::serialize(*tools), "tools");
  request.add_generation_prompt = members.take_flag("add_generation_prompt", true);
  if (const bj::value* extra = members.take("chat_template_kwargs")) {
    if (!extra->is_object()) fail(Code::invalid_request, "'chat_template_kwargs' must be an object");
    for (const auto& member : extra->get_object())
      request.extra.set(std::string(member.key()),
                        text::parse_chat_json(bj::serialize(member.value()), "chat_template_kwargs"));
  }
  try {
    return model.tokenizer.encode(model.chat_template->render(request));
  } catch (const Error& error) {
    throw Error(error.code(), api::without_folder(error.what()), error.hint());
  }
}

void write_model(JsonWriter& json, const std::string& name, const ServedModel& model) {
  json.begin_object().member("id", name).member("object", "model").member("created", model.created);
  json.member("owned_by", "fourfold").member("root", model.names.front()).member("parent", nullptr);
  json.member("max_model_len", model.limits.position_limit).end_object();
}

}  // namespace

std::string tokenize_answer(std::string_view body, const ServedModel& model) {
  Members members(body);
  require_served(members, model);
  const auto prompt = members.take_text("prompt");
  const bj::value* messages = members.take("messages");
  if (prompt.has_value() == (messages != nullptr))
    fail(Code::invalid_request, "there must be one of 'prompt' and 'messages'");
  const bool add_special = members.take_flag("add_special_tokens", prompt.has_value());
  const bool with_texts = members.take_flag("return_token_strs", false);
  const std::vector<text::TokenId> ids =
      prompt ? model.tokenizer.encode(*prompt, {.add_special_tokens = add_special})
             : encode_messages(members, *messages, model);
  members.require_no_others();
  JsonWriter json;
  json.begin_object().member("count", ids.size()).member("max_model_len", model.limits.position_limit);
  json.key("tokens").begin_array();
  for (const text::TokenId id : ids) json.value(id);
  json.end_array().key("token_strs");
  if (with_texts) {
    json.begin_array();
    for (const text::TokenId id : ids) json.value(model.tokenizer.token_bytes(id));
    json.end_array();
  } else {
    json.value(nullptr);
  }
  return json.end_object().finish();
}

std::string detokenize_answer(std::string_view body, const ServedModel& model) {
  Members members(body);
  require_served(members, model);
  const bj::value* tokens = members.take("tokens");
  members.require_no_others();
  if (tokens == nullptr || !tokens->is_array())
    fail(Code::invalid_request, "'tokens' must be an array of token ids");
  std::vector<text::TokenId> ids;
  for (const bj::value& token : tokens->get_array()) {
    if (!token.is_int64() || token.get_int64() < 0 || token.get_int64() >= model.limits.vocab_size)
      fail(Code::invalid_request, "tokens[{}] is not a token id: 0 to {}", ids.size(),
           model.limits.vocab_size - 1);
    ids.push_back(static_cast<text::TokenId>(token.get_int64()));
  }
  return JsonWriter().begin_object().member("prompt", model.tokenizer.decode(ids)).end_object().finish();
}

std::string models_answer(const ServedModel& model) {
  JsonWriter json;
  json.begin_object().member("object", "list").key("data").begin_array();
  for (const std::string& name : model.names) write_model(json, name, model);
  return json.end_array().end_object().finish();
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

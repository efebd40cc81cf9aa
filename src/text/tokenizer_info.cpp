#include "text/tokenizer_info.h"

#include <boost/json.hpp>

#include "base/error.h"
#include "json/parse.h"

namespace fourfold::text {
namespace {

// {"content": "<s>", "lstrip": false, ...} is a token: its text is all that is shown of it.
boost::json::value shown(const boost::json::value& value) {
  if (value.is_array()) {
    boost::json::array out;
    for (const boost::json::value& item : value.get_array()) out.push_back(shown(item));
    return out;
  }
  if (!value.is_object()) return value;
  const boost::json::object& object = value.get_object();
  const boost::json::value* content = object.if_contains("content");
  if (content != nullptr && content->is_string() && object.contains("lstrip")) return *content;
  boost::json::object out;
  for (const auto& [key, member] : object) out.emplace(key, shown(member));
  return out;
}

}  // namespace

std::string tokenizer_info(const std::filesystem::path& model_folder,
                           const std::optional<ChatTemplate>& chat_template, std::string_view eos_token) {
  const std::filesystem::path file = model_folder / "tokenizer_config.json";
  boost::json::object config;
  if (std::filesystem::exists(file)) {
    const boost::json::value read =
        fourfold::json::parse_file(file, {.text_bytes_max = kTokenizerConfigBytesMax});
    if (!read.is_object()) fail(Code::bad_checkpoint, "{}: not an object", file.string());
    config = shown(read).get_object();
  }
  for (const char* name : {"vocab_file", "merges_file"}) config.erase(name);
  const auto missing = [&](const char* name) {
    const boost::json::value* member = config.if_contains(name);
    return member == nullptr || member->is_null();
  };
  if (missing("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (missing("eos_token")) config["eos_token"] = eos_token;
  if (chat_template) config["chat_template"] = chat_template->source();
  return boost::json::serialize(config);
}

}  // namespace fourfold::text

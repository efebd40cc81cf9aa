#include "server/api/messages_blocks.h"

#include "server/api/request_error.h"
#include "server/api/system_turns.h"

namespace fourfold::server::api {
namespace {

class Reader {
 public:
  Reader(Notes& notes, MessageTools& tools) : notes_(notes), tools_(tools) {}

  void add_system(const Json& system);
  void add_message(const Json& value, std::size_t index, bool user_follows);
  std::vector<Turn> take() { return std::move(turns_); }

 private:
  // A block that is text, or can be read as one; nothing for one that is left out.
  std::optional<std::string> text_of(Fields& block, OtherParts others);
  std::string text_of_document(Fields& block, OtherParts others);
  // A string, or the texts of blocks.
  std::string text_of_all(const Json& value, const std::string& field, OtherParts others);
  void add_user_block(Fields& block);
  void add_assistant_block(Fields& block);
  void add_system_block(Fields& block);
  Turn& turn_of(const char* role);

  Notes& notes_;
  MessageTools& tools_;
  std::vector<Turn> turns_;
  bool open_ = false;  // the last turn may be added to
};

Turn& Reader::turn_of(const char* role) {
  if (!std::exchange(open_, true)) turns_.push_back({.role = role});
  return turns_.back();
}

std::string Reader::text_of_document(Fields& block, OtherParts others) {
  std::string out;
  for (const char* name : {"title", "context"})
    if (const auto text = block.text(name)) out += *text + "\n";
  block.ignore({"citations"});
  auto source = block.object("source");
  const std::string type = source ? source->text("type").value_or("") : "";
  if (type == "text") {
    out += source->text("data").value_or("");
    source->ignore({"media_type"});
  } else if (const Json* content = type == "content" ? source->find("content") : nullptr) {
    out += text_of_all(*content, source->name_of("content"), others);
  } else {
    return out + other_part("document", block.name_of("type"), notes_, others);
  }
  source->finish();
  return out;
}

std::optional<std::string> Reader::text_of(Fields& block, OtherParts others) {
  const std::string type = block.text("type").value_or("");
  block.ignore({"cache_control"});
  std::string out;
  if (type == "text") {
    out = block.text("text").value_or("");
    block.ignore({"citations"});
  } else if (type == "document") {
    out = text_of_document(block, others);
  } else if (type == "search_result") {
    out = fourfold::format("{} ({})\n", block.text("title").value_or(""), block.text("source").value_or(""));
    if (const Json* content = block.find("content"))
      out += text_of_all(*content, block.name_of("content"), others);
    block.ignore({"citations"});
  } else if (type == "tool_reference") {
    const std::string name = block.text("tool_name").value_or("");
    tools_.load(name);
    out = fourfold::format("[the tool {} can be called now]", name);
  } else if (type == "image") {
    return other_part(type, block.name_of("type"), notes_, others);
  } else {
    notes_.add(NoteKind::item, block.name_of("type"), type);
    return std::nullopt;
  }
  block.finish();
  return out;
}

std::string Reader::text_of_all(const Json& value, const std::string& field, OtherParts others) {
  if (value.is_text()) return value.text();
  if (!value.is_sequence())
    refuse(field, "{} is {}; it must be a string or an array of blocks", field, shown(value));
  std::string out;
  for (std::size_t i = 0; i < value.sequence()->items.size(); ++i) {
    Fields block(value.sequence()->items[i], fourfold::format("{}[{}]", field, i), notes_);
    out += text_of(block, others).value_or("");
  }
  return out;
}

// What is said by the user: texts make one turn, each tool_result one of its own.
void Reader::add_user_block(Fields& block) {
  if (block.text("type").value_or("") != "tool_result") {
    if (const auto text = text_of(block, OtherParts::refuse)) turn_of("user").content += *text;
    return;
  }
  Turn turn{.role = "tool"};
  turn.call_id = block.text("tool_use_id").value_or("");
  if (const Json* content = block.find("content"))
    turn.content = text_of_all(*content, block.name_of("content"), OtherParts::name);
  // The template has no other place for it.
  if (block.boolean("is_error").value_or(false)) turn.content = "Error: " + turn.content;
  block.ignore({"cache_control", "toolset_name"});
  block.finish();
  turns_.push_back(std::move(turn));
  open_ = false;
}

void Reader::add_assistant_block(Fields& block) {
  const std::string type = block.text("type").value_or("");
  Turn& turn = turn_of("assistant");
  if (type == "thinking") {
    turn.thinking = turn.thinking.value_or("") + block.text("thinking").value_or("");
    block.ignore({"signature"});
  } else if (type == "redacted_thinking") {
    block.ignore({"data"});
  } else if (type == "compaction") {
    // What an earlier part of the conversation was made into.
    turn.content += block.text("content").value_or("");
    block.ignore({"signature", "encrypted_content"});
  } else if (type == "tool_use") {
    Call call;
    call.id = block.text("id").value_or("");
    call.name = block.text("name").value_or("");
    if (call.name.empty()) refuse_missing(block.name_of("name"), "{} is missing", block.name_of("name"));
    add_call(turn, std::move(call), block.find("input"), block.name_of("input"));
    block.ignore({"caller", "toolset_name"});
  } else {
    if (const auto text = text_of(block, OtherParts::name)) turn.content += *text;
    return;
  }
  block.ignore({"cache_control"});
  block.finish();
}

void Reader::add_system_block(Fields& block) {
  const std::string type = block.text("type").value_or("");
  if (type == "tool_addition" || type == "tool_removal") {
    tools_.change(block, type == "tool_addition");
    block.ignore({"cache_control"});
    block.finish();
  } else if (const auto text = text_of(block, OtherParts::refuse)) {
    turn_of("system").content += without_billing_line(*text);
  }
}

void Reader::add_system(const Json& system) {
  if (system.is_text()) {
    turns_.push_back({.role = "system", .content = system.text()});
  } else if (!system.is_sequence()) {
    refuse("system", "system is {}; it must be a string or an array of blocks", shown(system));
  } else {
    open_ = false;
    for (std::size_t i = 0; i < system.sequence()->items.size(); ++i) {
      Fields block(system.sequence()->items[i], fourfold::format("system[{}]", i), notes_);
      add_system_block(block);
    }
  }
}

void Reader::add_message(const Json& value, std::size_t index, bool user_follows) {
  Fields message(value, fourfold::format("messages[{}]", index), notes_);
  const auto role = message.one_of("role", {"user", "assistant", "system"});
  if (!role) refuse_missing(message.name_of("role"), "{} is missing", message.name_of("role"));
  const Json* content = message.find("content");
  if (content == nullptr)
    refuse_missing(message.name_of("content"), "{} is missing", message.name_of("content"));
  const std::string field = message.name_of("content");
  const std::size_t before = turns_.size();
  open_ = false;
  if (content->is_text()) {
    turns_.push_back({.role = *role, .content = content->text()});
  } else {
    const auto* blocks = message.list("content");
    if (*role == "assistant") turn_of("assistant");
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      Fields block((*blocks)[i], fourfold::format("{}[{}]", field, i), notes_);
      if (*role == "assistant") add_assistant_block(block);
      if (*role == "user") add_user_block(block);
      if (*role == "system") add_system_block(block);
    }
  }
  if (*role == "system") {
    // Words for one question alone; the tools it brought stay.
    if (message.one_of("clear_at", {"next_user_message", "never"}) == "next_user_message" && user_follows)
      turns_.resize(before);
    message.ignore({"output_config"});
  }
  message.finish();
}

bool is_user(const Json& message) {
  const Json* role = message.is_dict() ? message.dict()->find("role") : nullptr;
  return role != nullptr && role->is_text() && role->text() == "user";
}

}  // namespace

std::vector<Turn> read_message_turns(Fields& fields, MessageTools& tools) {
  Reader reader(fields.notes(), tools);
  if (const Json* system = fields.find("system")) reader.add_system(*system);
  const auto* messages = fields.list("messages");
  if (messages == nullptr || messages->empty())
    refuse("messages", "messages is {}; it must have at least one message", messages ? "empty" : "missing");
  std::size_t last_user = messages->size();
  while (last_user > 0 && !is_user((*messages)[last_user - 1])) --last_user;
  for (std::size_t i = 0; i < messages->size(); ++i) reader.add_message((*messages)[i], i, i + 1 < last_user);
  std::vector<Turn> out = reader.take();
  require_answered(out, "messages");
  if (out.empty()) refuse("messages", "messages says nothing this model could read");
  return out;
}

}  // namespace fourfold::server::api

#include "cli/transcript.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/json_writer.h"

namespace fourfold::cli {

std::string as_markdown(const std::string& model, const std::vector<ChatMessage>& messages) {
  std::string out = "# A conversation with " + model + "\n";
  for (const ChatMessage& message : messages) {
    const char* who = message.role == "user" ? "You" : message.role == "system" ? "System" : "Model";
    out += fourfold::format("\n## {}\n\n", who);
    if (!message.thinking.empty()) {
      // A quotation, line by line.
      out += "> ";
      for (const char c : message.thinking) out += c == '\n' ? std::string("\n> ") : std::string(1, c);
      out += "\n\n";
    }
    out += message.content + "\n";
  }
  return out;
}

std::string as_json(const std::string& model, const std::vector<ChatMessage>& messages) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("model", model).key("messages").begin_array();
  for (const ChatMessage& message : messages) {
    json.begin_object().member("role", message.role).member("content", message.content);
    if (!message.thinking.empty()) json.member("reasoning_content", message.thinking);
    json.end_object();
  }
  json.end_array().end_object();
  return json.finish() + "\n";
}

std::filesystem::path save_transcript(const std::string& name, const std::string& model,
                                      const std::vector<ChatMessage>& messages) {
  const char* home = std::getenv("HOME");
  const std::filesystem::path path = name.starts_with("~/") && home != nullptr
                                         ? std::filesystem::path(home) / name.substr(2)
                                         : std::filesystem::path(name);
  const std::string text =
      path.extension() == ".json" ? as_json(model, messages) : as_markdown(model, messages);
  std::FILE* file = std::fopen(path.c_str(), "wxe");
  if (file == nullptr && errno == EEXIST)
    fail_with_hint(Code::io, "Name another file.", "{}: there is such a file already", path.string());
  if (file == nullptr) fail(Code::io, "{}: cannot be written: {}", path.string(), std::strerror(errno));
  int error = std::fwrite(text.data(), 1, text.size(), file) == text.size() ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error != 0) {
    std::remove(path.c_str());  // half a conversation, in the way of the next try
    fail(Code::io, "{}: cannot be written: {}", path.string(), std::strerror(error));
  }
  return path;
}

}  // namespace fourfold::cli

// A conversation of `fourfold chat` as a file: Markdown to read, or the messages as the API has them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fourfold::cli {

struct ChatMessage {
  std::string role, content, thinking;
};

std::string as_markdown(const std::string& model, const std::vector<ChatMessage>& messages);
// {"model": ..., "messages": [{"role": ..., "content": ...}]}, with reasoning_content where there is any.
std::string as_json(const std::string& model, const std::vector<ChatMessage>& messages);

// By the name's end. "~/" is the user's home. Throws io where the file exists or cannot be written; gives the
// path that was written.
std::filesystem::path save_transcript(const std::string& name, const std::string& model,
                                      const std::vector<ChatMessage>& messages);

}  // namespace fourfold::cli

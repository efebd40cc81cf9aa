// What a line of `fourfold chat` asks for: a message to the model, or one of the commands that begin with /.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::cli {

struct ChatLine {
  enum class Kind { message, nothing, help, forget, system, save, exit, unknown };
  Kind kind = Kind::message;
  std::string argument;  // of a command: what follows its name; unknown: the name; else the line
};

// Only single lines are commands. With `strict` a word such as /sav is unknown; without it, from a pipe, a
// line that is no command is a message.
ChatLine read_chat_line(const std::string& line, bool strict);

// The commands and keys, a line each.
std::string_view chat_help();

// What an unknown command is answered with.
std::string unknown_chat_command(const std::string& name);

}  // namespace fourfold::cli

#include "cli/chat_words.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/closest.h"
#include "base/format.h"

namespace fourfold::cli {
namespace {

using Kind = ChatLine::Kind;

struct Command {
  std::string_view name;
  Kind kind;
};
constexpr std::array<Command, 7> kCommands{{{"/help", Kind::help},
                                            {"/new", Kind::forget},
                                            {"/clear", Kind::forget},
                                            {"/system", Kind::system},
                                            {"/save", Kind::save},
                                            {"/exit", Kind::exit},
                                            {"/quit", Kind::exit}}};

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\n") - first + 1));
}

}  // namespace

ChatLine read_chat_line(const std::string& line, bool strict) {
  if (trimmed(line).empty()) return {Kind::nothing, {}};
  if (!line.starts_with('/')) return {Kind::message, line};
  const std::size_t end = line.find_first_of(" \t");
  const std::string name = line.substr(0, end);
  const std::string argument = end == std::string::npos ? "" : trimmed(std::string_view(line).substr(end));
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  const bool many_lines = line.find('\n') != std::string::npos;
  // A system message may be a paste; the others have nothing to do with one.
  if (found != kCommands.end() && (!many_lines || found->kind == Kind::system))
    return {found->kind, argument};
  // A path, a comment or a text of several lines is a message; /word is somebody's try at a command.
  const bool is_word = name.size() > 1 && !many_lines &&
                       std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (strict && is_word) return {Kind::unknown, name};
  return {Kind::message, line};
}

std::string_view chat_help() {
  return "/help            this list\n"
         "/new             begin a new conversation; /clear is the same\n"
         "/system [TEXT]   show or set what the system message says; /system - takes it away\n"
         "/save FILE       write the conversation to a new file: Markdown, or messages where it ends in "
         ".json\n"
         "/exit            end, as Ctrl-D does\n"
         "Ctrl-C stops an answer. A paste of many lines is one message, Alt-Enter begins another line of "
         "it;\n"
         "the arrows and Ctrl-R bring back what was typed before. A message that begins with / needs a "
         "space\n"
         "before it.\n";
}

std::string unknown_chat_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string meant = closest(name, names);
  return fourfold::format("there is no command {}{}", name,
                          meant.empty() ? "" : "; did you mean " + meant + "?");
}

}  // namespace fourfold::cli

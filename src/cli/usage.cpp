#include "cli/usage.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "base/closest.h"
#include "base/format.h"
#include "cli/parse.h"

namespace fourfold::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The command that was named, and its words: "bench model".
struct Named {
  const CLI::App* command;
  std::string words;
};
Named named_command(const CLI::App& app) {
  Named named{&app, {}};
  for (auto inner = app.get_subcommands(); !inner.empty(); inner = named.command->get_subcommands()) {
    named.command = inner.front();
    named.words += (named.words.empty() ? "" : " ") + named.command->get_name();
  }
  return named;
}

std::string with_suggestion(std::string text, std::string_view word, const std::vector<std::string>& names) {
  const std::string meant = closest(word, names);
  return meant.empty() ? text : text + "; did you mean " + meant + "?";
}

Usage unknown_command(const CLI::App& within, const std::string& words, const std::string& word) {
  std::vector<std::string> names = command_names(within);
  if (names.empty())
    return {fourfold::format("'{}' is one word too many: {} has no commands of its own", word, words),
            fourfold::format("fourfold help {} says what it takes.", words)};
  const std::string of = words.empty() ? "command" : words + " command";
  return {with_suggestion(fourfold::format("there is no {} '{}'", of, word), word, names),
          fourfold::format("fourfold help{} lists them.", words.empty() ? "" : " " + words)};
}

Usage unknown_word(const CLI::App& app, const Named& named, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  const std::string help = "fourfold help" + (named.words.empty() ? "" : " " + named.words);
  if (word.starts_with('-') && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> names = option_names(*named.command);
    for (const std::string& more : option_names(app)) names.push_back(more);
    return {
        with_suggestion(
            fourfold::format("{} has no option {}", named.words.empty() ? "fourfold" : named.words, name),
            name, names),
        help + " lists what there is." +
            // People bring the lines they know.
            (named.words == "serve" ? " docs/serving.md has a table of vLLM's and llama-server's flags, and "
                                      "what each is here."
                                    : "")};
  }
  if (!command_names(*named.command).empty()) return unknown_command(*named.command, named.words, word);
  if (named.words == "run" || named.words == "chat") {
    const CLI::Option* model = named.command->get_option_no_throw("MODEL");
    std::string prompt = model != nullptr && model->count() > 0 ? model->as<std::string>() : "";
    for (const std::string& more : words) prompt += (prompt.empty() ? "" : " ") + more;
    return {fourfold::format("{} takes one MODEL; '{}' is a word too many", named.words, word),
            "A question is asked so: fourfold run -p " + shell_word(prompt)};
  }
  return {fourfold::format("{} has no use for '{}'", named.words, word), help + " lists what it takes."};
}

}  // namespace

Usage explain_usage(const CLI::App& app, const CLI::ParseError& error) {
  const Named named = named_command(app);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    if (const std::vector<std::string> words = app.remaining(true); !words.empty())
      return unknown_word(app, named, words);
  const std::string help = "fourfold help" + (named.words.empty() ? "" : " " + named.words);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !command_names(*named.command).empty()) {
    if (const std::vector<std::string> words = app.remaining(true); !words.empty())
      return unknown_word(app, named, words);
    std::string all;
    for (const std::string& name : command_names(*named.command)) all += (all.empty() ? "" : ", ") + name;
    return {fourfold::format("{} needs to know what: {}", named.words, all), help + " says what each does."};
  }
  return {(named.words.empty() ? "" : named.words + ": ") + error.what(), help + " lists what it takes."};
}

std::optional<Usage> replace_help_words(const CLI::App& app, std::vector<std::string>& words) {
  if (words.empty() || (words.front() != "help" && words.front() != "version")) return std::nullopt;
  const std::string first = words.front();
  words.erase(words.begin());
  if (first == "version" && !words.empty())
    return Usage{fourfold::format("version has no use for '{}'", words.front()), {}};
  const CLI::App* at = &app;
  std::string path;
  for (const std::string& word : words) {
    const CLI::App* inner = nullptr;
    for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; }))
      if (command->get_name() == word) inner = command;
    if (inner == nullptr) return unknown_command(*at, path, word);
    path += (path.empty() ? "" : " ") + word;
    at = inner;
  }
  words.emplace_back(first == "version" ? "--version" : "--help");
  return std::nullopt;
}

}  // namespace fourfold::cli

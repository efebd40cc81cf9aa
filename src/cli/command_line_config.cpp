// Options of `fourfold serve` from a file and from the environment, and `fourfold config show`. The options
// themselves, as CLI11 knows them, say which keys there are.
#include <CLI/CLI.hpp>
#include <map>

#include "base/closest.h"
#include "base/error.h"
#include "cli/command_line.h"
#include "cli/config.h"

namespace fourfold::cli {
namespace {

constexpr const char* kPrefix = "FOURFOLD_SERVE_";
constexpr const char* kConfig = "config";  // the one option that no file has

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }
bool is_list(const CLI::Option& option) { return option.get_expected_max() > 1; }
bool is_secret(const std::string& key) { return key == "api-key"; }

// Options of the command, its MODEL and the program's --strict, by every name they have.
class Keys {
 public:
  Keys(CLI::App& command, CLI::App& root) {
    for (CLI::Option* option : command.get_options()) add(option);
    add(root.get_option("--strict"));
  }

  const std::vector<std::pair<std::string, CLI::Option*>>& options() const { return options_; }

  CLI::Option* find(const Setting& setting) const {
    if (const auto found = by_name_.find(setting.key); found != by_name_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, option] : by_name_) names.push_back(name);
    const std::string meant = closest(setting.key, names);
    fail_with_hint(Code::invalid_request,
                   "fourfold help serve lists the options; each is a key without its dashes.",
                   "{}: serve has no option {}{}", setting.from, setting.key,
                   meant.empty() ? "" : "; did you mean " + meant + "?");
  }

 private:
  void add(CLI::Option* option) {
    std::vector<std::string> names = option->get_lnames();
    if (names.empty() && option->get_positional()) names = {"model"};
    if (names.empty() || names.front() == "help" || names.front() == kConfig) return;
    options_.emplace_back(names.front(), option);
    for (const std::string& name : names) by_name_[name] = option;
  }

  std::vector<std::pair<std::string, CLI::Option*>> options_;  // by their first name, in the order of help
  std::map<std::string, CLI::Option*> by_name_;
};

using Origins = std::map<const CLI::Option*, std::string>;

// Gives an option what a file or a variable says. Throws invalid_request.
void give(CLI::Option& option, const Setting& setting, std::vector<std::string> values) {
  if (setting.is_list && !is_list(option))
    fail(Code::invalid_request, "{}: {} has one value, not a list", setting.from, setting.key);
  const bool is_truth = values.size() == 1 && (values[0] == "true" || values[0] == "false");
  if (is_flag(option) && !is_truth)
    fail(Code::invalid_request, "{}: {} is true or false", setting.from, setting.key);
  try {
    for (std::string& value : values) option.add_result(std::move(value));
    if (!values.empty()) option.run_callback();
  } catch (const CLI::Error& error) {
    fail(Code::invalid_request, "{}: {}", setting.from, error.what());
  }
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// Those of one source; what was given already, on the command line or by a source before this one, stays.
void give_all(const Keys& keys, const std::vector<Setting>& settings, Origins& origins) {
  std::map<const CLI::Option*, const Setting*> seen;
  for (const Setting& setting : settings) {
    CLI::Option* option = keys.find(setting);
    if (const auto [at, fresh] = seen.emplace(option, &setting); !fresh)
      fail(Code::invalid_request, "{}: {} is given twice, here and in {}", setting.from, setting.key,
           at->second->from);
    if (option->count() > 0 || origins.contains(option)) continue;
    const bool commas = is_list(*option) && !setting.is_list && setting.from.starts_with(kPrefix);
    // Else an empty list of keys would take the place of the file's.
    if (commas && split_list(setting.values[0]).empty())
      fail_with_hint(Code::invalid_request, "Unset it, or give it a value.", "{} is empty", setting.from);
    give(*option, setting, commas ? split_list(setting.values[0]) : setting.values);
    origins[option] = setting.from;
  }
}

Origins take_settings(CLI::App& command, CLI::App& root, std::string config) {
  const Keys keys(command, root);
  Origins origins;
  for (const auto& [key, option] : keys.options())
    if (option->count() > 0) origins[option] = "the command line";
  std::vector<Setting> variables = read_environment(kPrefix);
  std::erase_if(variables, [&](const Setting& setting) {
    if (setting.key != kConfig) return false;
    if (config.empty()) config = setting.values[0];
    return true;
  });
  give_all(keys, variables, origins);
  if (!config.empty()) give_all(keys, read_config(config), origins);
  return origins;
}

std::string value_text(const CLI::Option& option, const std::string& value) {
  if (is_flag(option)) return value == "false" ? "false" : "true";
  return option.get_type_name() == "TEXT" ? toml_text(value) : value;
}

// "port = 8000", or nothing when there is no value.
std::string line_of(const std::string& key, const CLI::Option& option) {
  std::vector<std::string> values = option.results();
  if (values.empty() && !option.get_default_str().empty()) values = {option.get_default_str()};
  if (values.empty()) return is_flag(option) ? key + " = false" : "";
  std::string text;
  for (const std::string& value : values)
    text += (text.empty() ? "" : ", ") + (is_secret(key) ? toml_text("(hidden)") : value_text(option, value));
  return key + " = " + (is_list(option) ? "[" + text + "]" : text);
}

void show(const Keys& keys, const Origins& origins, const Console& console) {
  console.out << "# What fourfold serve would run with. The command line comes before the environment\n"
                 "# ("
              << kPrefix << "...), that before the file (--config), that before the defaults.\n";
  for (const auto& [key, option] : keys.options()) {
    std::string line = line_of(key, *option);
    const auto origin = origins.find(option);
    if (line.empty()) line = "# " + key;
    if (line.size() < 40) line.append(40 - line.size(), ' ');
    console.out << line << "  # " << (origin == origins.end() ? "default" : origin->second) << "\n";
  }
}

}  // namespace

void take_serve_settings(CLI::App& command, CLI::App& root, const std::string& config) {
  take_settings(command, root, config);
}

void add_config(CLI::App& app, CommandLine& line) {
  CLI::App* config = app.add_subcommand("config", "Options of serve from files and the environment");
  config->require_subcommand(1);
  CLI::App* command =
      config->add_subcommand("show", "What serve would run with, and where each value comes from");
  add_serve_options(*command, line.serve);
  command->final_callback([&app, &line, command] {
    const Origins origins = take_settings(*command, app, line.serve.config);
    line.run = [&app, command, origins](const Console& console) {
      show(Keys(*command, app), origins, console);
      return static_cast<int>(kFine);
    };
  });
}

}  // namespace fourfold::cli

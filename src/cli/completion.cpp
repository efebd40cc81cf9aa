#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <ostream>
#include <string_view>
#include <vector>

namespace fourfold::cli {
namespace {

struct Command {
  std::string words;  // "bench model"; empty: the program itself
  const CLI::App* app;
};

bool is_listed(const CLI::App& app) { return !app.get_group().empty(); }

void collect(const CLI::App& app, const std::string& words, std::vector<Command>& out) {
  out.push_back({words, &app});
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; }))
    if (is_listed(*inner)) collect(*inner, words + (words.empty() ? "" : " ") + inner->get_name(), out);
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> out;
  collect(app, "", out);
  return out;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && (!option->get_lnames().empty() || !option->get_snames().empty());
  });
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Every character of `special` behind `before`.
std::string escape(std::string_view text, std::string_view special, std::string_view before) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += before;
    out += c;
  }
  return out;
}

// Inside single quotes of a shell.
std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string inner_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; }))
    if (is_listed(*inner)) names += (names.empty() ? "" : " ") + inner->get_name();
  return names;
}

void write_bash(std::ostream& out, const CLI::App& app) {
  out << "# bash completion for fourfold: written by `fourfold completion bash`.\n"
         "_fourfold() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} words= names= flags= i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    if [[ ${COMP_WORDS[i]} != -* ]]; then words+=\"${COMP_WORDS[i]} \"; fi\n"
         "  done\n"
         "  case $words in\n";
  const std::vector<Command> commands = commands_of(app);
  // The longest first: "bench model" before "bench" before what has no command yet.
  for (auto command = commands.rbegin(); command != commands.rend(); ++command) {
    out << "    " << (command->words.empty() ? std::string("''") : "'" + command->words + " '*") << ")\n";
    out << "      names='" << inner_names(*command->app) << "'\n      flags='";
    const char* blank = "";
    for (const CLI::Option* option : options_of(*command->app))
      for (const std::string& flag : flags_of(*option)) {
        out << blank << flag;
        blank = " ";
      }
    out << "' ;;\n";
  }
  out << "  esac\n"
         "  if [[ $current == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n"
         "  elif [[ -n $names && ${COMP_WORDS[COMP_CWORD - 1]} != -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$current\")\n"
         "  else\n"
         "    compopt -o default 2>/dev/null\n"
         "    COMPREPLY=()\n"
         "  fi\n"
         "}\n"
         "complete -F _fourfold fourfold\n";
}

void write_zsh_command(std::ostream& out, const Command& command) {
  out << "    '" << command.words << "')\n      _arguments -s";
  for (const CLI::Option* option : options_of(*command.app))
    for (const std::string& flag : flags_of(*option))
      out << " \\\n        '*" << flag << "[" << in_quotes(escape(option->get_description(), "[]:\\", "\\"))
          << "]" << (takes_value(*option) ? ":value:_files" : "") << "'";
  out << " \\\n        '*:file:_files' ;;\n";
}

void write_zsh(std::ostream& out, const CLI::App& app) {
  out << "#compdef fourfold\n# Written by `fourfold completion zsh`.\n"
         "_fourfold() {\n  local -a names\n";
  const std::vector<Command> commands = commands_of(app);
  for (const Command& command : commands) {
    if (inner_names(*command.app).empty()) continue;
    const int place = command.words.empty() ? 2 : 3;
    out << "  if (( CURRENT == " << place << " ))"
        << (place == 3 ? " && [[ $words[2] == '" + command.words + "' ]]" : "") << "; then\n    names=(";
    for (const CLI::App* inner : command.app->get_subcommands([](const CLI::App*) { return true; }))
      if (is_listed(*inner))
        out << "\n      '" << inner->get_name() << ":"
            << in_quotes(escape(inner->get_description(), ":\\", "\\")) << "'";
    out << ")\n    _describe command names\n    return\n  fi\n";
  }
  out << "  local command=$words[2]\n"
         "  if [[ -n ${words[3]} && $command == bench ]]; then command+=\" $words[3]\"; fi\n"
         "  case $command in\n";
  for (const Command& command : commands)
    if (!command.words.empty()) write_zsh_command(out, command);
  out << "  esac\n}\n_fourfold \"$@\"\n";
}

void write_fish(std::ostream& out, const CLI::App& app) {
  out << "# fish completions for fourfold: written by `fourfold completion fish`.\n";
  for (const Command& command : commands_of(app)) {
    // A command of commands is left when one of its own was named.
    std::string seen = "__fish_use_subcommand";
    if (!command.words.empty()) {
      const std::size_t space = command.words.find(' ');
      seen = "__fish_seen_subcommand_from " + command.words.substr(0, space);
      if (space != std::string::npos)
        seen += "; and __fish_seen_subcommand_from " + command.words.substr(space + 1);
    }
    const std::string start = "complete -c fourfold -n '" + seen + "'";
    for (const CLI::App* inner : command.app->get_subcommands([](const CLI::App*) { return true; }))
      if (is_listed(*inner))
        out << start << " -f -a " << inner->get_name() << " -d '"
            << escape(inner->get_description(), "'\\", "\\") << "'\n";
    for (const CLI::Option* option : options_of(*command.app)) {
      out << start;
      for (const std::string& name : option->get_snames()) out << " -s " << name;
      for (const std::string& name : option->get_lnames()) out << " -l " << name;
      out << (takes_value(*option) ? " -r" : "") << " -d '" << escape(option->get_description(), "'\\", "\\")
          << "'\n";
    }
  }
}

// A dot or a quote at the start of a line is a command of man, a bare hyphen may become another character.
std::string in_manual(std::string_view text) {
  const std::string out = escape(text, "-\\", "\\");
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

void write_manual_command(std::ostream& out, const Command& command) {
  if (!command.words.empty())
    out << ".SH FOURFOLD " << in_manual(upper(command.words)) << "\n"
        << in_manual(command.app->get_description()) << ".\n";
  for (const CLI::Option* option : command.app->get_options()) {
    const std::vector<std::string> flags = flags_of(*option);
    if (option->get_group().empty()) continue;
    out << ".TP\n.B";
    const char* between = " ";
    if (flags.empty()) out << " " << in_manual(option->get_name(true));
    for (const std::string& flag : flags) {
      out << between << in_manual(flag);
      between = ", ";
    }
    if (!flags.empty() && takes_value(*option)) out << " VALUE";
    out << "\n" << in_manual(option->get_description());
    if (!option->get_default_str().empty()) out << " [" << in_manual(option->get_default_str()) << "]";
    out << "\n";
  }
}

}  // namespace

void write_completion(std::ostream& out, const CLI::App& app, const std::string& shell) {
  if (shell == "bash") write_bash(out, app);
  if (shell == "zsh") write_zsh(out, app);
  if (shell == "fish") write_fish(out, app);
}

void write_manual(std::ostream& out, const CLI::App& app, const std::string& version) {
  out << ".\\\" Written by `fourfold man`.\n.TH FOURFOLD 1 \"\" \"fourfold " << version
      << "\" \"User Commands\"\n"
      << ".SH NAME\nfourfold \\- " << in_manual(app.get_description()) << "\n"
      << ".SH SYNOPSIS\n.B fourfold\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIMODEL\\fR]\n.SH COMMANDS\n";
  const std::vector<Command> commands = commands_of(app);
  for (const Command& command : commands)
    if (!command.words.empty())
      out << ".TP\n.B " << in_manual(command.words) << "\n"
          << in_manual(command.app->get_description()) << "\n";
  out << ".SH OPTIONS\n";
  for (const Command& command : commands) write_manual_command(out, command);
  out << ".SH EXIT STATUS\n0: fine. 1: not as asked or wanted, as the command says. 2: it failed, and stderr "
         "says why. 64: the command line is wrong.\n"
      << ".SH SEE ALSO\nThe pages in docs/ of the source: serving.md, models.md, chat.md, doctor.md.\n";
}

}  // namespace fourfold::cli

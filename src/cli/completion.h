// Completions for shells and the manual page, from the tables of options that the program parses by.
#pragma once

#include <iosfwd>
#include <string>

namespace CLI {
class App;
}

namespace fourfold::cli {

// For bash, zsh or fish.
void write_completion(std::ostream& out, const CLI::App& app, const std::string& shell);
// fourfold(1), in the language of man.
void write_manual(std::ostream& out, const CLI::App& app, const std::string& version);

}  // namespace fourfold::cli

// Which folder a MODEL on the command line is: a path, a hub name in the local cache, or the model that comes
// with the program.
#pragma once

#include <filesystem>
#include <string>

namespace fourfold::cli {

// What the model that comes with the program is called, unless a folder here has that name.
inline constexpr const char* kBuiltInModel = "storyteller";

// An empty MODEL is the built-in one, too. Where there is none of this name the error's hint says which one
// may have been meant.
std::filesystem::path find_model(const std::string& model);

// Whether MODEL means the built-in one.
bool is_built_in(const std::string& model);

// A model that is here and has almost this name; empty without one.
std::string meant_model(const std::string& model);

// Whether find_model() finds something, complete or not.
bool is_model(const std::string& model);

// The built-in model for a program in the folder `program_folder`: in the source checkout when the program
// lies in a build folder of one, else in the share folder beside the installed program's bin. Both places are
// found from where the program is, so neither is compiled in. Throws invalid_request naming both when there
// is none.
std::string built_in_model(const std::filesystem::path& program_folder);

}  // namespace fourfold::cli

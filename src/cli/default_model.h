// The model that comes with the program, for commands that were given none.
#pragma once

#include <filesystem>
#include <string>

namespace fourfold::cli {

// `model` itself, or where it is empty the folder of storyteller: in the source checkout when the program
// lies in a build folder of one, else in the share folder beside the installed program's bin. Both places are
// found from where the program is, so neither is compiled in. Throws invalid_request naming both when there
// is none.
std::string model_or_default(const std::string& model);

// The same for a program in the folder `program_folder`.
std::string default_model(const std::filesystem::path& program_folder);

}  // namespace fourfold::cli

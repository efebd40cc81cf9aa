// Where tuning files lie, and which of them a machine runs by.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/tune/tuning.h"
#include "kernels/launch/machine.h"
#include "library/listener.h"

namespace fourfold::library {

// $XDG_CONFIG_HOME/fourfold/tuned, or ~/.config/fourfold/tuned; empty where neither is known.
std::filesystem::path user_tuned_folder();
// What came with the program or the library: share/fourfold/tuned of its prefix, or tuned/ of the source
// tree.
std::filesystem::path installed_tuned_folder();
// "nvidia-h200-sm90.json"
std::string tuned_file_name(const std::string& chip);

// `tuned`: a file, which must be for this machine; "none"; or empty: the program's files for this chip, then
// the user's, whose choices go first. What was used, or that nothing was, is said. Null: nothing.
std::shared_ptr<const backend::cuda::Tuning> find_tuning(const kernels::Machine& machine,
                                                         const std::string& tuned, const Listener& listener);

// The same with the folders given; those that do not exist are passed by.
std::shared_ptr<const backend::cuda::Tuning> find_tuning_in(const kernels::Machine& machine,
                                                            const std::vector<std::filesystem::path>& folders,
                                                            const Listener& listener);

}  // namespace fourfold::library

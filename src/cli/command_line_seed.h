// --seed of every command that has one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/parse.h"

namespace fourfold::cli {

// `seed` is a std::uint64_t, or an optional one.
template <class Seed>
CLI::Option* add_seed(CLI::App& command, Seed& seed, const std::string& help) {
  return command.add_option("--seed", seed, help + "; decimal digits")->check(why_no_seed);
}

}  // namespace fourfold::cli

// `fourfold pull`, `list` and `rm`: the models of the hub cache.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct PullOptions {
  std::string model;
  std::string revision;
  bool cached = false;  // what is whole in the cache is taken as it is, and the hub is not asked
};
// The snapshot's folder is what it prints on stdout.
int run_pull(const PullOptions& options, const Console& console);

struct ListOptions {
  bool json = false;
};
int run_list(const ListOptions& options, const Console& console);

struct RemoveOptions {
  std::string model;  // with @REVISION: that one alone
};
int run_remove(const RemoveOptions& options, const Console& console);

}  // namespace fourfold::cli

// What points to a person, a machine or an account, and how it is taken out of text that is sent to others:
// recordings of `fourfold doctor` and `fourfold report`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::doctor {

struct Names {
  std::string host;
  std::string user;
  std::vector<std::string> homes = {};
  std::vector<std::string> secrets = {};  // values of keys, tokens and passwords in the environment
};
Names names_here();

// Without these names, and without whatever looks like a UUID, a serial number, a MAC or IP address, a key,
// user@host or a home folder.
std::string without_names(std::string_view text, const Names& names);

// Every PCI address as pci-1, pci-2, ... in the order of their first appearance, so that a whole document
// still tells which devices are the same. Numbers that it has already are not given again.
std::string with_numbered_pci(std::string_view text);

}  // namespace fourfold::doctor

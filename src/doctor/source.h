// Where probes ask. A question is text, "file /proc/version" or "nvml 0 name"; its answer is text, or
// nothing. A live machine, a recording of one, and a recorder between the two answer the same questions, so
// nothing a probe can see is missing from a recording.
//
//   file PATH            the first 64 KB of a file
//   field PATH KEY       the value of the first line "KEY : value" in a file
//   define PATH NAME     the value of "#define NAME value" in a header
//   list PATH            names in a folder, one a line, sorted
//   link PATH            where a symbolic link points, its last part
//   space PATH           bytes of the file system there
//   limit memlock        bytes, or unlimited
//   environment          NAME=value lines of the variables doctor knows
//   servers              inference servers that run, with the options doctor knows
//   pci                  NVIDIA's display devices, a line each: address, device id, the kernel driver bound
//   to it bridges DEVICE       PCI bridges above a device, from the root, spaces between acs DEVICE the ACS
//   control word of a PCI device, four hex digits nvml ..., cuda ...   see nvml.h
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fourfold::doctor {

class Source {
 public:
  virtual ~Source() = default;
  virtual std::optional<std::string> ask(const std::string& question) = 0;

  // The answer without the white space around it; empty when there is none.
  std::string text(const std::string& question);
  std::optional<double> number(const std::string& question);
  std::vector<std::string> lines(const std::string& question);
};

// This machine. Opening the NVIDIA libraries waits until they are asked for.
std::unique_ptr<Source> live_source();

// Which environment variables a recording may hold: settings, never keys, tokens or passwords.
bool is_known_variable(const std::string& name);

// The ACS control word in a PCI device's configuration space, where it has one.
std::optional<std::string> acs_control(const std::string& config);

// "vllm serve --moe-backend marlin", from a process's arguments; nothing when it is no server we know.
std::optional<std::string> server_line(const std::vector<std::string>& arguments);

std::vector<std::string> split(std::string_view text, char separator);
std::string trimmed(std::string_view text);
// "key : value", as /proc writes it; the first of that key.
std::optional<std::string> field_of(std::string_view text, std::string_view key);
std::optional<double> parse_number(std::string_view text);

}  // namespace fourfold::doctor

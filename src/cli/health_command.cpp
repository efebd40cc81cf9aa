#include "cli/health_command.h"

#include <chrono>
#include <fstream>
#include <ostream>

#include "base/error.h"
#include "http/client.h"

namespace fourfold::cli {
namespace {

std::string first_key(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(Code::io, "the file of keys {} cannot be read", path);
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t\r"));
    if (!line.empty() && !line.starts_with('#')) return line;
  }
  fail(Code::invalid_request, "the file of keys {} has none", path);
}

}  // namespace

int run_health(const HealthOptions& options, const Console& console) {
  const http::Url url = http::parse_url(options.url);
  const std::string path = options.ready ? "/ready" : "/health";  // behind the URL's own
  const std::string key = options.api_key_file.empty() ? "" : first_key(options.api_key_file);
  try {
    const http::Answer answer =
        http::ask(url, {.path = path, .key = key, .limit = std::chrono::seconds(options.seconds)});
    if (answer.status == 200) return kFine;
    console.err << "fourfold: " << path << " answers " << answer.status << ": " << answer.body << "\n";
  } catch (const Error& error) {
    if (error.code() != Code::io) throw;
    console.err << "fourfold: " << error.what() << "\n";
  }
  return kMiss;
}

}  // namespace fourfold::cli

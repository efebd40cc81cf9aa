#include "cli/hub_commands.h"

#include <chrono>
#include <iomanip>
#include <optional>

#include "base/error.h"
#include "base/json_writer.h"
#include "cli/fetch_model.h"
#include "cli/figures.h"
#include "cli/find_model.h"
#include "cli/terminal_text.h"
#include "hub/cache.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;

checkpoint::HubName require_hub_name(const std::string& model) {
  if (const auto hub = checkpoint::parse_hub_name(model)) return *hub;
  fail_with_hint(Code::invalid_request,
                 "A hub name is ORG/NAME or ORG/NAME@REVISION, of letters, digits, '-', '_' and '.'.",
                 "'{}' is no hub name", model.substr(0, 200));
}

fs::path cache_folder() { return checkpoint::hub_cache_folder(checkpoint::hub_environment()); }

std::string as_bytes(std::uint64_t bytes) { return cli::as_bytes(static_cast<double>(bytes)); }

// Of the model that comes with the program; nothing where the program lies without it.
std::optional<std::uint64_t> built_in_bytes() {
  try {
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(find_model("")))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request) throw;
    return std::nullopt;
  }
}

// What a snapshot is asked for by, where the name alone does not do.
std::string revision_words(const hub::CachedSnapshot& snapshot) {
  std::string words;
  for (const std::string& name : snapshot.revisions) words += (words.empty() ? "" : ", ") + name;
  return words.empty() ? snapshot.commit.substr(0, 12) : words;
}

void print_row(const Console& console, const std::string& name, const std::string& revision,
               const std::string& size, const std::string& note) {
  console.out << std::left << std::setw(48) << terminal_safe(name) << "  " << std::setw(14)
              << terminal_safe(revision) << "  " << std::setw(9) << size << "  " << note << "\n";
}

void list_json(std::optional<std::uint64_t> built_in, const std::vector<hub::CachedModel>& models,
               const Console& console) {
  JsonWriter json;
  json.begin_array();
  if (built_in) {
    json.begin_object();
    json.key("name").value(kBuiltInModel);
    json.key("built_in").value(true);
    json.key("bytes").value(*built_in);
    json.key("unfinished_bytes").value(std::uint64_t{0});
    json.key("snapshots").begin_array().end_array();  // it is in no cache
    json.end_object();
  }
  for (const hub::CachedModel& model : models) {
    json.begin_object();
    json.key("name").value(model.name);
    json.key("built_in").value(false);
    json.key("bytes").value(model.bytes);
    json.key("unfinished_bytes").value(model.unfinished);
    json.key("snapshots").begin_array();
    for (const hub::CachedSnapshot& snapshot : model.snapshots) {
      json.begin_object();
      json.key("commit").value(snapshot.commit);
      json.key("revisions").begin_array();
      for (const std::string& name : snapshot.revisions) json.value(name);
      json.end_array();
      json.key("bytes").value(snapshot.bytes);
      json.key("whole").value(snapshot.whole);
      json.key("folder").value(snapshot.folder.string());
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  console.out << json.finish() << "\n";
}

}  // namespace

int run_pull(const PullOptions& options, const Console& console) {
  if (options.model == kBuiltInModel) {
    console.err << "fourfold: " << kBuiltInModel << " comes with the program; there is nothing to fetch\n";
    console.out << find_model(options.model).string() << "\n";
    return kFine;
  }
  checkpoint::HubName hub = require_hub_name(options.model);
  if (!options.revision.empty()) {
    if (options.model.find('@') != std::string::npos)
      fail(Code::invalid_request, "there are two revisions, {} and --revision {}", options.model,
           options.revision);
    hub = require_hub_name(options.model + "@" + options.revision);
  }
  if (options.cached) {
    const std::string revision = options.revision.empty() ? "" : "@" + options.revision;
    console.out << fetch_model(options.model + revision, console).string() << "\n";
    return kFine;
  }
  const auto begin = std::chrono::steady_clock::now();
  const hub::Pulled pulled = pull_model(hub, console);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (pulled.fetched == 0)
    console.err << fourfold::format("fourfold: {} at {} is here: {} files, {}\n", hub.text(),
                                    pulled.commit.substr(0, 12), pulled.files, as_bytes(pulled.bytes));
  else
    console.err << fourfold::format("fourfold: fetched {} in {} s; all hashes are right\n",
                                    as_bytes(pulled.fetched), rounded(seconds));
  console.out << pulled.snapshot.string() << "\n";
  return kFine;
}

int run_list(const ListOptions& options, const Console& console) {
  const fs::path cache = cache_folder();
  const std::vector<hub::CachedModel> models = hub::cached_models(cache);
  const std::optional<std::uint64_t> built_in = built_in_bytes();
  if (options.json) {
    list_json(built_in, models, console);
    return kFine;
  }
  print_row(console, "MODEL", "REVISION", "SIZE", "");
  if (built_in) print_row(console, kBuiltInModel, "", as_bytes(*built_in), "comes with the program");
  for (const hub::CachedModel& model : models) {
    for (const hub::CachedSnapshot& snapshot : model.snapshots)
      print_row(console, model.name, revision_words(snapshot), as_bytes(snapshot.bytes),
                snapshot.whole ? "" : "not whole, or no model that is read here");
    if (model.unfinished > 0)
      print_row(console, model.name, "", as_bytes(model.unfinished),
                "begun; fourfold pull " + terminal_safe(model.name) + " goes on");
  }
  console.out << fourfold::format("in {}\n", terminal_safe(cache.string()));
  return kFine;
}

int run_remove(const RemoveOptions& options, const Console& console) {
  if (options.model == kBuiltInModel)
    fail(Code::invalid_request, "{} is a part of the program and stays", kBuiltInModel);
  const checkpoint::HubName hub = require_hub_name(options.model);
  const bool all = options.model.find('@') == std::string::npos;
  const std::uint64_t freed = hub::remove_model(cache_folder(), hub, all);
  console.out << fourfold::format("removed {}{}: {} freed\n", hub.text(), all ? "" : "@" + hub.revision,
                                  as_bytes(freed));
  return kFine;
}

}  // namespace fourfold::cli
